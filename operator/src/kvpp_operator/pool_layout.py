"""What the blocks of a pool are good for: the layout that engines must share, and the service that remembers where they are.

Each pool of a deployment is written down (`render.pool.kept`). What differs between the present one and the one before says
why blocks are lost, before anything is rolled out.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kvpp_operator import names
from kvpp_operator.api.pooling import Memcache, Mooncake
from kvpp_operator.api.v1alpha1 import dump
from kvpp_operator.catalogue import pools

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kvpp_operator.api.model import Source
    from kvpp_operator.api.pooling import Master, MetaService
    from kvpp_operator.manifest import Manifest
    from kvpp_operator.resolve import Resolved, ResolvedRole

FORMAT = 1
"""Of what is written down; a newer operator must be able to read every format it ever wrote."""


@dataclass(frozen=True)
class Layout:
    """What two engines must have in common to read each other's blocks (launch facts 4.1, KVPP object rule).

    Keys carry neither the weights' revision nor KVPP, so a pool is never shared over a change of one of these.
    """

    backend: str
    version: str
    """Of the service that we run: its clients come with the engine's release; "" for an existing one."""
    layerwise: bool
    model: str
    quantization: str
    kvpp: bool
    tensor: int
    prefill_context: int
    pipeline: int
    pipeline_layers: str
    main_cache: str
    indexer_cache: str
    draft: str
    """Owners store the caches of their draft layers too."""
    block: str
    """Tokens of a block where the user says so: keys are hashes of blocks."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @cached_property
    def identity(self) -> str:
        """Short hash: part of the pool's name, and so of the engines' revision."""
        return names.digest(json.dumps(self.to_json(), sort_keys=True, ensure_ascii=False), 6)


WORDS = {
    "backend": "the backend",
    "version": "the backend's version",
    "layerwise": "layerwise loading",
    "model": "the weights",
    "quantization": "the quantization",
    "kvpp": "KVPP",
    "tensor": "tensor parallelism",
    "prefill_context": "prefill context parallelism",
    "pipeline": "pipeline parallelism",
    "pipeline_layers": "the layer partition",
    "main_cache": "the main cache's type",
    "indexer_cache": "the indexer cache's type",
    "draft": "the draft",
    "block": "the block size",
}


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Name what makes blocks of the old layout useless for the new one; empty: they fit.

    `("tensor parallelism 8 → 16",)`. Both as `Layout.to_json` gives them; a field that one lacks is passed over.
    """
    return tuple(
        f"{words} {shown(old[field])} → {shown(new[field])}"
        for field, words in WORDS.items()
        if field in old and field in new and old[field] != new[field]
    )


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) or "none"


def pooled_role(resolved: Resolved) -> ResolvedRole:
    """Decode takes no part in a pool (contract, pooling)."""
    return next(role for role in resolved.roles if role.name != "decode")


def layout_of(resolved: Resolved) -> Layout:
    """Read it from a spec that has a pool."""
    spec, role = resolved.spec, pooled_role(resolved)
    pooling, parallelism = spec.pooling, role.role.parallelism
    assert pooling is not None
    eight_bit = role.accelerator.chip.cache_type
    return Layout(
        backend=pooling.backend,
        version=service_version(resolved) if pools.pool_service(pooling) else "",
        layerwise=pooling.mooncake is not None and pooling.mooncake.layerwise is not None,
        model=weights_of(spec.model.source),
        quantization=spec.model.quantization or "",
        kvpp=role.kvpp,
        tensor=parallelism.tensor,
        prefill_context=parallelism.prefill_context,
        pipeline=parallelism.pipeline,
        pipeline_layers=",".join(map(str, parallelism.pipeline_layers or ())) or "even",
        main_cache=eight_bit if spec.kv_cache.main == "C8" else "model",
        indexer_cache={"C8": eight_bit, "C4": "mxfp4"}.get(spec.kv_cache.indexer, "model"),
        draft=role.speculative.method if role.speculative else "",
        block=block_size(role),
    )


def block_size(role: ResolvedRole) -> str:
    """As the user's arguments say it; the last one counts."""
    said = [argument.values for written in role.written for argument in written.arguments.of("--block-size")]
    return "".join(said[-1]) if said else ""


