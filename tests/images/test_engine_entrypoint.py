"""The engine image's entrypoint over a folder that plays the image's root."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest

ENTRYPOINT = Path(__file__).parents[2] / "images" / "engine" / "entrypoint"
SCRIPTS = {
    "usr/local/Ascend/ascend-toolkit/set_env.sh": "export ASCEND_HOME_PATH=/toolkit\nexport LD_LIBRARY_PATH=/toolkit/lib:$LD_LIBRARY_PATH\n",
    "usr/local/Ascend/nnal/atb/set_env.sh": 'export ATB_HOME_PATH=/atb\n[ -n "$ZSH_VERSION" ] && exit 9\n',
}


def started(root: Path, *command: str, **environment: str) -> dict[str, str]:
    """The environment of the program that the entrypoint becomes."""
    env = {"PATH": os.environ["PATH"], "KVPP_ROOT": str(root), **environment}
    done = subprocess.run(
        [ENTRYPOINT, *(command or ("env", "-0"))], env=env, check=True, capture_output=True, text=True
    )
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if line)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, content in SCRIPTS.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(content, "utf-8")
    return tmp_path


def test_the_whole_environment(root: Path) -> None:
    found = started(root, LD_LIBRARY_PATH="/mine")
    assert (found["ASCEND_HOME_PATH"], found["ATB_HOME_PATH"]) == ("/toolkit", "/atb")
    assert found["LD_LIBRARY_PATH"] == "/toolkit/lib:/mine:/usr/local/lib"
    assert "LD_PRELOAD" not in found


@pytest.mark.parametrize("place", [f"usr/lib/{platform.machine()}-linux-gnu", "usr/lib64"])
def test_jemalloc_is_preloaded_where_the_image_has_it(root: Path, place: str) -> None:
    """The loader passes over what is no library, and says so on stderr."""
    library = root / place / "libjemalloc.so.2"
    library.parent.mkdir(parents=True)
    library.touch()
    assert started(root)["LD_PRELOAD"] == str(library)


def test_it_becomes_the_program_with_its_arguments_as_they_are(tmp_path: Path) -> None:
    words = ["a b", "$(x)", "'", "*", ""]
    printed = subprocess.run(
        [ENTRYPOINT, "sh", "-c", 'echo $PPID; printf "%s\\0" "$@"', "sh", *words],
        env={"PATH": os.environ["PATH"], "KVPP_ROOT": str(tmp_path)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    parent, _, rest = printed.stdout.partition("\n")
    assert int(parent) == os.getpid()  # no shell stays in between to swallow SIGTERM
    assert rest.split("\0")[:-1] == words
