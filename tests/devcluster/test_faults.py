from __future__ import annotations

import pytest

from kvpp_devcluster import faults
from kvpp_devcluster.faults import PREFIX, Faults

HEALTHY = Faults()


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, HEALTHY),
        ({"start-delay": "0.5"}, Faults(start_delay_seconds=0.5)),
        ({"never-ready": "true"}, Faults(is_never_ready=True)),
        ({"never-ready": "false"}, HEALTHY),
        ({"run-for": "3"}, Faults(run_for_seconds=3.0)),
        ({"exit-code": "1"}, Faults(run_for_seconds=0.0, exit_code=1)),
        ({"exit-code": "1", "run-for": "3"}, Faults(run_for_seconds=3.0, exit_code=1)),
        ({"waiting": "ImagePullBackOff"}, Faults(waiting_reason="ImagePullBackOff")),
        ({"waiting": "A: b: c"}, Faults(waiting_reason="A", waiting_message="b: c")),
    ],
)
def test_annotations_say_what_happens(annotations: dict[str, str], expected: Faults) -> None:
    assert expected == faults.parse({PREFIX + name: value for name, value in annotations.items()})


def test_other_annotations_mean_nothing() -> None:
    assert faults.parse({"exit-code": "1", "example.com/exit-code": "1"}) == HEALTHY


def test_a_bad_number_is_named() -> None:
    with pytest.raises(ValueError, match=f"{PREFIX}run-for: 'soon' is not a number"):
        faults.parse({f"{PREFIX}run-for": "soon"})


@pytest.mark.parametrize(
    ("wish", "container", "is_init", "is_hit"),
    [
        (Faults(exit_code=1), "vllm", False, True),
        (Faults(exit_code=1), "preflight", True, False),
        (Faults(exit_code=1, container="preflight"), "preflight", True, True),
        (Faults(exit_code=1, container="preflight"), "vllm", False, False),
    ],
)
def test_faults_hit_the_application_or_the_named_container(
    wish: Faults, container: str, *, is_init: bool, is_hit: bool
) -> None:
    assert (wish if is_hit else HEALTHY) == wish.of(container, is_init=is_init)
