"""A command line read backwards: the KVPPDeployment that asks for it, for the operator's own rules to judge.

Only what the engine knows of itself comes in: one role, no ports, no pods.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvpp_engine_simulator.arguments import connectors
from kvpp_operator.catalogue import models

if TYPE_CHECKING:
    from kvpp_engine_simulator.arguments import EngineArguments, Json
    from kvpp_engine_simulator.settings import Settings

GRAPH_MODES = {
    "NONE": "Eager",
    "PIECEWISE": "Piecewise",
    "FULL_DECODE_ONLY": "FullDecodeOnly",
    "FULL_AND_PIECEWISE": "FullAndPiecewise",
    "FULL": "Full",
    "": "FullAndPiecewise",  # the default level -O2 (launch facts 1.2 rule 6)
}
METHODS = {"mtp": "MTP", "dspark": "DSpark", "eagle3": "Eagle3", "dflash": "DFlash"}
POOL_ROLES = {"kv_producer": "Producer", "kv_both": "Both"}
UNKNOWN_MODEL = {"attention": "MLA", "layers": 61, "moe": True, "kvLoraRank": 512, "ropeHeadDim": 64}
"""Weights whose name says nothing: shaped like the DeepSeek V3 family."""


def document(arguments: EngineArguments, settings: Settings) -> Json:
    """Write the smallest KVPPDeployment with this engine in it."""
    return {
        "apiVersion": "serving.kvpp.io/v1alpha1",
        "kind": "KVPPDeployment",
        "metadata": {"name": "engine"},
        "spec": {
            "model": model(arguments, settings),
            "engine": {"version": settings.version},
            "accelerator": {"chip": settings.chip, "devicesPerNode": min(arguments.parallel.local, 64)},
            "kvpp": {"enabled": arguments.kvpp},
            "kvCache": kv_cache(arguments),
            role_name(arguments): role(arguments),
            **pooling(arguments),
        },
    }


def model(arguments: EngineArguments, settings: Settings) -> Json:
    profile = settings.profile or profile_of(arguments)
    known: Json = {"profile": profile} if profile else {"architecture": UNKNOWN_MODEL}
    quantization = {"quantization": arguments.quantization} if arguments.quantization else {}
    return {
        **known,
        **quantization,
        "source": {"hostPath": {"path": "/weights"}},
        "maxModelLen": arguments.max_model_len,
    }


def profile_of(arguments: EngineArguments) -> str:
    """Find the longest name of the catalogue that the model's name starts with: GLM-5.2-W4A8C8 is a GLM-5.2."""
    candidates = [plain(name.rstrip("/").rpartition("/")[2]) for name in (*arguments.served_names, arguments.model)]
    found = [name for name in models.BY_NAME if any(candidate.startswith(plain(name)) for candidate in candidates)]
    return max(found, key=len, default="")


def plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def role_name(arguments: EngineArguments) -> str:
    handover = arguments.handover
    if handover is None:
        return "unified"
    return "prefill" if handover.is_producer else "decode"


def role(arguments: EngineArguments) -> Json:
    parallel = arguments.parallel
    layers = {"pipelineLayers": list(arguments.pipeline_layers)} if arguments.pipeline_layers else {}
    return {
        "parallelism": {
            "tensor": parallel.tensor,
            "pipeline": parallel.pipeline,
            "data": parallel.data,
            "prefillContext": parallel.prefill_context,
            "decodeContext": parallel.decode_context,
            "expert": arguments.expert,
            **layers,
        },
        "graphMode": GRAPH_MODES.get(arguments.graph_mode, "Full"),
        "additionalConfig": {key: value for key, value in arguments.additional.items() if key != "enable_kvpp"},
        **speculative(arguments),
    }


def speculative(arguments: EngineArguments) -> Json:
    config = arguments.speculative
    if not config:
        return {}
    name = str(config.get("method", ""))
    method = METHODS.get(
        "mtp" if name.endswith("mtp") else name
    )  # vLLM renames every alias of MTP (launch facts 1.2 rule 11)
    if method is None:
        return {}
    draft = {"draftModel": {"hostPath": {"path": "/draft"}}} if config.get("model") else {}
    return {"speculative": {"method": method, "tokens": config.get("num_speculative_tokens", 1), **draft}}


def kv_cache(arguments: EngineArguments) -> Json:
    indexer = {"auto": "Auto", "mxfp4": "C4"}.get(arguments.indexer_cache, "C8")
    return {"main": "Auto" if arguments.main_cache == "auto" else "C8", "indexer": indexer}


def pooling(arguments: EngineArguments) -> Json:
    parts = connectors(arguments.kv_transfer or {})
    store = next((part for part in parts if part.get("kv_connector") == "AscendStoreConnector"), None)
    if store is None or store.get("kv_role") not in POOL_ROLES:
        return {}
    extra: Json = dict(store.get("kv_connector_extra_config", {}))
    backend = str(extra.pop("backend", "mooncake"))
    if backend not in ("mooncake", "memcache"):
        return {}
    settings: Json = {}
    if backend == "mooncake" and extra.get("use_layerwise"):
        settings = {"layerwise": {"prefetchLayers": extra.get("layerwise_prefetch_layers", 2)}}
    return {
        "pooling": {
            "backend": backend.capitalize(),
            "role": POOL_ROLES[store["kv_role"]],
            "extraConfig": extra,
            backend: settings,
        }
    }
