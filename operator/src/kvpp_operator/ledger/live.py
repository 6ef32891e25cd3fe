"""What live objects say of the ports they use: workloads and pods → claims.

Labels and owner references say whose they are; argv and environment say which ports, because those are what the
process binds. An engine of ours shows both blocks whole: `kv_port` and its sizes; HCCL's base, first of the host block,
and the API port, last of it (`ports.host_layout`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from kvpp_operator import names
from kvpp_operator.ledger.claim import HOST, KV, Claim, Holder, Ledger, Owner
from kvpp_operator.ports import SERVICE_PORTS, PortRange, kv_block_length

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from kvpp_operator.manifest import Manifest

OWNER_KIND = "KVPPDeployment"

POD_SPECS = (
    ("spec",),
    ("spec", "template", "spec"),
    ("spec", "leaderWorkerTemplate", "leaderTemplate", "spec"),
    ("spec", "leaderWorkerTemplate", "workerTemplate", "spec"),
)
SIZES = {
    "data": "data-parallel-size",
    "pipeline": "pipeline-parallel-size",
    "prefill_context": "prefill-context-parallel-size",
    "tensor": "tensor-parallel-size",
}


def holder_of(manifest: Manifest) -> Holder | None:
    """Read whose object this is; None when its labels don't say.

    A pod's uid of its deployment is "": its owner reference names a ReplicaSet or a LeaderWorkerSet's StatefulSet.
    """
    metadata = _map(manifest, "metadata")
    labels = _map(metadata, "labels")
    if names.POOL in labels:
        return _service_holder(manifest)
    index = labels.get(names.ENGINE)
    if not (labels.get(names.DEPLOYMENT) and labels.get(names.ROLE) and _is_number(index)):
        return None
    return Holder(_owner(metadata), str(labels[names.ROLE]), int(str(index)), str(labels.get(names.REVISION, "")))


def _service_holder(manifest: Manifest) -> Holder | None:
    """Of a pool's own pod or workload: the service in the place of a role, its layout in that of a revision."""
    metadata = _map(manifest, "metadata")
    labels = _map(metadata, "labels")
    found = next(_services(manifest), None)
    if found is None or not labels.get(names.DEPLOYMENT):
        return None
    return Holder(_owner(metadata), found[1]["name"], 0, str(labels[names.POOL]))


def _owner(metadata: dict[str, Any]) -> Owner:
    references = [reference for reference in metadata.get("ownerReferences") or [] if isinstance(reference, dict)]
    uids = [reference.get("uid") for reference in references if reference.get("kind") == OWNER_KIND]
    uid = next(iter(uids), None) or ""
    return Owner(str(metadata.get("namespace", "")), str(_map(metadata, "labels")[names.DEPLOYMENT]), str(uid))


class Sign(NamedTuple):
    """That an engine is there: its workload, or a pod of it, which knows the deployment's name but not its uid."""

    holder: Holder
    ports: frozenset[int] = frozenset()
    """Those of the hosts that it names."""


def signs(manifests: Iterable[Manifest]) -> frozenset[Sign]:
    """What these workloads and pods say of who is there; pods may be reduced to what the cache keeps of them."""
    return frozenset(Sign(holder, _ports(item)) for item in manifests if (holder := holder_of(item)) is not None)


def holders(found: Iterable[Sign], ledger: Ledger) -> frozenset[Holder]:
    """Who is there. A port that a pod names tells which of several namesakes it is of; without one it may be any."""
    found = tuple(found)
    unsure = [sign for sign in found if not sign.holder.owner.uid]
    known = {sign.holder for sign in found if sign.holder.owner.uid}
    for sign in unsure:
        namesakes = (claim for claim in ledger if claim.holder.without_uid == sign.holder)
        exact = {claim.holder for claim in namesakes if any(port in claim.block for port in sign.ports)}
        known |= exact or {sign.holder}
    return frozenset(known)


def _ports(manifest: Manifest) -> frozenset[int]:
    spec = _map(manifest, "spec")
    if spec.get("hostNetwork") is not True:
        return frozenset()
    containers = [container for container in spec.get("containers") or [] if isinstance(container, dict)]
    ports = [port for container in containers for port in container.get("ports") or [] if isinstance(port, dict)]
    return frozenset(_port(port.get("containerPort")) for port in ports)


