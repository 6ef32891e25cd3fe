"""Manifests → YAML or JSON on stdout."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import yaml

from kvpp_operator.cli.judging import Batch
from kvpp_operator.manifest import Manifest
from kvpp_operator.pipeline import wished_of


class Dumper(yaml.SafeDumper):
    """Block style, no aliases: a person reads it and a diff compares it."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class names it
        return True


def text(dumper: Dumper, value: str) -> yaml.Node:
    """A script or a file stands in the lines that it has."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


Dumper.add_representer(str, text)


def to_yaml(manifests: Iterable[Manifest]) -> str:
    return yaml.dump_all(
        manifests, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1_000_000, explicit_start=True
    )


def all_objects(batch: Batch) -> list[Manifest]:
    return [manifest for one in batch.judged for manifest in wished_of(one.planned)]


def as_yaml(batch: Batch) -> str:
    return to_yaml(all_objects(batch))


def as_json(batch: Batch) -> str:
    listing = {"apiVersion": "v1", "kind": "List", "items": all_objects(batch)}
    return json.dumps(listing, ensure_ascii=False, indent=2) + "\n"


FORMATS = {"yaml": as_yaml, "json": as_json}
