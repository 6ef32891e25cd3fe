"""Judge: every rule on one spec, every finding at once, the same words at every door."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvpp_operator.api.v1alpha1 import KVPPDeployment
from kvpp_operator.configuration import Configuration
from kvpp_operator.resolve import Resolved, resolve
from kvpp_operator.rules import (
    additional_bounds,
    additional_config,
    arguments,
    balancing,
    build,
    cache,
    claims,
    context,
    drafts,
    effect,
    environment,
    gain,
    graph,
    limits,
    model,
    network,
    nodes,
    parallelism,
    paths,
    pod_template,
    pod_types,
    pool_cold,
    pool_config,
    pool_memcache,
    pool_mooncake,
    pool_services,
    pool_support,
    pool_template,
    raw_features,
    roles,
    router,
    schedulers,
    sizes,
    speculative,
    stages,
    transfer,
    version,
)
from kvpp_operator.rules.base import Finding, Rule, sort_key
from kvpp_operator.rules.schema import Parsed, parse_all
from kvpp_operator.rules.schema_rules import SCHEMA
from kvpp_operator.world import World

AREAS = (
    version, roles, model, graph, parallelism, stages, nodes, gain, sizes, context, cache, speculative, drafts, transfer, router,
    pool_support, pool_config, pool_memcache, pool_services, pool_mooncake, pool_template, pool_cold, arguments, raw_features,
    additional_config,
    additional_bounds, schedulers, balancing, environment, pod_template, pod_types,
    network, claims, limits, effect, build,
)  # fmt: skip

RULES: tuple[Rule, ...] = (
    *SCHEMA,
    *(rule for area in AREAS for rule in vars(area).values() if isinstance(rule, Rule)),
)
"""Every rule, in the order of the areas."""


@dataclass(frozen=True)
class Judgement:
    """The verdict on one document. Not accepted means: nothing is planned from it."""

    deployment: KVPPDeployment | None
    resolved: Resolved | None
    findings: tuple[Finding, ...]

    @property
    def accepted(self) -> bool:
        return self.resolved is not None and all(finding.severity != "error" for finding in self.findings)


def check(resolved: Resolved, world: World, rules: Sequence[Rule] = RULES) -> tuple[Finding, ...]:
    """Every finding of the rules on one resolved deployment, in a stable order."""
    return tuple(sorted((finding for rule in rules for finding in rule.findings(resolved, world)), key=sort_key))


def judge(document: Any, configuration: Configuration, world: World, rules: Sequence[Rule] = RULES) -> Judgement:
    """Parse, resolve and check a document; never raises, whatever the document is."""
    parsed = parse_all(document, rules)
    if parsed.deployment is None:
        more = [check(resolve(partial, configuration), world, rules) for partial in parsed.partial]
        found = (*parsed.findings, *untouched(more, parsed))
        return Judgement(None, None, tuple(sorted(found, key=sort_key)))
    resolved = resolve(parsed.deployment, configuration)
    return Judgement(parsed.deployment, resolved, check(resolved, world, rules))


def untouched(judged: Sequence[Sequence[Finding]], parsed: Parsed) -> list[Finding]:
    """Errors that stand whatever the bad fields should have said: not near one, and found with every stand-in."""
    if not judged:
        return []
    common = set.intersection(*({(finding.rule, finding.path) for finding in findings} for findings in judged))
    return [
        finding
        for finding in judged[0]
        if finding.severity == "error" and (finding.rule, finding.path) in common and not is_near(finding.path, parsed)
    ]


SECTION = 3
"""`spec.prefill.parallelism`: what stands together in one map is judged together."""


def is_near(path: str, parsed: Parsed) -> bool:
    """Whether a place shares a section with one that was taken out: its rules may have read what is gone."""
    parts = paths.split(path)
    for gone in parsed.removed:
        section = gone[:SECTION] if len(gone) > SECTION else gone
        shorter = min(len(section), len(parts))
        if section[:shorter] == parts[:shorter]:
            return True
    return False
