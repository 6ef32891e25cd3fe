"""A pod's args are read once more by the kubelet; what it makes of them must be what the user wrote."""

from __future__ import annotations

import re

import specs
from hypothesis import given
from hypothesis import strategies as st

from kvpp_operator.pipeline import wished
from kvpp_operator.render.commands import commands
from kvpp_operator.render.tokens import escape


def kubelet(text: str, env: dict[str, str]) -> str:
    """Kubernetes' expansion of args (third_party/forked/golang/expansion): `$$` is `$`, `$(X)` a variable if there is one."""
    return re.sub(
        r"\$\$|\$\(([^)]*)\)",
        lambda found: "$" if found[0] == "$$" else env.get(found[1], found[0]),
        text,
    )


@given(st.text(alphabet='$()aX{} "é', max_size=24))
def test_escaped_text_comes_through_the_kubelet_unchanged(text: str) -> None:
    assert kubelet(escape(text), {"X": "expanded", "a": "expanded", "": "expanded"}) == text


def test_a_served_name_that_looks_like_a_variable_stays_literal() -> None:
    plan = specs.planned(specs.deployment(specs.UNIFIED, model__servedName="$(POD_IP)-$$-模型"))
    [command] = commands(plan)
    assert "$(POD_IP)-$$-模型" in command.argv
    [workload] = [manifest for manifest in wished(plan) if manifest["kind"] == "Deployment"]
    container = workload["spec"]["template"]["spec"]["containers"][0]
    assert [kubelet(word, {"POD_IP": "10.0.0.1"}) for word in container["args"][1:]] == list(command.argv)
