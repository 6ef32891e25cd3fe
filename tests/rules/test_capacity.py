"""The estimate of KV capacity against the measured and calculated tables (launch facts 8.2 to 8.4)."""

from __future__ import annotations

import copy

import pytest
from rule_cases import bases, unshared

from kvpp_operator.api.v1alpha1 import KvCache
from kvpp_operator.capacity import KVPP_SHARE, Layout, cache_layout, estimate, indexer_places, ratio, stage_layers
from kvpp_operator.catalogue.models import BY_NAME
from kvpp_operator.configuration import DEFAULT
from kvpp_operator.resolve import resolve
from kvpp_operator.rules.edits import Set, applied
from kvpp_operator.rules.schema import parse

LI_C8 = KvCache(indexer="C8")


def multiplier(model: str, group: int, stages: list[int] | None = None, drafts: int = 0) -> float:
    facts = BY_NAME[model]
    return ratio(cache_layout(facts, LI_C8, "fp8", drafts), stages or [facts.layers], group)


@pytest.mark.parametrize(
    ("model", "cache", "chip", "total"),
    [
        ("DeepSeek-V3", KvCache(), "fp8", 70_272),
        ("DeepSeek-V3.2", KvCache(), "fp8", 85_888),
        ("DeepSeek-V3.2", LI_C8, "int8", 78_202),
        ("GLM-5", KvCache(), "fp8", 109_824),
        ("GLM-5", LI_C8, "fp8", 100_152),
        ("GLM-5.2", LI_C8, "fp8", 92_628),
        ("GLM-5.2", KvCache(main="C8", indexer="C8"), "fp8", 78 * 656 + 21 * 132),
    ],
)
def test_bytes_of_a_token(model: str, cache: KvCache, chip: str, total: int) -> None:
    assert sum(cache_layout(BY_NAME[model], cache, chip, 0).layers) == total  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "group", "stages", "drafts", "expected"),
    [
        *(
            ("DeepSeek-V3", group, None, 0, value)
            for group, value in ((2, 1.85), (4, 3.39), (8, 6.10), (16, 10.17), (32, 15.25))
        ),
        ("DeepSeek-V3", 8, [31, 30], 0, 5.17),
        *(
            ("GLM-5", group, None, 0, value)
            for group, value in ((2, 1.90), (4, 3.55), (8, 6.50), (16, 11.14), (32, 15.60))
        ),
        ("GLM-5", 8, [39, 39], 0, 5.57),
        *(
            ("GLM-5.2", group, None, 0, value)
            for group, value in ((2, 1.89), (4, 3.49), (8, 6.34), (16, 10.62), (32, 14.43))
        ),
        *(("GLM-5.2", 8, stages, 0, value) for stages, value in (([38, 40], 5.43), ([39, 39], 5.33), ([40, 38], 5.46))),
        *(("GLM-5.2", group, None, 1, value) for group, value in ((2, 1.86), (4, 3.38), (8, 5.91), (16, 9.38))),
    ],
)
def test_calculated_table(model: str, group: int, stages: list[int] | None, drafts: int, expected: float) -> None:
    assert multiplier(model, group, stages, drafts) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("stages", "measured"), [(None, 1_467_904 / 235_008), ([38, 40], 2_972_416 / 555_392)])
def test_measured_by_the_seed_guide(stages: list[int] | None, measured: float) -> None:
    assert multiplier("GLM-5.2", 8, stages) * KVPP_SHARE == pytest.approx(measured, rel=0.002)


@pytest.mark.parametrize(
    ("layers", "stages", "split", "expected"),
    [
        (61, 2, None, [31, 30]),
        (61, 4, None, [15, 15, 16, 15]),
        (78, 2, [38, 40], [38, 40]),
        (78, 2, [38, 41], None),
        (78, 2, [78], None),
        (4, 8, None, None),
    ],
)
def test_stages(layers: int, stages: int, split: list[int] | None, expected: list[int] | None) -> None:
    assert stage_layers(layers, stages, split) == expected


def test_indexers_of_glm_5_2() -> None:
    assert sorted(indexer_places(78, 21)) == [0, 1, 2, *range(6, 75, 4)]
    assert len(indexer_places(61, 61)) == 61
    assert len(indexer_places(60, 7)) == 7
    assert indexer_places(60, 0) == frozenset()


def test_a_group_of_one_gains_nothing() -> None:
    assert ratio(Layout((1,) * 61), [61], 1) == 1.0


def test_unknown_widths_count_layers() -> None:
    body = applied(
        copy.deepcopy(unshared(bases()["unified"])),
        [
            Set(
                "spec.model",
                {
                    "architecture": {"attention": "MLA", "layers": 61, "moe": True},
                    "source": {"hostPath": {"path": "/m"}},
                },
            )
        ],
    )
    deployment, _ = parse(body)
    assert deployment is not None
    resolved = resolve(deployment, DEFAULT)
    found = estimate(resolved, resolved.roles[0])
    assert found is not None
    assert (round(found.multiplier, 2), found.method) == (round(6.10 * KVPP_SHARE, 2), "uniform layers")
