"""The canary of one revision over time: what it said last, and when to ask again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvpp_operator.router.canary import Verdict

BACKOFF_SECONDS = (2.0, 60.0)
"""After the first failure, and at most."""


@dataclass
class Trial:
    """Times are `time.monotonic`."""

    verdict: Verdict | None = None
    failures: int = 0
    again_at: float = 0.0

    def record(self, verdict: Verdict, now: float) -> None:
        shortest, longest = BACKOFF_SECONDS
        self.verdict = verdict
        self.failures = 0 if verdict.passed else self.failures + 1
        self.again_at = now + min(shortest * 2 ** (self.failures - 1), longest) if self.failures else now

    def is_due(self, now: float) -> bool:
        return self.verdict is None or (not self.verdict.passed and now >= self.again_at)
