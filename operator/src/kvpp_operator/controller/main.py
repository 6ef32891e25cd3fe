"""The operator's process: logs, clock and identity come in here, and the exit code goes out."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kvpp_operator.cluster.kubeconfig import KubeconfigError
from kvpp_operator.controller.emit import Announcer
from kvpp_operator.controller.logs import set_up
from kvpp_operator.controller.reconcile import Reconciler
from kvpp_operator.controller.run import RunSettings, run

if TYPE_CHECKING:
    from kvpp_operator.configuration import Configuration

logger = logging.getLogger(__name__)


def run_operator(configuration: Configuration, *, namespaces: tuple[str, ...], listen: str, workers: int) -> int:
    """Run until a signal; 0 after an orderly end, 1 when going on was impossible, 2 when there is no cluster to talk to."""
    set_up()
    instance = f"{socket.gethostname()}-{os.getpid()}"
    reconciler = Reconciler(configuration, now, Announcer(instance))
    try:
        asyncio.run(run(reconciler, RunSettings(namespaces=namespaces, listen=listen, workers=workers)))
    except KubeconfigError as problem:
        logger.error("no way to the API server: %s", problem)  # noqa: TRY400 - the message says it all
        return 2
    except Exception:
        logger.exception("the operator can't go on")
        return 1
    return 0


def now() -> str:
    """RFC 3339 with seconds, as Kubernetes writes condition times."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
