"""`router.podTemplate`: what a fragment may not bring into the router's pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvpp_operator import names
from kvpp_operator.resolve import Resolved
from kvpp_operator.rules import paths
from kvpp_operator.rules.base import Fact, Remove, rule
from kvpp_operator.rules.fragments import entries
from kvpp_operator.world import World

PATH = "spec.router.podTemplate"
CONTAINERS = ("agent", "proxy")
OF_POD = ("hostNetwork", "serviceAccountName", "shareProcessNamespace", "terminationGracePeriodSeconds")
OF_CONTAINER = ("command", "args", "ports", "readinessProbe", "livenessProbe", "lifecycle")
VARIABLES = ("POD_NAME", "POD_NAMESPACE", "VLLM_API_KEY", "OPENAI_API_KEY", "PYTHONPATH")


@rule(
    "ROUTER003",
    severity="error",
    evidence="guide",
    source="docs/router.md: the agent is the only listener and asks for the API key; podTemplate can't change that",
    message="{key} of the router's pods is the operator's: the agent is their only way in, and the operator knows its "
    "command line.",
    fix="",
)
def routers_own_part_of_the_pod(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A fragment that changes what makes the router's pod a router."""
    router = resolved.spec.router
    template = router.pod_template.model_dump(by_alias=True, exclude_none=True) if router is not None else {}
    for place, value, key in taken(template):
        # A command line or a variable may hold a secret, so it is not repeated.
        yield Fact(place, value if isinstance(value, bool | int) else key, (Remove(place),), {"key": key})


def taken(template: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """(path, value, what) of everything in the fragment that is ours."""
    labels = part(part(template, "metadata"), "labels")
    own = {*names.base_labels("x"), names.COMPONENT}
    for key in labels:
        if key in own or str(key).partition("/")[0] == names.DOMAIN:
            yield paths.below(f"{PATH}.metadata.labels", key), labels[key], key
    spec = part(template, "spec")
    yield from ((f"{PATH}.spec.{key}", spec[key], key) for key in OF_POD if key in spec)
    for place, container in entries(f"{PATH}.spec", spec, "containers"):
        if container.get("name") not in CONTAINERS:
            continue
        yield from ((f"{place}.{key}", container[key], key) for key in OF_CONTAINER if key in container)
        for variable_place, variable in entries(place, container, "env"):
            if variable.get("name") in VARIABLES:
                yield variable_place, variable["name"], str(variable["name"])


def part(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = holder.get(key)
    return found if isinstance(found, Mapping) else {}
