"""The init container's program, against real sockets."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvpp_operator.render.pool.config import script

ADDRESS = "127.0.0.1"


@pytest.fixture
def wait(tmp_path: Path, service: Any) -> Callable[..., Any]:
    program = tmp_path / "wait.py"
    for name in ("wait.py", "openssl.py"):
        (tmp_path / name).write_text(script(name))

    def wait(*arguments: str, **environment: str) -> Any:
        return service([sys.executable, str(program), *arguments], **environment)

    return wait


def test_it_waits_for_every_service_and_says_for_what(wait: Any, free_ports: Any, eventually: Any) -> None:
    first, second = free_ports(2)
    process = wait(f"{ADDRESS}:{first}", f"{ADDRESS}:{second}")
    eventually(lambda: f"{ADDRESS}:{first} does not answer yet: [Errno 111] Connection refused" in process.said())
    with socket.create_server((ADDRESS, first)):
        eventually(lambda: f"{ADDRESS}:{second} does not answer yet" in process.said())
        assert f"{ADDRESS}:{first} answers" in process.said()
        with socket.create_server((ADDRESS, second)):
            assert process.wait() == 0


def test_a_name_that_is_not_there_yet_is_no_error(wait: Any, eventually: Any) -> None:
    process = wait("no-such-service.invalid:5000")
    eventually(lambda: "no-such-service.invalid:5000 does not answer yet" in process.said())
    assert process.stop() != 0


@pytest.mark.parametrize(
    ("address", "filled"), [("10.0.0.7", "tcp://10.0.0.7:7000\n"), ("fd00::7", "tcp://[fd00::7]:7000\n")]
)
def test_it_fills_in_what_differs_from_pod_to_pod(address: str, filled: str, wait: Any, tmp_path: Path) -> None:
    source, target = tmp_path / "source.conf", tmp_path / "target.conf"
    source.write_text("tcp://$(POD_IP):$(LOCAL_SERVICE_PORT)\n")
    process = wait("--fill", str(source), str(target), POD_IP=address, LOCAL_SERVICE_PORT="7000")
    assert process.wait() == 0
    assert target.read_text() == filled
