"""The main job, shown: examples applied to a cluster, the operator beside it, a table of what becomes of them.

    demo [--cluster local|current] [--keep] [--picture FILE.svg] FILE|DIR...

`local` is the control plane of this package with simulated NPU nodes. `current` is the cluster of your kubeconfig: only
the CRDs are installed there, and the operator runs here, against it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kvpp_devcluster.cluster import LocalCluster
from kvpp_devcluster.nodes import NodeGroup
from kvpp_devcluster.processes import ProgramError, run, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kvpp_devcluster.processes import Process

NAMESPACE = "kvpp-demo"
SETTLE_SECONDS = 120.0
SERVED_SECONDS = 30.0
NODES = (NodeGroup("npu-950", 10, {"huawei.com/npu": "8"}, {"node.kubernetes.io/npu.chip.name": "Ascend950DT"}),)
"""Enough for every example at once."""

WEIGHTS = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: kvpp-demo-weights}
spec:
  capacity: {storage: 2Ti}
  accessModes: [ReadOnlyMany]
  storageClassName: ""
  claimRef: {namespace: kvpp-demo, name: weights}
  hostPath: {path: /mnt/models}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: weights, namespace: kvpp-demo}
spec:
  accessModes: [ReadOnlyMany]
  storageClassName: ""
  volumeName: kvpp-demo-weights
  resources: {requests: {storage: 2Ti}}
"""


@dataclass(frozen=True)
class Place:
    """A cluster to show things on."""

    kubectl: Callable[..., str]
    environment: dict[str, str]
    logs: Path
    is_local: bool


def main(arguments: Sequence[str]) -> int:
    """Return 0 when every accepted example became Ready, 1 when one did not, 2 when something is missing."""
    parser = argparse.ArgumentParser(
        prog="kvpp_devcluster demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cluster", choices=("local", "current"), default="local")
    parser.add_argument("--keep", action="store_true", help="leave everything running until Ctrl-C")
    parser.add_argument("--picture", type=Path, help="also draw what came out, as SVG")
    parser.add_argument("files", nargs="+")
    chosen = parser.parse_args(arguments)
    console = Console()
    try:
        with place_for(chosen.cluster, console) as place:
            return show(place, [Path(file) for file in chosen.files], console, keep=chosen.keep, picture=chosen.picture)
    except ProgramError as problem:
        console.print(Text(str(problem), style="red"))
        return 2
    except KeyboardInterrupt:
        return 130


@contextlib.contextmanager
def place_for(name: str, console: Console) -> Iterator[Place]:
    if name == "current":
        yield current_cluster()
        return
    console.print(
        "Starting a control plane with simulated NPU nodes (the first time its programs are built: about 10 minutes)"
    )
    with LocalCluster(groups=NODES, with_lws=True, say=lambda line: console.print(Text(line))) as cluster:
        yield Place(cluster.kubectl, cluster.environment(), cluster.directory, is_local=True)


def current_cluster() -> Place:
    """The cluster that kubectl talks to."""

    def kubectl(*arguments: str, input: str | None = None) -> str:  # noqa: A002 - as subprocess.run calls it
        return run(["kubectl", *arguments], env={}, stdin=input)

    kubectl("version", "--output=json")
    return Place(kubectl, {}, Path(os.environ.get("TMPDIR", "/tmp")), is_local=False)  # noqa: S108 - only a log file


def show(place: Place, files: list[Path], console: Console, *, keep: bool, picture: Path | None) -> int:
    definitions = output_of("crd")
    place.kubectl("apply", "--server-side", "-f", "-", input=definitions)
    wait_until_served(place)
    place.kubectl(
        "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    )
    if place.is_local:
        place.kubectl("apply", "-f", "-", input=WEIGHTS)
    operator = start_operator(place)
    try:
        names = [name for file in files for name in apply_file(place, file, console)]
        verdict = watch(place, operator, names, console)
        if picture:
            draw(place, picture)
        if keep:
            console.print(
                f"Running until Ctrl-C: KUBECONFIG={place.environment.get('KUBECONFIG', '')} kubectl -n {NAMESPACE} get kvpp"
            )
            while True:
                operator.require_running()
                time.sleep(1)
        return verdict
    finally:
        operator.stop()
        if not place.is_local and not keep:
            place.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def wait_until_served(place: Place) -> None:
    """`kubectl wait` fails on an object that has no conditions yet, so ask for what is wanted: the API."""
    deadline = time.monotonic() + SERVED_SECONDS
    while True:
        try:
            place.kubectl("get", "kvppdeployments", "--all-namespaces")
        except ProgramError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def output_of(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "kvpp_operator", *arguments], check=True, text=True, capture_output=True
    ).stdout


