"""docs/rules.md and docs/flags.md, from the rules and the table of ownership."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.docs.cases import cases, example
from kvpp_operator.docs.table import code, table
from kvpp_operator.ownership import OWNED, ROLE, Owned
from kvpp_operator.rules import RULES
from kvpp_operator.rules.base import Rule

RULES_HEAD = """# Rules

Every rule that a `KVPPDeployment` is judged by: at `kubectl apply` (where the table says "API server", by the CRD alone,
else by the admission webhook where it is installed), by `kvpp validate`, and before anything is applied. All findings come
at once; an error blocks, a warning never does. `make generate` writes this page from the rules; do not edit it.

Evidence says who refuses, as far as that can be shown without an NPU: `parser` is vLLM's own argument parser, `check` the
engine's start-up code; `guide` is everything else: guides, code that was read and not run, and our own contract.
Validation says how far the matter was seen on hardware: `seed` by the seed guide's measurements, `ci` by the engine's own
tests, `never` by nobody we know of.
"""
FLAGS_HEAD = """# Who owns which flag, variable and key

A field, or the operator itself, writes these. In `extraArgs`, `env`, `podTemplate` and `additionalConfig` they are refused
with the name of the field. Flags stand here by their long name; short forms, underscores, `--flag=value`, negations and
abbreviations count as the same flag. `make generate` writes this page from `ownership.py`; do not edit it.
"""
SOURCES = {
    "seed guide": "the KVPP user guide of vLLM Ascend's newest branch",
    "launch facts": "what each release accepts, and where in the engine's source: [launch-facts.md](launch-facts.md), by number",
    "contract": "the custom resource and its promises: [api.md](api.md), of ports [ports.md](ports.md)",
    "docs/…, SECURITY.md": "a page of ours, with its heading",
}


def rules_page() -> str:
    gates = [rule for rule in RULES if rule.is_gate]
    return "\n".join(
        [
            RULES_HEAD,
            "Sources:\n",
            *(f"- *{name}*: {what}" for name, what in SOURCES.items()),
            "",
            "## All\n",
            *table("rule | severity | what | versions | API server", (row(rule) for rule in RULES)),
            "",
            "## Gates\n",
            "Later releases accept what a gate refuses. Gates with evidence `check` are proven by the release's own code; those",
            "with `guide` rest on a guide or on code that needs an NPU to run.\n",
            *table("rule | refused up to | first release | evidence", (gate_row(rule) for rule in gates)),
            "",
            *sections(),
        ]
    )


def row(rule: Rule) -> tuple[str, ...]:
    return (f"[{rule.id}](#{rule.id.lower()})", rule.severity, rule.title, versions(rule), "yes" if rule.cel else "")


def gate_row(rule: Rule) -> tuple[str, ...]:
    return (rule.id, rule.until, rule.first_version, rule.evidence)


def versions(rule: Rule) -> str:
    since, until = rule.since, rule.until
    if rule.is_gate:
        return until if since == until else f"{since} to {until}"
    return "all" if since == "0.28.0rc1" else f"from {since} on"


def area(rule: Rule) -> str:
    return rule.id.rstrip("0123456789")


def sections() -> Iterator[str]:
    for name in dict.fromkeys(map(area, RULES)):
        yield f"## {name}\n"
        for rule in sorted((rule for rule in RULES if area(rule) == name), key=lambda rule: rule.id):
            yield from section(rule)


def section(rule: Rule) -> Iterator[str]:
    yield f"### {rule.id}\n"
    yield f"**{rule.title}** ({rule.severity}; versions: {versions(rule)}; evidence: {rule.evidence}; validated: {rule.validation})\n"
    yield f"> {rule.message}\n"
    yield f"Source: {rule.source}.\n"
    if rule.fix:
        yield f"Fix: {rule.fix}.\n"
    failing = cases().get(rule.id, {}).get("fail")
    if failing:
        yield "Breaks it:\n"
        yield f"```yaml\n{example(next(iter(failing.values())))}\n```\n"


def flags_page() -> str:
    return "\n".join(
        [
            FLAGS_HEAD,
            "## Flags\n",
            *table("flag | belongs to | why", owned_rows("flags")),
            "",
            "Of `--attention-config` only the key `indexer_kv_dtype` belongs to a field; its other keys are yours.",
            "",
            "## Environment\n",
            *table("variable | belongs to | why", owned_rows("env")),
            "",
            "## Keys of the additional config\n",
            *table("key | belongs to | why", owned_rows("keys")),
            "",
        ]
    )


WHEN = {
    "always": "",
    "pooling": "with a pool",
    "hostNetwork": "on the host network",
    "hub": "with huggingFace or modelScope as source",
}


def owned_rows(kind: str) -> list[tuple[str, ...]]:
    rows = [(code(name), owner(owned), reason(owned)) for owned in OWNED for name in getattr(owned, kind)]
    return sorted(rows)


def owner(owned: Owned) -> str:
    return code(owned.field.replace(ROLE, "<role>")) if owned.field else "the operator"


def reason(owned: Owned) -> str:
    return "; ".join(part for part in (WHEN[owned.when], owned.why) if part)
