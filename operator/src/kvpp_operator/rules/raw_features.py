"""Features that only raw settings can ask for: connectors, dynamic drafts, KV events, elastic EP, LoRA."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvpp_operator.resolve import Resolved, ResolvedRole
from kvpp_operator.rules.base import Fact, rule
from kvpp_operator.rules.given import Argument, of_role
from kvpp_operator.rules.values import is_true, wins
from kvpp_operator.world import World

SUPPORTED = ("MooncakeConnectorV2", "AscendStoreConnector", "MultiConnector")


def flagged(role: ResolvedRole, *flags: str) -> Iterator[Argument]:
    return (argument for argument in of_role(role) if argument.flag in flags)


def connectors_in(settings: Any) -> Iterator[str]:
    """Names of the connectors in a kv-transfer-config, children of MultiConnector included."""
    if not isinstance(settings, dict):
        return
    if isinstance(settings.get("kv_connector"), str):
        yield settings["kv_connector"]
    extra = settings.get("kv_connector_extra_config")
    children = extra.get("connectors") if isinstance(extra, dict) else None
    for child in children if isinstance(children, list) else ():
        yield from connectors_in(child)


@rule(
    "KVT006",
    severity="error",
    evidence="check",
    source="seed guide, PD Disaggregation and Combining Connectors; launch facts 1.2 rules 12 and 16: the check compares the "
    "literal name",
    message="{value} does not go with KVPP: P/D takes MooncakeConnectorV2, a pool AscendStoreConnector, both MultiConnector, and no "
    "alias of them.",
    fix="and let the operator pick the connector",
)
def connector_without_kvpp(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A raw connector that does not go with KVPP."""
    for role in resolved.kvpp_roles:
        for argument in flagged(role, "--kv-transfer-config"):
            for name in connectors_in(argument.settings):
                if name not in SUPPORTED:
                    yield Fact(argument.path, name, argument.removal)


@rule(
    "KVT007",
    severity="error",
    evidence="guide",
    source="seed guide, Memcache Pooling: kv_consumer is outside the validated scope; contract, pooling: decode takes no part in it",
    message="Decode takes no part in a pool: its caches have another layout than KVPP's owners store.",
    fix="",
)
def pool_connector_on_decode(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Decode that joins a pool by raw arguments."""
    decode = resolved.role("decode")
    for argument in flagged(decode, "--kv-transfer-config") if decode is not None and resolved.kvpp_roles else ():
        if "AscendStoreConnector" in connectors_in(argument.settings):
            yield Fact(argument.path, "AscendStoreConnector", argument.removal)


DYNAMIC = ("num_speculative_tokens_per_batch_size", "enable_adaptive_verification")
FIXED = ("mtp", "dspark", "eagle3", "dflash")


@rule(
    "SPEC014",
    severity="error",
    evidence="check",
    source="seed guide, Speculative decoding: dynamic-K is not supported; launch facts 1.2 rules 8 and 9",
    message="KVPP drafts a fixed number of tokens with MTP, DSpark, Eagle3 or DFlash; {key} asks for something else.",
    fix="and use speculative with a fixed number of tokens",
)
def dynamic_drafts(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Dynamic-K, adaptive verification or another way of drafting, by raw arguments."""
    for role in resolved.kvpp_roles:
        for argument in flagged(role, "--speculative-config", "--spec-method", "--additional-config"):
            key = asks_for_dynamic(argument)
            if key:
                yield Fact(argument.path, argument.value, argument.removal, {"key": key})


def asks_for_dynamic(argument: Argument) -> str:
    if argument.flag == "--additional-config":
        scheme = argument.settings.get("dynamic_spec_config")
        return "dynamic_spec_config" if isinstance(scheme, dict) and scheme.get("method") else ""
    settings = {"method": argument.value} if argument.flag == "--spec-method" else argument.settings
    for key in DYNAMIC:
        if settings.get(key):
            return key
    method = settings.get("method")
    is_fixed = method is None or str(method).endswith("mtp") or method in FIXED
    return "" if is_fixed else f"method {method}"


@rule(
    "SPEC015",
    severity="error",
    evidence="guide",
    source="seed guide, Speculative decoding: dynamic-K is not supported; launch facts 1.2 rule 9: dynamic_spec_config.method is unset",
    message="dynamic_spec_config changes the number of draft tokens as it runs; KVPP supports a fixed number only.",
    fix="and use speculative with a fixed number of tokens",
)
def dynamic_drafts_by_key(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Dynamic-K by additional-config key."""
    for role in resolved.kvpp_roles:
        place = wins(role, "dynamic_spec_config", "method")
        if place is not None and place.value is not None:
            yield Fact(place.path, place.value, place.removal)


@rule(
    "POOL029",
    severity="error",
    evidence="guide",
    source="seed guide, Memcache Pooling: KV events are not supported with KVPP; launch facts 1.2 rule 26 and "
    "11.1 (KV events and write-back): with any pool",
    message="KV events are not supported with a pool of KVPP roles.",
    fix="",
)
def events_with_a_pool(resolved: Resolved, _: World) -> Iterator[Fact]:
    """KV events together with KVPP and a pool."""
    if resolved.spec.pooling is None:
        return
    for role in resolved.kvpp_roles:
        for argument in flagged(role, "--kv-events-config"):
            if is_true(argument.settings.get("enable_kv_cache_events", False)):
                yield Fact(argument.path, argument.value, argument.removal)


@rule(
    "PAR011",
    severity="error",
    evidence="check",
    source="vLLM 0.28 to 0.30 ParallelConfig: elastic EP needs EPLB; vLLM Ascend platform.py, _validate_eplb_config: EPLB is always "
    "asynchronous and then excludes elastic EP; launch facts 1.2 rule 33",
    message="Elastic EP does not start on Ascend: it needs EPLB, and the EPLB of vLLM Ascend excludes it.",
    fix="",
)
def elastic_expert_parallelism(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Elastic EP."""
    for role in resolved.roles:
        for argument in flagged(role, "--enable-elastic-ep"):
            if is_true(argument.value):
                yield Fact(argument.path, argument.flag, argument.removal)


@rule(
    "PCP010",
    severity="error",
    evidence="guide",
    source="vLLM Ascend 0.28 to 0.30, worker/v2/pcp_manager.py: LoRA is not supported yet; launch facts 11.1 (PCP manager)",
    message="PCP does not take LoRA adapters.",
    fix="or set prefillContext to 1",
)
def adapters_with_context(resolved: Resolved, _: World) -> Iterator[Fact]:
    """PCP with LoRA."""
    for role in resolved.roles:
        if role.prefill_context > 1:
            for argument in flagged(role, "--enable-lora"):
                yield Fact(argument.path, argument.flag, argument.removal)


@rule(
    "CACHE008",
    severity="error",
    evidence="guide",
    source="contract, kvCache.indexer: it is written as --attention-config; the parser takes the last one whole",
    message="--attention-config is written by the operator for kvCache.indexer; a second one would replace it.",
    fix="or leave kvCache.indexer at Auto",
)
def attention_config_twice(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A raw attention config beside a layout of the indexer's cache."""
    if resolved.spec.kv_cache.indexer == "Auto" or not resolved.at_least("0.29.0rc1"):
        return
    for role in resolved.roles:
        for argument in flagged(role, "--attention-config"):
            if "indexer_kv_dtype" not in argument.settings:
                yield Fact(argument.path, argument.value, argument.removal)
