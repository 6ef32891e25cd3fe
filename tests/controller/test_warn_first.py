"""What a rollout costs stands in the status before anything of it is applied, and is written once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kvpp_operator.cluster.cache import Cache
from kvpp_operator.controller.reconcile import warn_first
from kvpp_operator.decide import Decision
from kvpp_operator.manifest import Owner
from kvpp_operator.report.status import Report
from kvpp_operator.rules import RULES
from kvpp_operator.rules.base import Fact

if TYPE_CHECKING:
    from tests.controller.conftest import Stage

pytestmark = pytest.mark.cluster
[COLD] = [rule for rule in RULES if rule.id == "POOL050"]


def decision(*facts: Fact) -> Decision:
    findings = [COLD.finding(fact) for fact in facts]
    return Decision((), (), Report(generation=2, findings=findings, wanted={}))


async def test_the_cost_is_told_first_and_once(stage: Stage) -> None:
    body: dict[str, Any] = await stage.apply()
    cache = Cache()
    cache.put(body)
    owner = Owner.of(body)
    serving = {"observedGeneration": 1, "revision": "r1"}
    cache.put(await stage.cluster.apply_status(body, serving))  # type: ignore[arg-type]
    before = cache.deployment(owner.key)
    assert before is not None

    costly = decision(Fact("spec.pooling", "Memcache", (), {"changes": "KVPP on → off", "theirs": ""}))
    told = await warn_first(costly, stage.cluster, cache, before)
    [finding] = told["status"].pop("findings")
    assert "KVPP on → off" in finding["message"]
    assert told["status"] == serving  # the rest tells of the generation that still runs
    assert told["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]

    now = cache.deployment(owner.key)
    assert now is not None
    assert await warn_first(costly, stage.cluster, cache, now) == now
    for silent in (decision(), replace(costly, wished=None)):
        assert await warn_first(silent, stage.cluster, cache, before) == before
