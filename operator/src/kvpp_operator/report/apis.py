"""APIs that some deployments need and a cluster may lack: what needs them, and how they are installed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Api:
    """An optional API of a cluster."""

    kind: str
    """Of the objects that we make there."""
    name: str
    release: str
    """Which releases work."""
    what: str
    install: str

    def __str__(self) -> str:
        return f"{self.what} need {self.name} {self.release}, which is not installed in this cluster. Install it: {self.install}"


LWS_OLDEST, LWS_TESTED, LWS_NEWEST = "v0.6.0", "v0.8.0", "v0.10.0"
"""v0.6.0 is the first that tells pods LWS_WORKER_INDEX (kubernetes-sigs/lws #416); the tests run v0.8.0."""

APIS = (
    Api("LeaderWorkerSet", "LeaderWorkerSet", f"{LWS_OLDEST} or newer", "Engines on several nodes",
        f"kubectl apply --server-side -f https://github.com/kubernetes-sigs/lws/releases/download/{LWS_NEWEST}/manifests.yaml"),
    Api("PodGroup", "Volcano", "(scheduling.volcano.sh/v1beta1)", "Gang-scheduled engines (spec.gang)",
        "https://volcano.sh/en/docs/installation, or Volcano of MindCluster or CCE; or remove spec.gang"),
    Api("ModelServer", "kthena", "(networking.serving.volcano.sh/v1alpha1)", "Routers of type Kthena",
        "https://kthena.volcano.sh, or choose another spec.router.type"),
    Api("ModelRoute", "kthena", "(networking.serving.volcano.sh/v1alpha1)", "Routers of type Kthena",
        "https://kthena.volcano.sh, or choose another spec.router.type"),
)  # fmt: skip
BY_KIND = {api.kind: api for api in APIS}


def missing(kinds: Iterable[str]) -> str:
    """What to say when objects of these kinds could not be made because their API is not there; each API once."""
    found = {api.name: str(api) for kind in kinds if (api := BY_KIND.get(kind)) is not None}
    return " ".join(found.values())
