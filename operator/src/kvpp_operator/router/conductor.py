"""Rounds: look at cluster, engines and proxy; bring the proxy in step; open or close the gate.

A round is short and starts when something happens, at the latest after a second. The canary runs beside.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

from kvpp_operator import names
from kvpp_operator.router import members, slices
from kvpp_operator.router.canary import Verdict
from kvpp_operator.router.proxy import ProxyError
from kvpp_operator.router.standing import PROXY_DOWN, STARTING, STOPPING, SWITCHING, Report, Standing, standing
from kvpp_operator.router.steps import EMPTY, Held, is_in_step, steps
from kvpp_operator.router.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvpp_operator.router.canary import Canary
    from kvpp_operator.router.gate import Gate
    from kvpp_operator.router.health import Watchman
    from kvpp_operator.router.members import Endpoint
    from kvpp_operator.router.metrics import Metrics
    from kvpp_operator.router.proxy import Proxy
    from kvpp_operator.router.settings import Settings
    from kvpp_operator.router.steps import Members
    from kvpp_operator.router.watch import State

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
JOINING_TICK_SECONDS = 0.25
"""While the proxy is not in step yet."""

PROXY_SILENCE_SECONDS = 60.0


class Conductor:
    """What is known, and what is done about it. Times are `time.monotonic`."""

    def __init__(
        self,
        settings: Settings,
        proxy: Proxy,
        watchman: Watchman,
        canary: Canary,
        *,
        gate: Gate,
        metrics: Metrics,
        changed: asyncio.Event,
    ) -> None:
        self._settings = settings
        self._proxy, self._watchman, self._canary = proxy, watchman, canary
        self._gate, self._metrics, self._changed = gate, metrics, changed
        self._endpoints: frozenset[Endpoint] | None = None
        self._admitted: frozenset[Endpoint] = frozenset()
        self._wish = settings.revision
        self._revision = ""
        self._held: Held | None = None
        self._proxy_lives = 0
        """Odd while the proxy is up; grows with every coming and going."""
        self._proxy_answered_at = time.monotonic()
        self._trials: dict[str, Trial] = {}
        self._trial: asyncio.Task[None] | None = None
        self._switching_since: float | None = None
        self._stopping = False
        self.published: Callable[[Report], None] = lambda _: None

    # What is told from outside.

    def slices_seen(self, state: State) -> None:
        self._endpoints = slices.endpoints(state.values())
        self._changed.set()

    def service_seen(self, state: State) -> None:
        for service in state.values():
            self._wish = (service["metadata"].get("labels") or {}).get(names.REVISION, self._wish)
        self._changed.set()

    def proxy_seen(self, up: bool) -> None:  # noqa: FBT001 - the event is the flag
        self._proxy_lives += 1
        if not up:
            self._metrics.proxy_restarts.inc()
            self._held = None
            self._gate.set(PROXY_DOWN)
        self._changed.set()

    def stop(self) -> None:
        """Say so to everybody who asks; requests still pass."""
        self._stopping = True
        self._changed.set()

    def handover_seen(self, handover: str) -> None:
        trial = self._trials.get(self._revision)
        if trial is not None and trial.verdict is not None and trial.verdict.passed:
            trial.verdict = Verdict(passed=True, handover=handover)

    def proxy_is_well(self) -> bool:
        """Whether it has answered lately; a proxy that never does is restarted by its probe."""
        return time.monotonic() - self._proxy_answered_at < PROXY_SILENCE_SECONDS

    @property
    def serving(self) -> Members:
        return self._held.members if self._held else frozenset()

    def report(self) -> Report:
        trial = self._trials.get(self._revision)
        handover = trial.verdict.handover if trial and trial.verdict else "unknown"
        shown = STOPPING if self._stopping else self._gate.standing
        return Report(self._explained(shown), self._revision, self.serving, handover)

    def _explained(self, shown: Standing) -> Standing:
        """Say why an older revision serves."""
        waiting = self._trials.get(self._wish)
        if (
            shown.is_ready
            and self._wish != self._revision
            and waiting
            and waiting.verdict
            and not waiting.verdict.passed
        ):
            return Standing(shown.reason, f"revision {self._wish} is held back: {waiting.verdict.message}")
        return shown

    # What is done.

    async def conduct(self) -> None:
        """Go round, for ever."""
        try:
            while True:
                await self._round()
                tick = TICK_SECONDS if self._gate.standing.is_ready else JOINING_TICK_SECONDS
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(tick):
                        await self._changed.wait()
                self._changed.clear()
        finally:
            if self._trial is not None:
                self._trial.cancel()

    async def _round(self) -> None:
        if self._endpoints is None:
            self._gate.set(STARTING)
            self.published(self.report())
            return
        now = time.monotonic()
        self._watchman.look_at(frozenset(endpoint for endpoint in self._endpoints if endpoint.serving))
        self._admitted = members.admitted(
            self._endpoints, self._watchman.health, self._admitted, self._settings.policy, now
        )
        switching = self._choose_revision(now)
        wanted = members.of_revision(self._admitted, self._revision)
        life = self._proxy_lives
        held = await self._bring_in_step(wanted) if life % 2 else None
        self._held = held if life == self._proxy_lives else None
        self._show(wanted, switching=switching)
        self._try_hand_over(wanted, now)

    def _choose_revision(self, now: float) -> bool:
        """Let the wished revision take over when it can; True while requests between prefill and decode hold it up."""
        target = members.serving_revision(self._wish, self._revision, self._admitted)
        if target == self._revision:
            self._switching_since = None
            return False
        serves = members.has_both_roles(self.serving)
        if serves and not self._passed(target):
            return False  # the old one goes on until the new one has proved itself
        if serves and self._gate.unanswered.present:
            # The proxy chooses P and D apart from each other: an old P must not meet a new D.
            since = self._switching_since = self._switching_since or now
            if now - since < self._settings.switch_seconds:
                return True
        log.info("revision %s takes over from %s", target, self._revision or "nobody")
        if self._revision:
            self._metrics.switches.inc()
        self._revision, self._switching_since = target, None
        self._trials = {revision: trial for revision, trial in self._trials.items() if revision in (target, self._wish)}
        return False

    async def _bring_in_step(self, wanted: Members) -> Held | None:
        try:
            held = (self._held or EMPTY).seen(await self._proxy.members())
            self._proxy_answered_at = time.monotonic()
            todo = steps(wanted, held)
            if todo.remove:
                log.info("remove %s", ", ".join(f"{member.role} {member.address}" for member in sorted(todo.remove)))
                held = held.removed(todo.remove).seen(await self._proxy.remove(todo.remove))
            if todo.add:
                await self._proxy.add(todo.add)
        except ProxyError as error:
            log.warning("proxy: %s", error)
            return None
        return held

    def _show(self, wanted: Members, *, switching: bool) -> None:
        trial = self._trials.get(self._revision, Trial())
        verdict = trial.verdict if self._settings.canary else Verdict(passed=True)
        before = self._gate.standing
        self._gate.set(SWITCHING if switching else standing(self._revision, wanted, self._held, verdict))
        if self._gate.standing != before:
            log.info("%s %s", self._gate.standing.reason.value, self._gate.standing.message)
        report = self.report()
        self._metrics.show(report.standing, wanted, self._held or EMPTY, report.handover)
        self.published(report)

    def _passed(self, revision: str) -> bool:
        trial = self._trials.get(revision)
        return not self._settings.canary or bool(trial and trial.verdict and trial.verdict.passed)

    def _try_hand_over(self, wanted: Members, now: float) -> None:
        """Start the canary where one is due: through the proxy for what serves, beside it for what shall serve next."""
        if not self._settings.canary or (self._trial is not None and not self._trial.done()):
            return
        target = members.serving_revision(self._wish, self._revision, self._admitted)
        chosen, through_proxy = members.of_revision(self._admitted, target), False
        if target == self._revision:
            if self._held is None or not is_in_step(wanted, self._held):
                return
            chosen, through_proxy = self._held.members, True
        trial = self._trials.setdefault(target, Trial())
        if members.has_both_roles(chosen) and trial.is_due(now):
            self._trial = asyncio.create_task(self._run_trial(trial, chosen, through_proxy=through_proxy))

    async def _run_trial(self, trial: Trial, chosen: Members, *, through_proxy: bool) -> None:
        verdict = await self._canary.verdict(chosen, through_proxy=through_proxy)
        trial.record(verdict, time.monotonic())
        log.log(
            logging.INFO if verdict.passed else logging.ERROR,
            "canary: %s",
            verdict.message or f"passed, hand-over {verdict.handover}",
        )
        self._changed.set()
