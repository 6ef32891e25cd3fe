from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_configure(config: pytest.Config) -> None:
    # Does nothing when the conftest.py above has named the plugin already.
    config.pluginmanager.import_plugin("kvpp_devcluster.pytest_plugin")
