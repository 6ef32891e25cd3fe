"""What a router pod is told: command line for what is decided, environment for what only the pod knows, and secrets."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvpp_operator.router.members import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_LISTEN = "0.0.0.0:8000"
DEFAULT_PROXY = "http://127.0.0.1:8100"


@dataclass(frozen=True)
class Settings:
    namespace: str
    deployment: str
    service: str = ""
    """The router's own Service; its label `serving.kvpp.io/revision` says which revision serves."""
    revision: str = ""
    """Serves always, whatever a Service says."""
    report: str = ""
    """ConfigMap that router pods write their standing to; "": nowhere."""
    pod: str = ""
    listen: str = DEFAULT_LISTEN
    proxy: str = DEFAULT_PROXY
    canary: bool = True
    policy: Policy = field(default_factory=Policy)
    hold_seconds: float = 10.0
    """How long a request waits in front of a router that is not ready."""
    switch_seconds: float = 30.0
    """How long a new revision waits for requests that are between prefill and decode of the old one."""
    drain_delay_seconds: float = 5.0
    """After SIGTERM requests still come in until every node has heard of it."""
    shutdown_seconds: float = 120.0
    api_key: str = field(default="", repr=False)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="kvpp router-agent", description=__doc__)
    made.add_argument("--deployment", required=True, help="KVPPDeployment whose engines are served.")
    made.add_argument("--namespace", default="", help="Default: POD_NAMESPACE.")
    chosen = made.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--service", default="", help="Service whose revision label says which revision serves.")
    chosen.add_argument("--revision", default="", help="Revision to serve, fixed.")
    made.add_argument("--report", default="", metavar="CONFIGMAP", help="Write the standing of this pod there.")
    made.add_argument("--listen", default=DEFAULT_LISTEN, metavar="HOST:PORT")
    made.add_argument("--proxy", default=DEFAULT_PROXY, metavar="URL", help="The P/D proxy beside us.")
    made.add_argument(
        "--canary",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="Try a hand-over before the first readiness.",
    )
    made.add_argument("--health-hold", type=float, default=Policy.hold_seconds, metavar="SECONDS")
    made.add_argument(
        "--hold",
        type=float,
        default=Settings.hold_seconds,
        metavar="SECONDS",
        help="How long requests wait for readiness.",
    )
    made.add_argument("--switch-timeout", type=float, default=Settings.switch_seconds, metavar="SECONDS")
    made.add_argument("--drain-delay", type=float, default=Settings.drain_delay_seconds, metavar="SECONDS")
    made.add_argument("--shutdown-timeout", type=float, default=Settings.shutdown_seconds, metavar="SECONDS")
    return made


def settings_from(arguments: Sequence[str], env: Mapping[str, str]) -> Settings:
    """Parse; exits with 2 and a usage line on mistakes, as argparse does."""
    made = parser()
    given = made.parse_args(list(arguments))
    namespace = given.namespace or env.get("POD_NAMESPACE", "")
    if not namespace:
        made.error("--namespace or POD_NAMESPACE is needed")
    return Settings(
        namespace=namespace,
        deployment=given.deployment,
        service=given.service,
        revision=given.revision,
        report=given.report,
        pod=env.get("POD_NAME", ""),
        listen=given.listen,
        proxy=given.proxy,
        canary=given.canary,
        policy=Policy(hold_seconds=given.health_hold),
        hold_seconds=given.hold,
        switch_seconds=given.switch_timeout,
        drain_delay_seconds=given.drain_delay,
        shutdown_seconds=given.shutdown_timeout,
        api_key=env.get("VLLM_API_KEY", ""),
    )
