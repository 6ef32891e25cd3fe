"""Reading `podTemplate`: a PodSpec fragment may hold anything, so every step looks before it goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvpp_operator.names import CONTAINER
from kvpp_operator.resolve import Written


def specs(written: Written) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(path, fragment) of a place's pod template and of its worker part."""
    template = written.pod_template
    for path, holder in (
        (f"{written.path}.podTemplate", template),
        (f"{written.path}.podTemplate.worker", template.get("worker")),
    ):
        spec = holder.get("spec") if isinstance(holder, Mapping) else None
        if isinstance(spec, Mapping):
            yield f"{path}.spec", spec


def metadata(written: Written) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(path, metadata) of a place's pod template and of its worker part."""
    template = written.pod_template
    for path, holder in (
        (f"{written.path}.podTemplate", template),
        (f"{written.path}.podTemplate.worker", template.get("worker")),
    ):
        found = holder.get("metadata") if isinstance(holder, Mapping) else None
        if isinstance(found, Mapping):
            yield f"{path}.metadata", found


def entries(path: str, fragment: Mapping[str, Any], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(path, entry) of a list of maps in a fragment; what is no map is left to the rule about shapes."""
    found = fragment.get(name)
    for index, entry in enumerate(found if isinstance(found, list) else []):
        if isinstance(entry, Mapping):
            yield f"{path}.{name}[{index}]", entry


def containers(written: Written) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(path, container) of every mention of the engine's container."""
    for path, spec in specs(written):
        for place, container in entries(path, spec, "containers"):
            if container.get("name") == CONTAINER:
                yield place, container
