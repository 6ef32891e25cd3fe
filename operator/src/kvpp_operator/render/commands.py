"""A plan → the command of every engine process: what vLLM receives, before any escaping that a pod needs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvpp_operator.plan.model import EnginePlan, Plan, RolePlan
from kvpp_operator.render.argv import argv
from kvpp_operator.render.environment import environment
from kvpp_operator.render.tokens import PortRef, for_people


@dataclass(frozen=True)
class Command:
    namespace: str
    name: str
    role: str
    engine: int
    node_rank: int
    argv: tuple[str, ...]
    env: dict[str, str]
    kv_port: int | None
    kv_port_last: int | None

    def to_json(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace, "name": self.name, "role": self.role, "engine": self.engine,
            "nodeRank": self.node_rank, "argv": list(self.argv), "env": self.env, "kvPort": self.kv_port,
            "kvPortLast": self.kv_port_last,
        }  # fmt: skip

    def to_shell(self) -> str:
        """One line to paste. What only a pod knows is a shell variable; everything else is quoted literally."""
        variables = [f"{name}={quote(value, references=True)}" for name, value in self.env.items()]
        words = [quote(word, references=word in REFERENCES) for word in ("vllm", *self.argv)]
        return " ".join([*variables, *words])


REFERENCES = ("$(LWS_LEADER_ADDRESS)",)


def quote(word: str, *, references: bool) -> str:
    if references and word.startswith("$(") and word.endswith(")"):
        return f'"${{{word[2:-1]}}}"'
    return shlex.quote(word)


def commands(plan: Plan) -> Iterator[Command]:
    for engine in plan.engines:
        role = plan.role(engine.role)
        for rank in range(role.resolved.nodes):
            yield command(plan, role, engine, rank)


def command(plan: Plan, role: RolePlan, engine: EnginePlan, rank: int) -> Command:
    ports = engine.ports.numbers
    kv = engine.ports.kv
    return Command(
        namespace=plan.resolved.namespace,
        name=plan.resolved.name,
        role=engine.role,
        engine=engine.index,
        node_rank=rank,
        argv=tuple(for_people(token, ports) for token in argv(plan, role, rank)),
        env={variable["name"]: value_of(variable, ports) for variable in environment(plan, role)},
        kv_port=kv.first if kv else None,
        kv_port_last=kv.last if kv else None,
    )


def value_of(variable: dict[str, Any], ports: dict[str, int]) -> str:
    if "valueFrom" in variable:  # a secret or a fact of the pod: by name only
        return f"$({variable['name']})"
    value = variable.get("value", "")
    return for_people(value, ports) if isinstance(value, PortRef) else str(value)
