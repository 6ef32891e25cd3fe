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


TEXT, BOOL, INT, FLOAT, MERGE = (f"tag:yaml.org,2002:{name}" for name in ("str", "bool", "int", "float", "merge"))
PLAIN = {
    BOOL: (r"y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF", "yYnNtTfFoO"),
    INT: (r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)", "-+0123456789"),
    FLOAT: (
        r"[-+]?((\.[0-9_]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
}
"""Plain words as kubectl reads them (go.yaml.in/yaml/v2, resolve.go), with the characters that they may begin with. A time is
text there, and 12:30 no number to the base of 60."""


def resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    read_otherwise = (*PLAIN, "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")
    kept = {
        first: [(tag, pattern) for tag, pattern in known if tag not in read_otherwise]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for tag, (pattern, beginnings) in PLAIN.items():
        for first in beginnings:
            kept.setdefault(first, []).append((tag, re.compile(rf"({pattern})\Z")))
    return kept


Loader.yaml_implicit_resolvers = resolvers()


def mapping(loader: Any, node: yaml.MappingNode) -> dict[str, Any]:
    """A key may stand once; what `<<` brings gives way to it."""
    own: set[str] = set()
    for key_node, _ in node.value:
        key = name_of(loader, key_node)
        if key in own and key_node.tag != MERGE:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", key_node.start_mark)
        own.add(key)
    loader.flatten_mapping(node)
    return {name_of(loader, key): loader.construct_object(value, deep=True) for key, value in node.value}


def name_of(loader: Any, node: yaml.Node) -> str:
    if node.tag == MERGE:
        return "<<"
    key = loader.construct_object(node, deep=True)
    return key if isinstance(key, str) else node.value if isinstance(node, yaml.ScalarNode) else str(key)


def truth(_: Any, node: yaml.ScalarNode) -> bool:
    return node.value[0] in "yYtT" or node.value.lower() == "on"


def number(loader: Any, node: yaml.ScalarNode) -> float | int | str:
    """`1.6e1` is 16 to an API server, whole as it is; a number beyond all bounds is text."""
    value = float(loader.construct_yaml_float(node))
    if math.isfinite(value):
        return int(value) if value.is_integer() else value
    if any(character.isdigit() for character in node.value):
        return str(node.value)
    raise yaml.constructor.ConstructorError(None, None, f"{node.value} is no JSON number", node.start_mark)


Loader.add_constructor("tag:yaml.org,2002:map", mapping)
Loader.add_constructor(FLOAT, number)
Loader.add_constructor(BOOL, truth)


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
