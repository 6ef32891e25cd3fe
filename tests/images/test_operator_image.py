"""The operator's image, built as `make images` builds it where no registry can be reached. Needs root and buildah."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from image import ROOT, Image, built

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    with built("operator") as made:
        yield made


def test_runs_the_operator_as_nobody_in_particular(image: Image) -> None:
    assert (image.config["User"], image.config["Entrypoint"], image.config["Cmd"]) == ("65532:65532", ["kvpp"], ["run"])


def test_command_line_works_on_a_read_only_root(image: Image) -> None:
    spec = (ROOT / "examples" / "1-one-node.yaml").read_text("utf-8")
    done = image.run("kvpp", "validate", "-o", "json", "-", stdin=spec)
    assert done.returncode == 0, done.stderr
    assert [document["accepted"] for document in json.loads(done.stdout)["documents"]] == [True]


def test_operator_starts_and_says_that_it_has_no_cluster(image: Image) -> None:
    done = image.run("kvpp", "run", "--listen", "127.0.0.1:0")
    assert done.returncode == 2, done.stderr
    assert "no way to the API server" in done.stderr + done.stdout


def test_its_user_can_change_nothing(image: Image) -> None:
    assert image.writable() == []


def test_no_program_gives_rights_away(image: Image) -> None:
    assert image.gives_rights_away() == []


def test_no_compiler_no_installer_no_cache(image: Image) -> None:
    programs = {"cc", "gcc", "g++", "clang", "ld", "make", "pip", "pip3", "apt", "apt-get", "curl", "wget"}
    places = [image.root / folder for folder in ("bin", "usr/bin", "usr/local/bin", "opt/kvpp/bin")]
    assert sorted(programs & {found.name for place in places if place.is_dir() for found in place.iterdir()}) == []
    leftovers = ("root/.cache", "build", "opt/kvpp/pip", "var/lib/apt/lists", "var/cache/apt/archives")
    files = [found for leftover in leftovers for found in (image.root / leftover).rglob("*") if found.is_file()]
    assert [str(found) for found in files if found.stat().st_size] == []  # apt leaves empty lock files


def test_nothing_of_the_build_machine_stays(image: Image) -> None:
    assert "PIP_INDEX_URL" not in image.inspected
    assert not (image.root / "etc/ssl/certs/ca-certificates.crt").exists()


def test_same_python_code_as_in_the_repository(image: Image) -> None:
    source = ROOT / "operator" / "src" / "kvpp_operator"
    shipped = image.root / "opt" / "kvpp" / "kvpp_operator"
    names = {str(path.relative_to(shipped)) for path in shipped.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert names == {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert [name for name in names if (shipped / name).read_bytes() != (source / name).read_bytes()] == []
