"""docs/seed-coverage.md: every line of the user guide's tables and instructions → rules, tests, examples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvpp_operator.docs.cases import cases
from kvpp_operator.docs.table import code, table
from kvpp_operator.rules import RULES

HEAD = """# Coverage of the KVPP user guide

What becomes of each line of the guide that this operator follows (vLLM Ascend, "KVPP (Experimental)"). A rule judges the
line; its tests are the cases of `tests/rules/cases/<RULE>.yaml`, failing and passing ones. The column "must pass" names
cases that prove the supported form is accepted. `make generate` writes this page from the rules and their cases; do not
edit it.
"""


@dataclass(frozen=True)
class Line:
    """One line of the guide. `passing` are cases by `RULE: name` that must be accepted; `tests` are other tests."""

    text: str
    rules: tuple[str, ...]
    passing: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


GOLDEN = "tests/render/test_golden.py"
CAPACITY = "tests/rules/test_capacity.py"
ONE, PD, TWO, MEMCACHE, LAYERWISE = (
    f"examples/{name}.yaml"
    for name in ("1-one-node", "2-prefill-decode", "3-two-node-prefill", "4-memcache-pool", "5-mooncake-layerwise")
)

SECTIONS: dict[str, tuple[Line, ...]] = {
    "Supported Models": (
        Line("MLA: supported, non-hybrid", ("MODEL001", "MODEL004", "MODEL005"), ("MODEL005: DeepSeek-V3", "MODEL004: MLA")),
        Line("SFA: supported, non-hybrid, such as GLM-5.2", ("MODEL001", "MODEL004", "MODEL005"), ("MODEL005: GLM-5.2",), (ONE,)),
        Line("Requirements of hardware, quantization and backend", ("SCHEMA005", "CACHE001", "CACHE002", "ENV002", "NODE007"),
             ("CACHE001: SFA", "ENV002: 0")),
    ),
    "Supported Features": (
        Line("Graph mode: eager and PIECEWISE, no full graphs", ("GRAPH001", "GRAPH002", "PCP001", "PCP002", "ARG004"),
             ("GRAPH001: eager", "GRAPH001: piecewise"), (ONE,)),
        Line("TP: caches are assigned by layer within a group", ("PAR001", "NODE004", "GAIN001", "GAIN002"),
             ("PAR001: two ranks", "GAIN001: eight ranks"), (ONE,)),
        Line("EP: requires an MoE model that supports EP", ("PAR005", "PAR011"), ("PAR005: MoE",), (ONE, PD)),
        Line("PP: eager or PIECEWISE; output-mismatch caveat", ("PAR006", "PAR007", "PAR008", "PAR009", "PAR010", "CACHE007"),
             ("PAR008: 38/40", "PAR007: as many"), (TWO,)),
        Line("Chunked prefill: can be combined", ("ARG004",), ("ARG004: by fields", "ARG004: switched off by fields"), (PD,), (GOLDEN,)),
        Line("Prefix caching: can be combined", ("ARG004",), ("ARG004: by fields", "ARG004: switched off by fields"), (PD,), (GOLDEN,)),
        Line("Asynchronous scheduling: can be combined", ("ARG004", "SCHED005"), ("ARG004: by fields", "SCHED005: switched off"),
             (PD,), (GOLDEN,)),
        Line("LI-C8 and SFA-C8 layouts", ("CACHE001", "CACHE002", "CACHE003", "CACHE004", "CACHE005", "CACHE008", "ADD007"),
             ("CACHE001: SFA", "CACHE002: SFA"), (PD,), (GOLDEN,)),
        Line("Speculation with fixed K: MTP, DSpark, Eagle3",
             ("SPEC001", "SPEC002", "SPEC003", "SPEC005", "SPEC006", "SPEC007", "SPEC008", "SPEC009", "SPEC012", "SPEC013"),
             ("SPEC001: MTP", "SPEC001: 0.30.0rc1", "SPEC002: latest"), (PD,)),
        Line("Draft caches stay apart from the target's", ("SPEC004", "SPEC010"), ("SPEC004: apart", "SPEC010: both")),
        Line("Dynamic-K is not supported", ("SPEC014", "SPEC015"), ("SPEC014: fixed", "SPEC015: unset")),
        Line("PCP: caches are shared across PCP x TP ranks",
             ("PAR001", "PCP001", "PCP002", "PCP003", "PCP004", "PCP005", "PCP006", "PCP007", "PCP008", "PCP009", "PCP010", "ENV001"),
             ("PAR001: PCP counts", "PCP001: SFA, eager")),
        Line("DCP: not supported", ("PAR002", "PAR003", "PAR004", "CACHE006"), ("PAR002: one, said",)),
        Line("P/D: MooncakeConnectorV2, KVPP on prefill only", ("ROLE001", "ADD005", "KVT001", "KVT002", "KVT006", "ARG008"),
             ("ROLE001: prefill and decode",), (PD,), (GOLDEN,)),
        Line("KV pooling: memcache, kv_producer or kv_both, whole blocks", ("POOL004", "POOL006", "POOL020", "SCHEMA005"),
             ("POOL004: layerwise", "POOL006: Producer", "POOL006: Both on 0.29"), (MEMCACHE,)),
        Line("Mooncake layerwise pooling: experimental", ("POOL002", "POOL003", "POOL020"), ("POOL002: latest",), (LAYERWISE,)),
    ),
    "Usage": (
        Line("enable_kvpp through --additional-config, merged into what is there", ("ADD001", "ADD004", "ADD005", "ADD006"),
             ("ADD001: known", "ADD005: true where it is on"), (ONE,), (GOLDEN,)),
        Line("The group follows TP x PCP, no separate setting", ("PAR001", "ADD003"), ("PAR001: two ranks", "ADD003: sizes")),
        Line("PIECEWISE or eager, chosen explicitly", ("GRAPH001", "ARG004"), ("GRAPH001: eager", "GRAPH001: piecewise"), (ONE,), (GOLDEN,)),
        Line("FULL_DECODE_ONLY is not supported with KVPP", ("GRAPH001",), ("GRAPH001: full on decode",)),
        Line("Hybrid models are not supported", ("MODEL004", "MODEL005"), ("MODEL004: MLA",)),
        Line("Token budget and number of sequences", ("ARG004", "SIZE001", "SIZE002"), ("ARG004: by fields", "SIZE001: as many"), (PD,), (GOLDEN,)),
        Line("PCP by --prefill-context-parallel-size", ("ARG004", "PAR001"), ("PAR001: PCP counts",)),
        Line("enable_kvpp is added to an existing PP launch", ("PAR007", "PAR008"), ("PAR008: 38/40",), (TWO,)),
    ),
    "KV Transfer: P/D": (
        Line("kv_producer on prefill, kv_consumer on decode", ("KVT001", "KVT006", "ARG004"), ("ROLE001: prefill and decode",), (PD,), (GOLDEN,)),
        Line("KVPP stays off on decode", ("ADD005",), ("ADD005: false on decode",), (PD,), (GOLDEN,)),
        Line("Port ranges that don't overlap on one host", ("NET003", "NET004", "NET005", "PORT001", "PORT002", "PORT003", "PORT004", "PORT005"),
             ("NET003: the seed's pair, TP8", "PORT004: apart"), (), ("tests/ledger/test_machine.py",)),
    ),
    "KV Transfer: memcache": (
        Line("kv_producer and kv_both", ("POOL006", "POOL007"), ("POOL006: Producer", "POOL006: Both on 0.29"), (MEMCACHE,)),
        Line("kv_consumer is outside the validated scope", ("SCHEMA005", "POOL027", "KVT007"), ("POOL027: prefill alone",)),
        Line("SDK and MetaService are configured",
             ("POOL030", "POOL031", "POOL032", "POOL033", "POOL034", "POOL035", "POOL036", "POOL037", "POOL038", "POOL040", "POOL041",
              "POOL042", "POOL043"), ("POOL030: known", "POOL040: name and port"), (MEMCACHE,)),
        Line("use_layerwise=false", ("POOL020",), ("POOL020: what we write",)),
        Line("load_async=true, whole blocks", ("POOL023",), ("POOL023: true",)),
        Line("discard_partial_chunks=true", ("POOL021",), ("POOL021: true",)),
        Line("No KV events", ("POOL028", "POOL029"), ("POOL029: off",)),
        Line("No consumer write-back", ("POOL022",), ("POOL022: false",)),
    ),
    "KV Transfer: Mooncake layerwise": (
        Line("backend mooncake, use_layerwise=true, load_async=false", ("POOL004", "POOL020"), ("POOL004: layerwise",), (LAYERWISE,)),
        Line("layerwise_prefetch_layers sets the distance", ("POOL020", "POOL025"), ("POOL002: latest",), (LAYERWISE,)),
        Line("No cross-layer reuse of persistent owner caches", ("POOL026",), ("POOL026: KVPP off",)),
        Line("Validated on one node with TP8, eager", ("POOL003",), ("POOL003: Memcache",)),
        Line("PP, PCP and DCP were not part of it", ("POOL008", "POOL009"), ("POOL008: TP", "POOL009: no PP")),
        Line("Restrictions on topology mismatch apply", ("POOL010",), ("POOL010: equal",)),
        Line("The ordering holds as a child of MultiConnector", ("POOL003", "POOL010"), ("POOL010: equal",)),
        Line("A separate topology namespace: turning KVPP on starts a cold pool", ("POOL003", "POOL050"),
             ("POOL003: Memcache", "POOL050: the same again"), (), ("tests/pool",)),
    ),
    "Combining Connectors": (
        Line("MultiConnector of MooncakeConnectorV2 and AscendStoreConnector", ("POOL001", "KVT001", "KVT006"), ("POOL001: latest",)),
        Line("Types and roles of the children are validated", ("KVT001", "KVT006", "KVT007"), ("KVT006: none",)),
        Line("The backend has its own service configuration",
             ("POOL005", "POOL044", "POOL045", "POOL046", "POOL047", "POOL048"), ("POOL005: its own",)),
    ),
    "Performance and recommendations": (
        Line("One node: TP8 + EP, 6.25x", ("GAIN001",), ("GAIN001: eight ranks",), (ONE,), (CAPACITY,)),
        Line("Two nodes: TP8 + PP2 + EP, 38/40 layers, 5.35x", ("GAIN001", "PAR010"), ("PAR008: 38/40",), (TWO,), (CAPACITY,)),
        Line("Evaluate where KV capacity is the limit", ("GAIN001", "GAIN002"), ("GAIN002: enough layers",), (), (CAPACITY,)),
    ),
}  # fmt: skip


def coverage_page() -> str:
    lines = [HEAD]
    for section, rows in SECTIONS.items():
        lines += [f"## {section}\n", *table("line | rules | must pass | examples and tests", map(row, rows)), ""]
    return "\n".join(lines)


def row(line: Line) -> tuple[str, ...]:
    return (
        line.text,
        ", ".join(f"[{rule}](rules.md#{rule.lower()})" for rule in line.rules),
        "; ".join(line.passing),
        ", ".join(map(code, (*line.examples, *line.tests))),
    )


def gaps() -> Iterator[str]:
    """What the table names and does not exist, and rules with a source in the guide that it forgets."""
    known = {rule.id for rule in RULES}
    named = [line for rows in SECTIONS.values() for line in rows]
    for line in named:
        yield from (f"{line.text}: no rule {rule}" for rule in line.rules if rule not in known)
        yield from (f"{line.text}: no case {case}" for case in line.passing if not has_case(case))
        if not line.rules or not line.passing:
            yield f"{line.text}: empty"
    covered = {rule for line in named for rule in line.rules}
    forgotten = [rule.id for rule in RULES if rule.source.startswith("seed guide") and rule.id not in covered]
    yield from (f"{rule} has its source in the guide and stands in no line" for rule in forgotten)


def has_case(case: str) -> bool:
    rule, _, name = case.partition(": ")
    return name in cases().get(rule, {}).get("pass", {})
