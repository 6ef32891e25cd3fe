"""One pod on a simulated node, from binding to deletion: what a kubelet would do, without a container."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kvpp_devcluster import faults, podstatus
from kvpp_devcluster.api import STRATEGIC_MERGE, Api, Refused, warn
from kvpp_devcluster.faults import Faults

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from kvpp_devcluster.podstatus import Container

BACK_OFF_SECONDS = (1.0, 30.0)  # first and longest; a kubelet waits 10 s to 5 min, which no test wants to
JOB_SECONDS = 0.2  # how long containers run that are meant to end, unless run-for says otherwise
ENDED = ("Succeeded", "Failed")
KILLED = 137  # 128 + SIGKILL
TERMINATED = 143  # 128 + SIGTERM


def timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Exit:
    """How a container ended."""

    code: int
    message: str = ""

    def state(self, started: str) -> dict[str, Any]:
        why = {"reason": "Completed" if self.code == 0 else "Error", "message": self.message}
        return {"terminated": {"exitCode": self.code, "startedAt": started, "finishedAt": timestamp(), **why}}


class SimulatedPod:
    """Tasks change the containers' states; one writer brings the newest states to the API server.

    So a burst of changes is one request, and after an outage of the server the newest state is what gets written.
    """

    def __init__(self, api: Api, pod: dict[str, Any], addresses: Mapping[str, str]) -> None:
        self._api = api
        self._pod = pod
        self._addresses = addresses
        self._containers = podstatus.containers_of(pod)
        self._status: dict[str, Any] = {}  # the newest status known, from the watch or from our last write
        self._status_version = -1
        self._note_status(pod)
        self._faults = self._read_faults(Faults())
        self._one_write = asyncio.Lock()
        self._changed = asyncio.Event()
        self._poked = asyncio.Event()
        self._killed = asyncio.Event()
        self._task = self._start(self._run())

    @property
    def path(self) -> str:
        metadata = self._pod["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"

    def update(self, pod: dict[str, Any]) -> None:
        """Take the pod's new form from the watch: other annotations, a deletion."""
        is_deleted_now = "deletionTimestamp" in pod["metadata"] and "deletionTimestamp" not in self._pod["metadata"]
        self._pod = pod
        before, self._faults = self._faults, self._read_faults(self._faults)
        if self._faults.kill not in ("", before.kill):
            self._killed.set()
            self._killed = asyncio.Event()
        if self._faults != before:
            self._poked.set()
            self._poked = asyncio.Event()
            self._changed.set()
        if self._note_status(pod):
            self._changed.set()  # somebody else wrote: a readiness gate, or the controller that gave up the node
        if is_deleted_now:
            self._task.cancel()
            self._task = self._start(self._end())

    def stop(self) -> None:
        """Let go of the pod: it is gone, or its node is lost."""
        self._task.cancel()

    def _note_status(self, pod: dict[str, Any]) -> bool:
        """Keep the newest status; resource versions of one kind have an order (Kubernetes API concepts, since 1.35)."""
        version = int(pod["metadata"]["resourceVersion"])
        if version <= self._status_version:
            return False
        self._status, self._status_version = pod.get("status", {}), version
        return True

    def _start(self, life: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(life, name=self.path)
        task.add_done_callback(_report_crash)
        return task

    def _read_faults(self, before: Faults) -> Faults:
        try:
            return faults.parse(self._pod["metadata"].get("annotations", {}))
        except ValueError as error:
            warn(f"{self.path}: {error}")
            return before

    async def _run(self) -> None:
        if "deletionTimestamp" in self._pod["metadata"]:
            await self._end()
            return
        self._changed.set()
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(self._write_for_ever())
            await self._live()
            await self._write()
            writer.cancel()

    async def _live(self) -> None:
        policy = self._pod["spec"].get("restartPolicy", "Always")
        async with asyncio.TaskGroup() as tasks:
            sidecars = []
            for container in (c for c in self._containers if c.is_init):
                if container.is_sidecar:
                    sidecars.append(tasks.create_task(self._keep_running(container, "Always")))
                elif container.exit_code != 0:
                    again = "Never" if policy == "Never" else "OnFailure"
                    if not await self._keep_running(container, again):
                        break
            else:
                work = [c for c in self._containers if not c.is_init]
                await asyncio.gather(*(self._keep_running(container, policy) for container in work))
            for sidecar in sidecars:
                sidecar.cancel()

    async def _keep_running(self, container: Container, policy: str) -> bool:
        """Run a container until its restart policy says enough; True when it ended well."""
        back_off, longest = BACK_OFF_SECONDS
        if container.exit_code is not None and (
            policy == "Never" or (policy == "OnFailure" and not container.exit_code)
        ):
            return container.exit_code == 0  # seen so after a restart of this program
        while True:
            ended = await self._run_once(container)
            terminated = ended.state(container.state["running"]["startedAt"])
            container.is_ready = False
            if policy == "Never" or (policy == "OnFailure" and ended.code == 0):
                container.state = terminated
                self._changed.set()
                return ended.code == 0
            container.last_state = terminated
            container.state = {
                "waiting": {
                    "reason": "CrashLoopBackOff",
                    "message": f"back-off {back_off:.0f}s restarting failed container",
                }
            }
            self._changed.set()
            await asyncio.sleep(back_off)
            back_off = min(back_off * 2, longest)
            container.restart_count += 1

    async def _run_once(self, container: Container) -> Exit:
        while self._faults_of(container).waiting_reason:
            wish = self._faults_of(container)
            container.state = {"waiting": {"reason": wish.waiting_reason, "message": wish.waiting_message}}
            self._changed.set()
            await self._poked.wait()
        if not container.is_running:
            container.state = {"running": {"startedAt": timestamp()}}
            container.is_ready = False
        wish = self._faults_of(container)
        run_for = wish.run_for_seconds
        if run_for is None and not container.is_sidecar:
            if container.is_init:
                run_for = 0.0
            elif self._pod["spec"].get("restartPolicy", "Always") != "Always":
                run_for = JOB_SECONDS
        if run_for != 0:
            self._changed.set()
        delay = 0.0 if container.is_ready else wish.start_delay_seconds
        readiness = asyncio.create_task(self._follow_readiness(container, delay))
        try:
            async with asyncio.timeout(run_for):
                await self._until_killed(container)
            return Exit(KILLED, "killed by annotation")
        except TimeoutError:
            return Exit(wish.exit_code, wish.termination_message)
        finally:
            readiness.cancel()

    async def _follow_readiness(self, container: Container, delay: float) -> None:
        await asyncio.sleep(delay)
        while True:
            container.is_ready = not self._faults_of(container).is_never_ready
            self._changed.set()
            await self._poked.wait()

    async def _until_killed(self, container: Container) -> None:
        while True:
            await self._killed.wait()
            if self._faults.container in ("", container.name):
                return

    def _faults_of(self, container: Container) -> Faults:
        return self._faults.of(container.name, is_init=container.is_init)

    async def _write_for_ever(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(0)  # the tasks that react to the same event change their containers first
            self._changed.clear()
            await self._write()

    async def _write(self, final: str = "") -> None:
        async with self._one_write:
            await self._write_newest(final)

    async def _write_newest(self, final: str) -> None:
        status = podstatus.build(
            self._pod, self._status, self._containers, self._addresses, now=timestamp(), final=final
        )
        if podstatus.is_within(status, self._status):
            return
        metadata = self._pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": status}  # the uid keeps it from a namesake
        try:
            answer = await self._api.call("PATCH", f"{self.path}/status", patch, content_type=STRATEGIC_MERGE)
        except Refused as refused:
            if refused.status not in (404, 409):
                warn(f"{self.path}: {refused}")
            return
        self._note_status(answer)

    async def _end(self) -> None:
        """Play the graceful end: containers stop, the last status is written, the object goes."""
        metadata = self._pod["metadata"]
        grace = metadata.get("deletionGracePeriodSeconds", 0)
        wished = self._faults.stop_delay_seconds
        await asyncio.sleep(min(wished, grace))
        code = KILLED if wished > grace else TERMINATED
        for container in self._containers:
            if container.is_running:
                container.state = Exit(code).state(container.state["running"]["startedAt"])
                container.is_ready = False
        if self._status.get("phase") not in ENDED:
            await self._write(final="Failed")
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        try:
            await self._api.call("DELETE", self.path, body)
        except Refused as refused:
            if refused.status not in (404, 409):
                warn(f"{self.path}: {refused}")


def _report_crash(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        warn(f"{task.get_name()}: {error!r}")
