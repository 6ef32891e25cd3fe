"""A named cluster that outlives the command which started it, and how other commands find and end it.

One supervising process holds a lock file as long as it lives and is the parent of everything else; whatever ends it
ends the cluster.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from kvpp_devcluster.cluster import LocalCluster, temporary_root
from kvpp_devcluster.processes import ProgramError, module_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kvpp_devcluster.nodes import NodeGroup

UP_SECONDS = 180.0
DOWN_SECONDS = 60.0


@dataclass(frozen=True)
class Place:
    """Where a named cluster keeps its folder; one per user and name."""

    name: str

    @property
    def directory(self) -> Path:
        return temporary_root() / f"kvpp-devcluster-{os.getuid()}-{self.name}"

    @property
    def lock(self) -> Path:
        return self.directory / "lock"

    @property
    def state(self) -> Path:
        return self.directory / "state.json"

    @property
    def log(self) -> Path:
        return self.directory / "supervisor.log"

    def is_up(self) -> bool:
        """Say whether a supervisor lives."""
        try:
            with self.lock.open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def read_state(self) -> dict[str, str]:
        """Read the environment that the supervisor wrote when the cluster was ready; empty before that."""
        try:
            state: dict[str, str] = json.loads(self.state.read_text())
        except FileNotFoundError:
            return {}
        return state

    def write_state(self, environment: dict[str, str]) -> None:
        partial = self.state.with_suffix(".half")
        partial.write_text(json.dumps(environment))
        partial.rename(self.state)

    def supervisor(self) -> int:
        """Read the process id of the supervisor; it means something only while `is_up`."""
        return int(self.lock.read_text())

    def make(self) -> None:
        """Make the folder; raises ProgramError when somebody else owns it, for its parent is everybody's."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        if self.directory.is_symlink() or self.directory.stat().st_uid != os.getuid():
            raise ProgramError(f"{self.directory} belongs to somebody else")


def supervise(place: Place, *, groups: Sequence[NodeGroup], with_lws: bool, say: Callable[[str], None]) -> None:
    """Run the cluster until SIGTERM or Ctrl-C; raises ProgramError when it is up already or a program dies."""
    signal.signal(signal.SIGTERM, _leave)
    place.make()
    with place.lock.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ProgramError(f"cluster {place.name} is up already") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        shutil.rmtree(place.directory / "cluster", ignore_errors=True)  # of a supervisor that was killed
        place.state.unlink(missing_ok=True)
        cluster = LocalCluster(groups=groups, with_lws=with_lws, directory=place.directory / "cluster", say=say)
        try:
            _run(place, cluster, say)
        finally:
            place.state.unlink(missing_ok=True)
            if not isinstance(sys.exception(), ProgramError):  # the log tells why
                shutil.rmtree(place.directory)


def _run(place: Place, cluster: LocalCluster, say: Callable[[str], None]) -> None:
    with cluster:
        try:
            kubectl = cluster.programs["kubectl"]
            place.write_state({**cluster.environment(), "PATH": str(kubectl.parent)})
            say(f"export KUBECONFIG={cluster.kubeconfig}")
            while True:
                time.sleep(1)
                cluster.require_running()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave(*_: object) -> NoReturn:
    raise SystemExit(0)


def up(place: Place, *, arguments: Sequence[str], say: Callable[[str], None]) -> None:
    """Start `up --foreground ARGUMENTS` in a process of its own and return when its cluster is ready."""
    if place.is_up():
        say(f"cluster {place.name} is up already")
        return
    place.make()
    command = [sys.executable, "-m", "kvpp_devcluster", "up", "--foreground", "--name", place.name, *arguments]
    with place.log.open("w") as log:
        supervisor = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=module_environment(), start_new_session=True
        )
    try:
        _wait_until_up(place, supervisor)
    except BaseException:
        supervisor.terminate()
        supervisor.wait(DOWN_SECONDS)
        raise


def _wait_until_up(place: Place, supervisor: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + UP_SECONDS
    while not place.state.exists():
        if supervisor.poll() is not None:
            raise ProgramError(f"the cluster did not start, {place.log}:\n{place.log.read_text().strip()}")
        if time.monotonic() > deadline:
            raise ProgramError(f"the cluster was not ready after {UP_SECONDS:.0f} s, see {place.log}")
        time.sleep(0.05)


def down(place: Place, *, say: Callable[[str], None]) -> None:
    """End a cluster and return when nothing of it is left; raises ProgramError if that takes over a minute."""
    if not place.is_up():
        shutil.rmtree(place.directory, ignore_errors=True)
        say(f"cluster {place.name} is not up")
        return
    os.kill(place.supervisor(), signal.SIGTERM)
    deadline = time.monotonic() + DOWN_SECONDS
    while place.is_up():
        if time.monotonic() > deadline:
            raise ProgramError(f"cluster {place.name} did not end within {DOWN_SECONDS:.0f} s")
        time.sleep(0.05)
