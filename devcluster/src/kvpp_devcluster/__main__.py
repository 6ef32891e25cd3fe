"""`python -m kvpp_devcluster`: the local cluster for people and shell scripts."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shlex
import sys
import time
from pathlib import Path

from kvpp_devcluster import background, cluster, hosts, isolation, kubeconfig, machine, nodes, programs
from kvpp_devcluster.background import Place
from kvpp_devcluster.processes import ProgramError, run


def main() -> int:
    if sys.argv[1:2] == ["demo"]:
        from kvpp_devcluster import demo  # noqa: PLC0415  (it needs rich, the cluster does not)

        return demo.main(sys.argv[2:])
    arguments = _parser().parse_args()
    try:
        return int(arguments.run(arguments) or 0)
    except ProgramError as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _build(arguments: argparse.Namespace) -> None:
    names = arguments.program or [*programs.CONTROL_PLANE, "lws", "helm"]
    for name, path in programs.ensure(names, say=_say).items():
        print(f"{name}\t{path}")


def _up(arguments: argparse.Namespace) -> None:
    place = Place(arguments.name)
    if arguments.foreground:
        background.supervise(place, groups=arguments.group or cluster.DEFAULT_GROUPS, with_lws=arguments.lws, say=_say)
        return
    wanted = [*programs.CONTROL_PLANE, *(["lws"] if arguments.lws else [])]
    programs.ensure(wanted, say=_say)  # here, where somebody watches the progress
    started = time.monotonic()
    groups = [word for group in arguments.group for word in ("--group", nodes.format_group(group))]
    background.up(place, arguments=[*groups, *(["--lws"] if arguments.lws else [])], say=_say)
    _say(f"cluster {place.name} is ready ({time.monotonic() - started:.1f} s)")
    _env(arguments)


def _down(arguments: argparse.Namespace) -> None:
    background.down(Place(arguments.name), say=_say)


def _env(arguments: argparse.Namespace) -> None:
    environment = _environment(Place(arguments.name))
    for name, value in environment.items():
        print(f"export {name}={shlex.quote(value)}" + (":$PATH" if name == "PATH" else ""))


def _status(arguments: argparse.Namespace) -> None:
    environment = _environment(Place(arguments.name))
    kubectl = Path(environment.pop("PATH")) / "kubectl"
    print(run([kubectl, "get", "nodes"], env=environment), end="")


def _environment(place: Place) -> dict[str, str]:
    environment = place.read_state() if place.is_up() else {}
    if not environment:
        raise ProgramError(f"cluster {place.name} is not up")
    return environment


def _nodes(arguments: argparse.Namespace) -> None:
    async def play() -> None:
        access = kubeconfig.read(Path(arguments.kubeconfig))
        async with nodes.SimulatedNodes(access, arguments.group, heartbeat_seconds=arguments.heartbeat) as simulated:
            await simulated.run()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(play())


def _hosts(arguments: argparse.Namespace) -> int:
    machine.prepare({}, say=_say)
    programs.ensure([*programs.CONTROL_PLANE, *hosts.PROGRAMS, *(["lws"] if arguments.lws else [])], say=_say)
    command = arguments.command or [os.environ.get("SHELL", "sh")]
    images = [word for image in arguments.image for word in ("--image", image)]
    lws = ["--lws"] if arguments.lws else []
    inside = [sys.executable, "-m", "kvpp_devcluster.hosts", "--count", str(arguments.count), *lws, *images, "--"]
    return isolation.run([*inside, *command])


def _group(text: str) -> nodes.NodeGroup:
    try:
        return nodes.parse_group(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kvpp_devcluster", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    group_help = "simulated nodes: name=NAME,count=N,resource=NAME:QUANTITY,label=KEY:VALUE (repeatable)"

    up = commands.add_parser("up", help="start a cluster in the background and print its environment")
    up.add_argument("--group", action="append", type=_group, default=[], help=group_help)
    up.add_argument("--lws", action="store_true", help="with the real LeaderWorkerSet controller")
    up.add_argument("--foreground", action="store_true", help="stay; Ctrl-C ends the cluster")
    up.set_defaults(run=_up)
    down = commands.add_parser("down", help="end a cluster; nothing of it is left")
    down.set_defaults(run=_down)
    status = commands.add_parser("status", help="show the nodes; exit status 1 when the cluster is not up")
    status.set_defaults(run=_status)
    env = commands.add_parser("env", help='for the shell: eval "$(python -m kvpp_devcluster env)"')
    env.set_defaults(run=_env)
    for command in (up, down, status, env):
        command.add_argument("--name", default="default", help="one user may have several clusters")

    real = commands.add_parser("hosts", help="run a command, or a shell, in a cluster of real hosts (root)")
    real.add_argument("--count", type=int, default=2, help="hosts; default: 2")
    real.add_argument("--lws", action="store_true", help="with the real LeaderWorkerSet controller")
    real.add_argument(
        "--image", action="append", default=[], metavar="ARCHIVE", help="image for every host (repeatable)"
    )
    real.add_argument("command", nargs="*", help="default: your shell")
    real.set_defaults(run=_hosts)

    build = commands.add_parser("build", help="build what is missing in the cache and print where the programs are")
    build.add_argument("program", nargs="*", help="default: what `up --lws` and Helm need")
    build.set_defaults(run=_build)

    play = commands.add_parser("nodes", help="play simulated nodes in any cluster (a test cluster, please)")
    play.add_argument("--kubeconfig", default=os.environ.get("KUBECONFIG"), help="default: $KUBECONFIG")
    play.add_argument("--group", action="append", type=_group, default=[], help=group_help)
    play.add_argument("--heartbeat", type=float, default=nodes.HEARTBEAT_SECONDS, help="seconds between renewals")
    play.set_defaults(run=_nodes)
    # For the help page; `main` hands its arguments over whole.
    commands.add_parser("demo", help="run examples with the operator and show what becomes of them", add_help=False)
    return parser


if __name__ == "__main__":
    sys.exit(main())
