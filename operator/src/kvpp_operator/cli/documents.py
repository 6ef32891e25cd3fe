"""Files, folders and stdin → YAML documents. What can't be read is said, with the place, and the rest goes on."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kvpp_operator.api.v1alpha1 import API_VERSION, KIND

SUFFIXES = (".yaml", ".yml", ".json")
LARGEST = 16 * 2**20
"""Bytes of one file: a deployment has at most 256 KiB, a folder of them may stand in one file."""


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # the C loader where libyaml is there
    """JSON's data model: no dates, no duplicate keys, keys are text."""


def resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """YAML 1.1 as kubectl reads it: no dates, and 12:30 is text, not a number to the base of 60."""
    kept: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items():
        plain = [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
        kept[first] = [(TEXT, SEXAGESIMAL), *plain]
    return kept


TEXT = "tag:yaml.org,2002:str"
SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?\Z")
Loader.yaml_implicit_resolvers = resolvers()


def mapping(loader: Any, node: yaml.MappingNode) -> dict[str, Any]:
    loader.flatten_mapping(node)
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        key = key if isinstance(key, str) else key_node.value if isinstance(key_node, yaml.ScalarNode) else str(key)
        if key in found:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", key_node.start_mark)
        found[key] = loader.construct_object(value_node, deep=True)
    return found


def number(loader: Any, node: yaml.ScalarNode) -> float:
    value = float(loader.construct_yaml_float(node))
    if not math.isfinite(value):
        raise yaml.constructor.ConstructorError(None, None, f"{node.value} is no JSON number", node.start_mark)
    return value


Loader.add_constructor("tag:yaml.org,2002:map", mapping)
Loader.add_constructor("tag:yaml.org,2002:float", number)


@dataclass(frozen=True)
class Document:
    file: str
    index: int
    body: Any

    @property
    def is_deployment(self) -> bool:
        """Meant as one: the kind decides, a wrong apiVersion is then a finding."""
        return isinstance(self.body, dict) and (
            self.body.get("kind") == KIND or self.body.get("apiVersion") == API_VERSION
        )


@dataclass(frozen=True)
class Unreadable:
    file: str
    reason: str


def read(places: Iterable[str]) -> Iterator[Document | Unreadable]:
    """`-` is stdin; a folder stands for every YAML and JSON file below it, in the order of their names."""
    for place in places:
        path = Path(place)
        if place == "-":
            yield from documents("-", sys.stdin.buffer.read(LARGEST + 1))
        elif not place:  # an unset variable of a script must not mean the whole working directory
            yield Unreadable(place, "an empty name is no file")
        elif path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
            if not files:
                yield Unreadable(place, f"the folder holds no file that ends in {', '.join(SUFFIXES)}")
            for file in files:
                yield from read_file(file)
        else:
            yield from read_file(path)


def read_file(path: Path) -> Iterator[Document | Unreadable]:
    try:
        with path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except OSError as problem:
        yield Unreadable(str(path), problem.strerror or str(problem))
        return
    yield from documents(str(path), content)


def documents(file: str, content: bytes) -> Iterator[Document | Unreadable]:
    if len(content) > LARGEST:
        yield Unreadable(file, f"it has more than {LARGEST} bytes")
        return
    index = 0
    try:
        for body in yaml.load_all(content.decode("utf-8-sig"), Loader):
            for item in unpacked(body):
                yield Document(file, index, item)
                index += 1
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        yield Unreadable(file, " ".join(str(problem).split()))
    except (RecursionError, ValueError, OverflowError) as problem:  # nested without end, or a number beyond all bounds
        yield Unreadable(file, f"it can't be read as YAML: {problem}")


def unpacked(body: Any) -> Iterator[Any]:
    """The members of a `List` as `kubectl get -o yaml` prints it; nothing for an empty document."""
    if isinstance(body, dict) and str(body.get("kind", "")).endswith("List") and isinstance(body.get("items"), list):
        yield from body["items"]
    elif body is not None:
        yield body
