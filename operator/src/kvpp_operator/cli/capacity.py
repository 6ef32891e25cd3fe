"""`kvpp capacity`: what KVPP is predicted to gain, by deployment and role."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from kvpp_operator.capacity import estimate
from kvpp_operator.cli.judging import Batch


@dataclass(frozen=True)
class Gain:
    """Tokens of KV cache with KVPP to tokens without, of one engine on the same memory."""

    namespace: str
    name: str
    role: str
    group: int
    """TP x PCP: the ranks that share the caches."""
    multiplier: float | None
    method: str | None


def gains(batch: Batch) -> Iterator[Gain]:
    """Roles that run KVPP; nothing is predicted where nothing is known of the model."""
    for plan in batch.plans:
        for role in plan.resolved.kvpp_roles:
            found = estimate(plan.resolved, role)
            multiplier = None if found is None else round(found.multiplier, 2)
            yield Gain(plan.resolved.namespace, plan.resolved.deployment.metadata.name, role.name,
                       role.role.parallelism.kvpp_group, multiplier, None if found is None else found.method)  # fmt: skip


def to_json(batch: Batch) -> str:
    return json.dumps([asdict(gain) for gain in gains(batch)], ensure_ascii=False, indent=2) + "\n"


def to_text(batch: Batch) -> str:
    head = ("DEPLOYMENT", "ROLE", "RANKS", "MULTIPLIER", "METHOD")
    rows = [head, *(row(gain) for gain in gains(batch))]
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(head))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) for cells in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def row(gain: Gain) -> tuple[str, ...]:
    multiplier = "unknown" if gain.multiplier is None else f"{gain.multiplier:.2f}"
    return f"{gain.namespace}/{gain.name}", gain.role, str(gain.group), multiplier, gain.method or ""