def start_operator(place: Place) -> Process:
    command = [sys.executable, "-m", "kvpp_operator", "run", "--namespace", NAMESPACE, "--listen", "127.0.0.1:0"]
    return spawn("operator", command, log=place.logs / "kvpp-operator.log", env=place.environment)


def apply_file(place: Place, file: Path, console: Console) -> Iterator[str]:
    """Apply each document alone, as a user would; the API server's own refusal is shown."""
    for path in sorted(file.glob("*.yaml")) if file.is_dir() else [file]:
        for body in yaml.safe_load_all(path.read_text("utf-8")):
            console.print(Text(f"$ kubectl apply -f {path}", style="bold"))
            try:
                place.kubectl("apply", "--namespace", NAMESPACE, "-f", "-", input=yaml.safe_dump(body))
            except ProgramError as problem:
                console.print(Text(str(problem), style="red"))
                continue
            yield body["metadata"]["name"]


def watch(place: Place, operator: Process, names: list[str], console: Console) -> int:
    """A live table until every deployment is Ready or refused, or time is up."""
    deadline = time.monotonic() + SETTLE_SECONDS
    found: list[dict[str, Any]] = []
    with Live(console=console, refresh_per_second=4) as live:
        while time.monotonic() < deadline:
            operator.require_running()
            listing = json.loads(place.kubectl("get", "kvpp", "--namespace", NAMESPACE, "--output=json"))
            found = [item for item in listing["items"] if item["metadata"]["name"] in names]
            live.update(table(found))
            if len(found) == len(names) and all(is_settled(item) for item in found):
                break
            time.sleep(0.5)
    for item in found:
        if condition(item, "Accepted").get("status") == "False":
            console.print(Text(f"\n{item['metadata']['name']} is refused:", style="bold"))
            for finding in item["status"].get("findings", []):
                if finding["severity"] == "error":
                    console.print(
                        Text(
                            f"  {finding['path']}: {finding['message']}\n    fix: {finding['fix']} [{finding['rule']}]"
                        )
                    )
    console.print()
    kinds = ("kvpp", "deployments", *(["leaderworkersets"] if place.is_local else []), "services", "pods")
    for kind in kinds:
        console.print(Text(f"$ kubectl get {kind}", style="bold"))
        console.print(Text(place.kubectl("get", kind, "--namespace", NAMESPACE)), soft_wrap=True)
    waiting = [item for item in found if not is_settled(item)]
    ready = sum(condition(item, "Ready").get("status") == "True" for item in found)
    console.print(
        f"{ready} of {len(found)} deployments Ready, {len(found) - ready - len(waiting)} refused with reasons, {len(waiting)} not settled"
    )
    return 1 if waiting or not ready else 0


def draw(place: Place, picture: Path) -> None:
    """What a reader of the README sees: the two listings, as a terminal shows them."""
    console = Console(record=True, file=io.StringIO(), width=118)
    for kind in ("kvpp", "pods"):
        console.print(Text(f"$ kubectl get {kind}", style="bold"))
        console.print(Text(place.kubectl("get", kind, "--namespace", NAMESPACE)))
    # rich names a font on the Web; the reader's own monospace font will do.
    svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="make demo"), flags=re.DOTALL)
    picture.write_text(svg, "utf-8")


def condition(item: dict[str, Any], kind: str) -> dict[str, Any]:
    conditions: list[dict[str, Any]] = item.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), {})


def is_settled(item: dict[str, Any]) -> bool:
    current = item.get("status", {}).get("observedGeneration") == item["metadata"]["generation"]
    return current and (
        condition(item, "Ready").get("status") == "True" or condition(item, "Accepted").get("status") == "False"
    )


def table(found: list[dict[str, Any]]) -> Table:
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("DEPLOYMENT", "READY", "REASON", "ENGINES", "WHAT IT WAITS FOR"):
        shown.add_column(column, overflow="fold")
    for item in found:
        ready = condition(item, "Ready")
        roles = item.get("status", {}).get("roles", {})
        engines = " ".join(f"{role} {count['summary']}" for role, count in roles.items())
        style = {"True": "green", "False": "yellow"}.get(ready.get("status", ""), "")
        shown.add_row(item["metadata"]["name"], Text(ready.get("status", "Unknown"), style=style), ready.get("reason", ""), engines,
                      "" if ready.get("status") == "True" else ready.get("message", ""))  # fmt: skip
    return shown
