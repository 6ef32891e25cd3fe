"""Where the weights come from: path in the container, volumes, environment."""

from __future__ import annotations

import posixpath
from typing import Any

from kvpp_operator.api.model import HubSource, Source
from kvpp_operator.plan.model import Volume, Weights

HUB_CACHE = "/var/cache/weights"


def weights(source: Source, place: str) -> Weights:
    """`place` is `model` or `draft`: it names the volume and the mount point `/mnt/<place>`."""
    mount = f"/mnt/{place}"
    if (claim := source.persistent_volume_claim) is not None:
        volume = {"persistentVolumeClaim": {"claimName": claim.claim_name, "readOnly": True}}
        return Weights(below(mount, claim.path), (Volume(place, volume, mount),))
    if (host := source.host_path) is not None:
        # type Directory: on a node without the weights the kubelet says so, instead of an empty folder made on the fly.
        volume = {"hostPath": {"path": host.path, "type": "Directory"}}
        return Weights(host.path, (Volume(place, volume, host.path),))
    if (image := source.image) is not None:
        volume = {"image": {"reference": image.reference, "pullPolicy": "IfNotPresent"}}
        return Weights(below(mount, image.path), (Volume(place, volume, mount),))
    if (hub := source.hugging_face) is not None:
        return hub_weights(hub, place, home="HF_HOME", token="HF_TOKEN")  # noqa: S106 - a variable's name
    hub = source.model_scope
    assert hub is not None  # rule MODEL002: exactly one source
    switch: dict[str, Any] = {"name": "VLLM_USE_MODELSCOPE", "value": "True"}
    return hub_weights(hub, place, home="MODELSCOPE_CACHE", token="MODELSCOPE_API_TOKEN", more=(switch,))  # noqa: S106


def hub_weights(hub: HubSource, place: str, *, home: str, token: str, more: tuple[dict[str, Any], ...] = ()) -> Weights:
    cache = f"{HUB_CACHE}/{place}"
    env: list[dict[str, Any]] = [{"name": home, "value": cache}, *more]
    if (secret := hub.token_secret_ref) is not None:
        env.append({"name": token, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}}})
    volume = Volume(f"{place}-cache", {"emptyDir": {}}, cache, read_only=False)
    return Weights(hub.repo, (volume,), tuple(env), hub.revision)


def below(mount: str, path: str | None) -> str:
    """A folder of a volume; `..` can't leave it."""
    inside = posixpath.normpath(f"/{path or ''}").lstrip("/")
    return f"{mount}/{inside}" if inside else mount


def last_part(source: Source) -> str | None:
    """The last part of the source's path or repository: what people call the model."""
    places = (
        source.persistent_volume_claim and source.persistent_volume_claim.path,
        source.host_path and source.host_path.path,
        source.hugging_face and source.hugging_face.repo,
        source.model_scope and source.model_scope.repo,
        source.image and source.image.path,
    )
    path = next((place for place in places if place), None)
    return posixpath.basename(path.rstrip("/")) or None if path else None
