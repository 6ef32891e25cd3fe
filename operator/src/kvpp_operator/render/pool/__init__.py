"""A pool's own objects: MetaService or Mooncake master, what they need, and nothing for an existing one."""

from __future__ import annotations

from kvpp_operator.manifest import Manifest
from kvpp_operator.plan.model import Plan
from kvpp_operator.render.pool.master import master_objects
from kvpp_operator.render.pool.meta_service import meta_service_objects
from kvpp_operator.render.pool.policy import network_policy


def pool_objects(plan: Plan) -> list[Manifest]:
    """Empty without a pool, and for an existing one: that is never ours to touch."""
    if plan.pool is None or plan.pool.service is None:
        return []
    made = meta_service_objects if plan.pool.service.kind == "meta-service" else master_objects
    return [*made(plan), *network_policy(plan)]
