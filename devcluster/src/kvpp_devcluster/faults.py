"""What a pod's annotations ask of its simulated containers.

All under `devcluster.kvpp.io/`.  They are read again whenever the pod changes: `kubectl annotate` works on a live pod.

=====================  ================================================================================
start-delay            seconds from the start of the containers until they are ready
never-ready            "true": running, never ready
run-for                seconds until the containers end (then the pod's restartPolicy decides)
exit-code              with which they end; without run-for they end at once
termination-message    what they leave in /dev/termination-log
waiting                a reason such as ImagePullBackOff, or `Reason: message`: the containers do not start
container              name of the one container (or init container) that all this is about
stop-delay             seconds that the containers take to end when the pod is deleted
kill                   any new value kills the running containers once (exit code 137)
=====================  ================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "devcluster.kvpp.io/"


@dataclass(frozen=True)
class Faults:
    """One pod's wishes, parsed; the default is a healthy pod."""

    start_delay_seconds: float = 0.0
    is_never_ready: bool = False
    run_for_seconds: float | None = None
    exit_code: int = 0
    termination_message: str = ""
    waiting_reason: str = ""
    waiting_message: str = ""
    container: str = ""
    stop_delay_seconds: float = 0.0
    kill: str = ""

    def of(self, container: str, *, is_init: bool) -> Faults:
        """Give the part that concerns one container: all of it or, apart from `kill` by name, nothing."""
        concerns = container == self.container if self.container else not is_init
        return self if concerns else Faults()


def parse(annotations: Mapping[str, str]) -> Faults:
    """Read the annotations of a pod; raises ValueError with the annotation's name for what is not a number."""
    given = {key.removeprefix(PREFIX): value for key, value in annotations.items() if key.startswith(PREFIX)}

    def number(name: str) -> float:
        try:
            return float(given[name])
        except ValueError:
            raise ValueError(f"{PREFIX}{name}: {given[name]!r} is not a number") from None

    run_for = number("run-for") if "run-for" in given else None
    if run_for is None and "exit-code" in given:
        run_for = 0.0
    reason, _, message = given.get("waiting", "").partition(":")
    return Faults(
        start_delay_seconds=number("start-delay") if "start-delay" in given else 0.0,
        is_never_ready=given.get("never-ready") == "true",
        run_for_seconds=run_for,
        exit_code=int(number("exit-code")) if "exit-code" in given else 0,
        termination_message=given.get("termination-message", ""),
        waiting_reason=reason.strip(),
        waiting_message=message.strip(),
        container=given.get("container", ""),
        stop_delay_seconds=number("stop-delay") if "stop-delay" in given else 0.0,
        kill=given.get("kill", ""),
    )
