"""Child processes that never outlive this one, and free ports for them to listen on."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIFELINE = Path(__file__).with_name("lifeline.py")

# The kernel's PR_SET_PDEATHSIG fires when the *thread* that forked ends (prctl(2)), so every child is forked by this
# one, which lives as long as the interpreter: a test may restart the API server from a thread that soon ends.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")

# Below the ephemeral range (32768) no outgoing connection can take a port between our look and the program's bind,
# and below 20000 no port of the engines is in the way.
_PORTS = range(10240, 20000)


class ProgramError(RuntimeError):
    """A program ended when it should have run, or ended with an error; the text carries the end of its output."""


@dataclass(frozen=True)
class Process:
    """One running child: its name, its log file, and how to end it."""

    name: str
    log: Path
    popen: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def is_running(self) -> bool:
        return self.popen.poll() is None

    def last_words(self, lines: int = 15) -> str:
        """Return the end of the log, for error messages."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def require_running(self) -> None:
        """Raise ProgramError with the end of the log when the process has ended."""
        if not self.is_running:
            raise ProgramError(
                f"{self.name} ended with status {self.popen.returncode}, log {self.log}:\n{self.last_words()}"
            )

    def stop(self, *, grace_seconds: float = 5.0) -> None:
        """TERM, wait, KILL, wait, for the whole process group; afterwards the process is gone and reaped."""
        if self.is_running:
            os.killpg(self.pid, signal.SIGTERM)
            try:
                self.popen.wait(grace_seconds)
            except subprocess.TimeoutExpired:  # a kube-apiserver without its etcd ignores TERM for a minute
                os.killpg(self.pid, signal.SIGKILL)
        self.popen.wait()


def spawn(
    name: str,
    command: Sequence[str | Path],
    *,
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Process:
    """Start `command` with its output in `log`; it is killed when this process dies, however that happens."""
    argv = [sys.executable, "-I", "-S", str(LIFELINE), str(os.getpid()), *map(str, command)]

    def fork() -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            # A session of its own: Ctrl-C reaches us alone, who end the children in the right order.
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )

    return Process(name, log, _spawner.submit(fork).result())


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout_seconds: float | None = None,
) -> str:
    """Run `command` to its end and return its output; ProgramError carries the error output otherwise."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_seconds,
    )
    if done.returncode:
        words = " ".join(map(str, command))
        raise ProgramError(f"{words}: status {done.returncode}\n{done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def module_environment() -> dict[str, str]:
    """Return this process's environment, in which `python -m kvpp_devcluster` finds this very package."""
    path = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def free_port(address: str = "127.0.0.1") -> int:
    """Find a TCP port that nothing listens on at `address` right now; another program may still be faster."""
    for port in random.sample(_PORTS, k=100):
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                candidate.bind((address, port))
            except OSError:
                continue
            return port
    raise ProgramError(f"no free port on {address} between {_PORTS.start} and {_PORTS.stop}")
