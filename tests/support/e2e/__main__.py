"""`make e2e`: our own images on real kubelets, from build to teardown.

    python -m e2e [--only SCENARIO...] [--keep] [PYTEST ARGUMENT...]

Builds what is missing (programs, images: cached outside the tree), runs the scenarios inside namespaces of their own and
proves afterwards that the machine is as it was.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from e2e import images
from kvpp_devcluster import cache, components, controlgroups, hosts, isolation, lws, machine, programs
from kvpp_devcluster.processes import ProgramError

if TYPE_CHECKING:
    from collections.abc import Iterable

TESTS = Path(__file__).parents[2]
ISOLATION = TESTS / "devcluster" / "test_isolation.py"
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "e2e")
# The order is the order of running: every scenario leaves the cluster as it found it, the last one takes the operator away.
SCENARIOS = ("hosts", "preflight", "prefill_decode", "two_nodes", "host_network", "uninstall")
LIMIT_SECONDS = 1800
LOGS_KEPT = 4
SETTLE_SECONDS = 10.0
PROGRAMS = (*components.PROGRAMS, *hosts.PROGRAMS, *lws.PROGRAMS, "kubectl", "helm")
STARTED = time.monotonic()


def say(message: str) -> None:
    print(f"{time.monotonic() - STARTED:6.0f} s  {message}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="SCENARIO", choices=SCENARIOS, help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--keep", action="store_true", help="open a shell in the cluster before it ends")
    chosen, more = parser.parse_known_args()
    try:
        machine.prepare(images.PACKAGES, say=say)
        programs.ensure(PROGRAMS, say=say)
        archives = images.ensure(say)
    except ProgramError as problem:
        say(str(problem))
        return 2
    if not chosen.only and pytest("-q", ISOLATION):
        say("whatever ran inside could leave traces on this machine: nothing was started")
        return 1
    logs = new_logs()
    os.environ |= {"KVPP_E2E_IMAGES": str(archives), "KVPP_E2E_LOGS": str(logs), "KVPP_E2E_KEEP": "1" * chosen.keep}
    controlgroups.remove()  # of a run that was killed
    before = machine.footprint()
    code = isolation.run(scenarios(chosen.only or SCENARIOS, more, limited=not chosen.keep))
    left = left_over(before)
    for line in left:
        say(f"left over: {line}")
    say(f"nothing is left of the cluster; its logs are in {logs}" if not left else "the machine is not as it was")
    return code or (1 if left else 0)


def new_logs() -> Path:
    """A folder of this run's own: somebody else may run scenarios at the same time."""
    folder = cache.root() / "e2e"
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("logs-*"), key=lambda path: path.stat().st_mtime)[: -LOGS_KEPT + 1]:
        shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix="logs-", dir=folder))


def pytest(*arguments: str | Path) -> int:
    return subprocess.run([*PYTEST, *map(str, arguments)], check=False).returncode


def scenarios(names: Iterable[str], more: list[str], *, limited: bool) -> list[str]:
    files = [str(TESTS / "e2e" / f"test_{name}.py") for name in names]
    limit = ["timeout", "--foreground", "--kill-after=30", str(LIMIT_SECONDS)] if limited else []
    return [*limit, *PYTEST, "-v", "-s", "--tb=short", *more, *files]


def left_over(before: machine.Footprint) -> list[str]:
    """The kernel takes namespaces down in its own time: look again for a while."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while (left := machine.footprint().left_over(before)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return left


if __name__ == "__main__":
    sys.exit(main())