def live_claims(manifests: Iterable[Manifest]) -> tuple[Claim, ...]:
    """Claims of everything on the host network in these workloads and pods, each once, in order.

    Objects that we can't read say nothing, and neither do headless ranks: their workload shows the engine's head.
    """
    return Ledger(tuple(claim for manifest in manifests for claim in _claims(manifest))).claims


def with_uids(live: Iterable[Claim], known: Iterable[Claim]) -> tuple[Claim, ...]:
    """Give claims of an unknown uid the uid that the same engine has with the same block among the known ones.

    The block tells apart what a name can't: pods of a deployment that was deleted, and its namesake that took over.
    """
    live = tuple(live)
    if all(claim.holder.owner.uid for claim in live):
        return live
    holders = {(claim.block, claim.holder.without_uid): claim.holder for claim in known if claim.holder.owner.uid}
    return tuple(claim._replace(holder=holders.get((claim.block, claim.holder), claim.holder)) for claim in live)


def kv_block(workload: Manifest) -> PortRange | None:
    """Read the kv block of an engine's workload, on either network; None when it has none."""
    blocks = (_kv_block(_flags(container.get("args"))) for _, container in _engines(workload))
    return next((block for block in blocks if block), None)


def _claims(manifest: Manifest) -> Iterator[Claim]:
    holder = holder_of(manifest)
    if holder is None:
        return
    for spec, container in _services(manifest):
        block = _service_block(container)
        if spec.get("hostNetwork") is True and block is not None:
            yield Claim(block, holder, HOST)
    for spec, container in _engines(manifest):
        if spec.get("hostNetwork") is not True:
            continue
        flags = _flags(container.get("args"))
        variables = [variable for variable in container.get("env") or [] if isinstance(variable, dict)]
        base = {variable.get("name"): variable.get("value") for variable in variables}.get("HCCL_IF_BASE_PORT")
        for purpose, block in ((KV, _kv_block(flags)), (HOST, _block(_port(base), _port(flags.get("port"))))):
            if block is not None:
                yield Claim(block, holder, purpose)


def _engines(manifest: Manifest) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Pod specs of a pod or workload that have an engine's container, with it."""
    return _with_container(manifest, (names.CONTAINER,))


def _services(manifest: Manifest) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The same of a pool's service."""
    return _with_container(manifest, SERVICE_PORTS)


def _with_container(manifest: Manifest, wanted: Collection[str]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for path in POD_SPECS:
        spec = _map(manifest, *path)
        for container in spec.get("containers") or []:
            if isinstance(container, dict) and container.get("name") in wanted:
                yield spec, container


def _service_block(container: dict[str, Any]) -> PortRange | None:
    """Ports that a service's container names, which are one behind the other."""
    parts = {port.part for port in SERVICE_PORTS[container["name"]]}
    named = [port for port in container.get("ports") or [] if isinstance(port, dict) and port.get("name") in parts]
    numbers = [_port(port.get("containerPort")) for port in named]
    return _block(min(numbers), max(numbers)) if len(numbers) == len(parts) else None


def _kv_block(flags: dict[str, str]) -> PortRange | None:
    first = _kv_port(flags.get("kv-transfer-config", ""))
    sizes = {size: _port(flags.get(flag)) or 1 for size, flag in SIZES.items()}
    return _block(first, first + kv_block_length(**sizes) - 1)


def _block(first: int, last: int) -> PortRange | None:
    try:
        return PortRange(first, last)
    except ValueError:
        return None


def _flags(args: object) -> dict[str, str]:
    """Parse `--flag value` and `--flag=value`; the last one counts, as in the engine's parser."""
    flags: dict[str, str] = {}
    words = [str(word) for word in args] if isinstance(args, list) else []
    for index, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            following = words[index + 1] if index + 1 < len(words) else ""
            flags[name.replace("_", "-")] = value if equals else following
    return flags


def _kv_port(text: str) -> int:
    """Find `kv_port` in a --kv-transfer-config, on the connector itself or on a child of MultiConnector; 0: none."""
    try:
        config = json.loads(text)
    except ValueError:
        return 0
    connectors = _map(config, "kv_connector_extra_config").get("connectors")
    children = connectors if isinstance(connectors, list) else []
    ports = (_port(_map(connector).get("kv_port")) for connector in (config, *children))
    return next((port for port in ports if port), 0)


def _is_number(value: object) -> bool:
    return str(value).isascii() and str(value).isdecimal()


def _port(value: object) -> int:
    return int(str(value)) if _is_number(value) else 0


def _map(node: object, *path: str) -> dict[str, Any]:
    for step in path:
        node = node.get(step) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}