def service_version(resolved: Resolved) -> str:
    """Of the package that the service we run comes from; of Mooncake's in the engine's own image, the engine's."""
    pooling, release = resolved.spec.pooling, resolved.release.name
    if pooling is not None and pooling.backend == "Memcache":
        return pools.META_SERVICE_VERSION[release]
    return pools.MASTER_VERSION.get(release, f"of vLLM Ascend {resolved.spec.engine.version}")


def weights_of(source: Source) -> str:
    """Which weights, as far as the spec tells: `claim weights/GLM-5.2`, `repo org/name@main`."""
    if (claim := source.persistent_volume_claim) is not None:
        return f"claim {claim.claim_name}/{claim.path or ''}"
    if (host := source.host_path) is not None:
        return f"path {host.path}"
    if (image := source.image) is not None:
        return f"image {image.reference}/{image.path or ''}"
    hub = source.hugging_face or source.model_scope
    return f"repo {hub.repo}@{hub.revision or 'main'}" if hub is not None else ""


def pool_name(resolved: Resolved, layout: Layout) -> str:
    """Of all objects of the pool; it carries the layout's identity, so that another layout gets another pool."""
    return named(resolved.name, layout.identity)


def named(deployment: str, identity: str) -> str:
    return names.part(deployment, f"pool-{identity}")


META_KEY = "metaConfig "


def settings_of(resolved: Resolved) -> dict[str, str]:
    """What a service forgets its blocks over, because it starts anew or is another one, by the user's words for it."""
    pooling = resolved.spec.pooling
    assert pooling is not None
    memcache, master = pooling.memcache or Memcache(), (pooling.mooncake or Mooncake()).master
    asked: MetaService | Master = memcache.meta_service if pooling.backend == "Memcache" else master
    if asked.external is not None:
        return {"address": asked.external.address}
    if pooling.backend == "Memcache":
        own = {f"{META_KEY}{key}": value for key, value in memcache.meta_config.items()}
        own["metaService.replicas"] = "several" if asked.replicas > 1 else "one"
    else:
        own = {"master.args": " ".join(master.args)}
    return {
        **own,
        "image": "".join(
            part for part in dump(asked.image).values() if part not in ("Always", "IfNotPresent", "Never")
        ),
        "podTemplate": json.dumps(asked.pod_template.spec, sort_keys=True, ensure_ascii=False),
    }


@dataclass(frozen=True)
class KnownPool:
    """A pool that was written down."""

    name: str
    number: int
    layout: Mapping[str, Any]
    settings: Mapping[str, str]


def known_pools(owned: Iterable[Manifest]) -> Iterator[KnownPool]:
    """Find those among a deployment's objects; what is not ours to read says nothing."""
    for manifest in owned:
        data = manifest.get("data")
        if manifest["kind"] != "ControllerRevision" or not isinstance(data, dict) or data.get("format") != FORMAT:
            continue
        if all(isinstance(data.get(key), kind) for key, kind in (("pool", str), ("layout", dict), ("settings", dict))):
            yield KnownPool(data["pool"], manifest.get("revision", 0), data["layout"], data["settings"])


def predecessor(name: str, settings: Mapping[str, str], known: Iterable[KnownPool]) -> KnownPool | None:
    """Find the pool whose blocks the present one takes the place of; None: it is the first, or one that is come back to."""
    ordered = sorted(known, key=lambda pool: pool.number)
    newest = next((pool for pool in reversed(ordered) if pool.name == name), None)
    is_present = newest is not None and newest.settings == settings
    older = [pool for pool in ordered if not is_present or (newest is not None and pool.number < newest.number)]
    return older[-1] if older else None


def lost(old: KnownPool, layout: Layout, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Name what makes the old pool's blocks useless; empty: nothing is lost."""
    by_layout = changes(old.layout, layout.to_json())
    if by_layout:
        return by_layout
    keys = sorted(old.settings.keys() | settings.keys())
    differ = ((key, old.settings.get(key, ""), settings.get(key, "")) for key in keys)
    return tuple(
        key if key == "podTemplate" else f"{key} {before or 'default'} → {now or 'default'}"
        for key, before, now in differ
        if before != now
    )
