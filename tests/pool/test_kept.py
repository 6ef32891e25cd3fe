"""What runs, runs on: an operator that renders differently restarts no service of a pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from specs import DISAGGREGATED, UNIFIED

from kvpp_operator import revision
from kvpp_operator.plan.model import Plan
from kvpp_operator.render.objects import revision_of
from kvpp_operator.render.pool.kept import KeptPools, PoolRevision, from_manifest, keep, pool_revision, to_manifest

LATEST = {"engine": {"version": "latest"}}
MEMCACHE: dict[str, Any] = {"backend": "Memcache"}


@pytest.fixture
def made(plan_of: Callable[..., Plan], pooled: Callable[..., Any]) -> Callable[..., PoolRevision]:
    def made(spec: Any = UNIFIED | LATEST, pooling: Any = MEMCACHE, **changes: Any) -> PoolRevision:
        found = pool_revision(plan_of(pooled(spec, pooling, **changes)))
        assert found is not None
        return found

    return made


def rendered_otherwise(one: PoolRevision) -> PoolRevision:
    """As a newer operator might."""
    return replace(one, manifests=(*one.manifests[:-1], {**one.manifests[-1], "spec": {}}))


def test_a_first_one_is_applied(made: Any) -> None:
    assert keep(made(), [], ()) == KeptPools((made(),))


def test_a_newer_operator_applies_what_runs(made: Any) -> None:
    running = made()
    assert keep(rendered_otherwise(running), [running], ()) == KeptPools((running,))


EDITS: list[tuple[dict[str, Any], bool]] = [
    ({"pooling__memcache__metaConfig": {"ock.mmc.evict_threshold_high": "85"}}, True),
    ({"pooling__memcache__metaService": {"replicas": 2}}, True),
    ({"pooling__memcache__localConfig": {"ock.mmc.client.timeout.seconds": "30"}}, False),
    ({"pooling__memcache__memoryPerDevice": "32Gi"}, False),
    ({"pooling__extraConfig": {"qos_priority": 1}}, False),
    ({"unified__replicas": 8}, False),
    ({"unified__scheduler": {"maxNumSeqs": 12}}, False),
]


@pytest.mark.parametrize(("edit", "is_replaced"), EDITS)
def test_only_its_own_settings_replace_it(edit: dict[str, Any], *, is_replaced: bool, made: Any) -> None:
    running = made()
    [chosen] = keep(rendered_otherwise(made(**edit)), [running], ()).applied
    assert (chosen != running) is is_replaced
    assert chosen.number == (2 if is_replaced else 1)


def test_it_is_replaced_once(made: Any) -> None:
    edited = made(pooling__memcache__metaConfig={"ock.mmc.evict_threshold_high": "85"})
    kept = keep(edited, [made()], ())
    [second] = kept.applied
    assert kept.remembered == (made(),)
    assert keep(edited, [made(), second], (), settled=False) == kept
    assert keep(edited, [made(), second], ()) == KeptPools((second,))


def test_a_wish_said_differently_replaces_nothing(made: Any) -> None:
    running = made()
    image = {"pullPolicy": "IfNotPresent"}
    said = made(pooling__memcache__metaService={"image": image})
    assert keep(said, [running], ()) == KeptPools((running,))


def test_engines_of_the_old_layout_keep_their_pool(made: Any) -> None:
    old, new = made(), replace(made(unified__parallelism__tensor=4), number=2)
    assert keep(made(unified__parallelism__tensor=4), [old], {old.pool}).applied == (new, old)
    assert keep(new, [old, new], (), settled=False) == KeptPools((new,), (old,))
    assert keep(new, [old, new], ()) == KeptPools((new,))


def test_a_pool_that_is_given_up_stays_while_engines_are_in_it(made: Any) -> None:
    assert keep(None, [made()], {made().pool}) == KeptPools((made(),))
    assert keep(None, [made()], ()) == KeptPools()


def test_it_is_read_back_and_told_from_an_engines_revision(made: Any, plan_of: Any, pooled: Any) -> None:
    kept = to_manifest(made(), "demo", "default")
    assert from_manifest(kept) == made()
    assert revision.from_manifest(kept) is None
    engines = revision_of(plan_of(pooled(UNIFIED | LATEST, MEMCACHE)))
    assert from_manifest(revision.to_manifest(engines, "demo", "default")) is None
    assert from_manifest({**kept, "data": {**kept["data"], "format": 2}}) is None


def test_an_existing_pool_has_a_layout_only(made: Any) -> None:
    external = {"backend": "Memcache", "memcache": {"metaService": {"external": {"address": "m:5000"}}}}
    found = made(DISAGGREGATED | LATEST, external)
    assert found.manifests == ()
    assert found.layout["tensor"] == 8
