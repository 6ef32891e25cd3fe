"""One notation for a quantity, whatever the user wrote."""

from __future__ import annotations

import pytest
import specs
from hypothesis import given
from hypothesis import strategies as st

from kvpp_operator.configuration import Configuration
from kvpp_operator.pipeline import plan_one
from kvpp_operator.quantity import quantity
from kvpp_operator.render.quantities import canonical


@pytest.mark.parametrize(
    ("name", "written", "one"),
    [
        ("cpu", ["1", "1000m", 1, 1.0, "1.0", "1e0"], "1"),
        ("cpu", ["0.5", "500m", 0.5, ".5", "5e-1"], "500m"),
        ("cpu", ["0.1", "100m", "100000u"], "100m"),
        ("memory", ["1Gi", "1024Mi", "1073741824", 1073741824, "1.0Gi"], "1Gi"),
        ("memory", ["1.5Gi", "1536Mi", "1572864Ki"], "1536Mi"),
        ("memory", ["1G", "1000M", "1e9"], "976562.5Ki"),
        ("huawei.com/npu", ["8", 8, "8000m"], "8"),
        ("hugepages-2Mi", ["64Gi", "65536Mi"], "64Gi"),
        ("ephemeral-storage", ["0", 0, "0Gi"], "0"),
    ],
)
def test_notations_of_a_resource(name: str, written: list[object], one: str) -> None:
    found = {canonical({"limits": {name: text}})["limits"][name] for text in written}
    assert len(found) == 1
    assert quantity(found.pop()) == quantity(one)


def test_what_is_no_quantity_stays() -> None:
    odd = {"limits": {"cpu": "many", "memory": None, "x": True}, "labels": {"limits": "1000m", "sizeLimit": "1024Mi"}}
    assert canonical(odd) == odd


@given(
    st.integers(0, 10**7), st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "Gi"]), st.sampled_from(["cpu", "memory"])
)
def test_the_value_never_changes(number: int, unit: str, name: str) -> None:
    written = f"{number}{unit}"
    assert quantity(canonical({"requests": {name: written}})["requests"][name]) == quantity(written)


NOTATIONS = [
    ({"cpu": "1000m", "memory": "1.5Gi"}, {"cpu": "1", "memory": "1536Mi"}),
    ({"cpu": 0.5, "memory": "1024Mi"}, {"cpu": "500m", "memory": "1Gi"}),
]


@pytest.mark.parametrize(("one", "other"), NOTATIONS)
def test_another_notation_is_the_same_revision(one: dict[str, object], other: dict[str, object]) -> None:
    """So it restarts nothing."""

    def revision(requests: dict[str, object], shared_memory: str) -> str:
        template = {"spec": {"containers": [{"name": "vllm", "resources": {"requests": requests}}]}}
        body = specs.deployment(specs.UNIFIED, unified__podTemplate=template, unified__sharedMemory=shared_memory)
        planned = plan_one(body, Configuration())
        assert planned.revision is not None
        return planned.revision.hash

    assert revision(one, "128Gi") == revision(other, "131072Mi")
