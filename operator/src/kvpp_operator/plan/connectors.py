"""Which KV connectors a role runs, from P/D and pooling (seed guide, KV Transfer Configuration)."""

from __future__ import annotations

from typing import Any

from kvpp_operator.api.pooling import Pooling
from kvpp_operator.plan.model import Connector, KvRole
from kvpp_operator.resolve import Resolved, ResolvedRole, deep_merge

POOL_ROLES: dict[str, KvRole] = {"Producer": "kv_producer", "Both": "kv_both"}


def connectors(resolved: Resolved, role: ResolvedRole) -> tuple[Connector, ...]:
    """In the order of the engine's configuration: P/D hand-over first, then the pool. Decode takes no part in the pool."""
    chosen: list[Connector] = []
    if role.name == "prefill":
        chosen.append(Connector("MooncakeConnectorV2", "kv_producer", port=True))
    if role.name == "decode":
        chosen.append(Connector("MooncakeConnectorV2", "kv_consumer", port=True))
    if resolved.spec.pooling is not None and role.name != "decode":
        chosen.append(pool_connector(resolved.spec.pooling, role))
    return tuple(chosen)


def pool_connector(pooling: Pooling, role: ResolvedRole) -> Connector:
    """Keys and values of the seed guide's examples, one for each form."""
    layerwise = pooling.mooncake.layerwise if pooling.mooncake else None
    default = "Both" if role.name == "unified" or layerwise else "Producer"
    if pooling.backend == "Memcache":
        extra: dict[str, Any] = {"backend": "memcache", "lookup_rpc_port": "0", "use_layerwise": False}
        if role.name == "unified":
            # The seed sets it where the pool stands alone, and leaves it out under MultiConnector (launch facts 1.2 rule 25).
            extra["load_async"] = True
    elif layerwise is not None:
        extra = {"backend": "mooncake", "use_layerwise": True, "load_async": False}
        if layerwise.prefetch_layers is not None:
            extra["layerwise_prefetch_layers"] = layerwise.prefetch_layers
    else:
        extra = {"backend": "mooncake", "lookup_rpc_port": "0", "use_layerwise": False}
    return Connector(
        "AscendStoreConnector", POOL_ROLES[pooling.role or default], extra=deep_merge(extra, pooling.extra_config)
    )
