from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from kvpp_operator.cli.app import app

Kvpp = Callable[..., Result]


@pytest.fixture
def kvpp() -> Kvpp:
    """Call the command line in this process: `kvpp("validate", "-", input=text)`."""
    runner = CliRunner()

    def call(*arguments: str, input: str | bytes | None = None) -> Result:  # noqa: A002 - as click calls it
        return runner.invoke(app, list(arguments), input=input, catch_exceptions=False)

    return call
