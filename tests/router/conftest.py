"""The simulator's package lies beside its image, not in the operator's tree."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

sys.path.append(str(Path(__file__).parents[2] / "images" / "engine-simulator" / "src"))

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield session
