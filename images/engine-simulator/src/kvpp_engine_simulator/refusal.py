"""What the engine's start-up code says no to.

Most of it is the operator's own rules with evidence `parser` or `check`, asked about the command line (`document`), and those
that the engine finds out while it builds the model.
What a KVPPDeployment has no words for, because the operator never renders it, stands here with its source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvpp_engine_simulator import flags
from kvpp_engine_simulator.arguments import connectors, engine_arguments
from kvpp_engine_simulator.document import document
from kvpp_engine_simulator.settings import SettingsError, settings_from
from kvpp_operator import versions
from kvpp_operator.configuration import DEFAULT
from kvpp_operator.rules import RULES, judge
from kvpp_operator.world import OFFLINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kvpp_engine_simulator.arguments import EngineArguments
    from kvpp_engine_simulator.settings import Settings

WHILE_LOADING = ("MODEL005", "PAR007", "PAR008", "PAR009")
"""Evidence `guide`, because nothing but an NPU runs that code (launch facts 1.2 rules 1 and 3, 6.2)."""

ENGINE_RULES = tuple(
    rule
    for rule in RULES
    if rule.severity == "error" and (rule.evidence in ("parser", "check") or rule.id in WHILE_LOADING)
)

PARSER_EXIT_CODE = 2
"""argparse's."""


class RefusedError(Exception):
    """The engine does not start with these arguments; the text is what it prints, with `exit_code` at the end."""

    def __init__(self, exit_code: int, lines: Iterable[str]) -> None:
        super().__init__("\n".join(lines))
        self.exit_code = exit_code


def prepare(arguments: Sequence[str], env: Mapping[str, str]) -> tuple[EngineArguments, Settings]:
    """Read and judge what stands after `vllm serve`. Raises `RefusedError`."""
    try:
        settings = settings_from(env)
    except SettingsError as error:
        raise RefusedError(PARSER_EXIT_CODE, [str(error)]) from None
    line = flags.read(arguments, settings.version)
    if line.problems:
        raise RefusedError(PARSER_EXIT_CODE, [f"vllm serve: error: {problem}" for problem in line.problems])
    try:
        engine = engine_arguments(line.model, line.flags, env)
        reasons = refusals(engine, settings, env)
    except (ValueError, TypeError, AttributeError) as error:  # JSON of another shape than the engine expects
        reasons = [str(error)]
    if reasons:
        raise RefusedError(1, [f"ValueError: {reason}" for reason in reasons])
    return engine, settings


def refusals(arguments: EngineArguments, settings: Settings, env: Mapping[str, str]) -> list[str]:
    """List why the engine does not start, in the order in which it would find out; empty when it does."""
    if settings.fault.kind == "refuse":
        return [settings.fault.text or "refused for the test"]
    own = [*topology(arguments), *connector_refusals(arguments, settings), *other(arguments, env)]
    found = judge(document(arguments, settings), DEFAULT, OFFLINE, ENGINE_RULES).findings
    return [
        *own,
        *(f"{finding.message} [{finding.rule}: {finding.source}]" for finding in found if finding.severity == "error"),
    ]


def topology(arguments: EngineArguments) -> Iterator[str]:
    """Launch facts 6.1: vLLM 0.30 ParallelConfig."""
    parallel = arguments.parallel
    if parallel.world % parallel.nodes:
        yield f"world_size {parallel.world} must be divisible by nnodes {parallel.nodes}"
    if not 0 <= parallel.node_rank < parallel.nodes:
        yield f"node_rank {parallel.node_rank} must be at least 0 and less than nnodes {parallel.nodes}"
    if arguments.headless and arguments.given.get("--api-server-count"):
        yield "--api-server-count cannot be used with --headless"


def connector_refusals(arguments: EngineArguments, settings: Settings) -> Iterator[str]:
    """Launch facts 1.2 rules 12, 13, 14, 15 and 16: the connector beside KVPP, and MooncakeConnectorV2 by itself."""
    config = arguments.kv_transfer
    if config is None:
        return
    handover = arguments.handover
    if handover is not None and handover.role not in ("kv_producer", "kv_consumer"):
        yield f"Mooncake scheduler requires exactly one KV transfer role, got {handover.role!r}"
    if not arguments.kvpp:
        return
    is_multi = config.get("kv_connector") == "MultiConnector"
    names = {part.get("kv_connector") for part in connectors(config)}
    release = versions.known(settings.version) or versions.nearest(settings.version)
    if names - {"MooncakeConnectorV2", "AscendStoreConnector"} or (is_multi and release < versions.LATEST):
        yield "KVPP PD disaggregation requires MooncakeConnectorV2."
    elif handover is not None and not handover.is_producer:
        yield "KVPP must be disabled on the decode-only node."


def other(arguments: EngineArguments, env: Mapping[str, str]) -> Iterator[str]:
    """Launch facts 1.2 rules 8 and 18."""
    if arguments.parallel.prefill_context > 1 and env.get("VLLM_USE_V2_MODEL_RUNNER", "0") != "1":
        yield (
            "PCP (Prefill Context Parallelism) is not supported by vLLM Ascend. "
            "Please set --prefill-context-parallel-size to 1. "
            f"Got prefill_context_parallel_size={arguments.parallel.prefill_context}."
        )
    if arguments.kvpp and (arguments.speculative or {}).get("num_speculative_tokens_per_batch_size"):
        yield "KVPP currently supports only a fixed number of speculative tokens."
