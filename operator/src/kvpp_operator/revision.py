"""A revision: one accepted spec's templates, kept in a ControllerRevision so that what runs, runs on.

An engine is always filled from the templates that its revision keeps, never rendered anew; only a change of the user's
spec makes a new revision (ADR 5).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kvpp_operator import names
from kvpp_operator.api.v1alpha1 import Spec, dump
from kvpp_operator.manifest import Manifest

FORMAT = 1
"""Of the stored data. A newer operator must be able to fill every format it ever wrote."""

WITHOUT_EFFECT_ON_ENGINES = ("router", "rollout", "suspend")
ROLE_FIELDS_WITHOUT_EFFECT = ("replicas", "kvPort")


@dataclass(frozen=True)
class Revision:
    hash: str
    spec_hash: str
    """Of what the user wrote, as far as it shapes engines."""
    templates: dict[str, Any]
    """Role → sealed template (render.template)."""
    number: int = 1
    """Newest is highest."""


def spec_hash(spec: Spec) -> str:
    """Identity of the user's wish: replicas, ports and what stands beside the engines left out, formatting and defaults too."""
    wish = {key: value for key, value in dump(spec).items() if key not in WITHOUT_EFFECT_ON_ENGINES}
    for role in ("unified", "prefill", "decode"):
        if role in wish:
            wish[role] = {key: value for key, value in wish[role].items() if key not in ROLE_FIELDS_WITHOUT_EFFECT}
    networking = {
        key: value for key, value in wish.pop("networking").items() if key not in ("kvPorts", "reservedPorts")
    }
    text = json.dumps({**wish, "networking": networking}, sort_keys=True, ensure_ascii=False)
    return names.digest(text, 16)


def to_manifest(revision: Revision, deployment: str, namespace: str) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": names.revision(deployment, revision.hash),
            "namespace": namespace,
            "labels": {**names.base_labels(deployment), names.REVISION: revision.hash},
        },
        "revision": revision.number,
        "data": {
            "format": FORMAT,
            "hash": revision.hash,
            "specHash": revision.spec_hash,
            "templates": revision.templates,
        },
    }


def from_manifest(manifest: Manifest) -> Revision | None:
    """None when the data is not ours to read: edited by hand, or of a later format."""
    data = manifest.get("data")
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        return None
    if not all(
        isinstance(data.get(key), kind) for key, kind in (("hash", str), ("specHash", str), ("templates", dict))
    ):
        return None
    return Revision(data["hash"], data["specHash"], data["templates"], manifest.get("revision", 0))


def newest(revisions: Iterable[Revision]) -> Revision | None:
    return max(revisions, key=lambda revision: revision.number, default=None)
