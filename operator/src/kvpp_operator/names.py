"""Label keys and the names of what we make (reference: Kubernetes object names; the contract's naming rule)."""

from __future__ import annotations

import hashlib

DOMAIN = "serving.kvpp.io"
FIELD_MANAGER = "kvpp-operator"

MANAGED_BY = "app.kubernetes.io/managed-by"
COMPONENT = "app.kubernetes.io/component"
DEPLOYMENT = f"{DOMAIN}/deployment"
ROLE = f"{DOMAIN}/role"
ENGINE = f"{DOMAIN}/engine"
REVISION = f"{DOMAIN}/revision"
HEAD = f"{DOMAIN}/head"
"""On pods: "true" on the one that serves an engine's API; Services select it."""

ROUTER = "router"
"""Component, and last part of the names, of what a deployment's router has."""
POOL = f"{DOMAIN}/pool"
"""Label of a pool's own pods, and annotation of pods that join it; the value is its layout's identity."""

POOL_WAIT = "wait-for-pool"
"""The init container that holds an engine back until its pool answers."""

CONTAINER = "vllm"
"""The engine's container; podTemplate merges by this name."""

ENGINE_NAME_LIMIT = 52
"""LeaderWorkerSet appends `-<group>-<rank>` and a StatefulSet its revision hash to a 63-character label."""

CUT = 30
SHORT_ROLE = {"prefill": "p", "decode": "d", "unified": "u"}


def digest(text: str, length: int = 8) -> str:
    """A short stable hash in lower-case hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def stem(deployment: str) -> str:
    """The readable start of every name: a DNS-1035 label needs a letter first, a deployment's name may start with a digit."""
    readable = deployment[:CUT].rstrip("-")
    return readable if readable[0].isalpha() else f"k{readable}"[:CUT].rstrip("-")


def engine(deployment: str, role: str, index: int, revision: str) -> str:
    """`<name, cut to 30>-<p|d|u><index>-<hash>`, at most 52 characters; the hash covers the full name and the revision."""
    return f"{stem(deployment)}-{SHORT_ROLE[role]}{index}-{digest(f'{deployment}/{revision}')}"


def part(deployment: str, suffix: str) -> str:
    """An object that a deployment has once: `<name>-<suffix>`, cut and hashed when the name is long or starts with a digit."""
    plain = f"{deployment}-{suffix}"
    if len(plain) <= ENGINE_NAME_LIMIT and deployment[0].isalpha():
        return plain
    return f"{stem(deployment)}-{suffix}-{digest(deployment)}"


def revision(deployment: str, template_hash: str) -> str:
    """The name of a revision's ControllerRevision."""
    return f"{stem(deployment)}-{template_hash}-{digest(deployment)}"


def base_labels(deployment: str) -> dict[str, str]:
    """On every object we own; our watches filter on the first."""
    return {
        MANAGED_BY: FIELD_MANAGER,
        "app.kubernetes.io/name": "kvpp",
        "app.kubernetes.io/instance": deployment,
        "app.kubernetes.io/part-of": "kvpp",
        DEPLOYMENT: deployment,
    }


def role_selector(deployment: str, role: str) -> dict[str, str]:
    return {DEPLOYMENT: deployment, ROLE: role}


def engine_selector(deployment: str, role: str, index: int, revision_hash: str) -> dict[str, str]:
    return {**role_selector(deployment, role), ENGINE: str(index), REVISION: revision_hash}
