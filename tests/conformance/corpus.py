"""Command lines for the engine's own parser and checks: what we accept must pass there, what its evidence gates refuse must not."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from typing import Any

import rule_cases
import specs

from kvpp_operator.configuration import DEFAULT, Configuration
from kvpp_operator.pipeline import complete, draft, settle_ports
from kvpp_operator.render.commands import commands
from kvpp_operator.resolve import Resolved
from kvpp_operator.rules import RULES, judge
from kvpp_operator.rules.base import Rule
from kvpp_operator.rules.edits import Set, applied
from kvpp_operator.world import OFFLINE

Line = dict[str, Any]
ENGINE_SAYS = ("parser", "check")


def lines(
    name: str, document: Any, configuration: Configuration = DEFAULT, rules: Sequence[Rule] = RULES
) -> list[Line]:
    """One line per engine process; nothing for a spec that the rules refuse."""
    drafted = draft(judge(document, configuration, OFFLINE, rules), lambda fresh: fresh)
    settled = settle_ports(drafted, OFFLINE)
    planned = drafted if settled is None else complete(drafted, settled)
    resolved = planned.judgement.resolved
    if planned.plan is None or resolved is None:
        return []
    version = document["spec"]["engine"]["version"]
    return [
        {
            "id": f"{name} {command.role}{command.engine}.{command.node_rank}", "version": version, "argv": list(command.argv),
            "env": {key: value for key, value in command.env.items() if key not in OF_THE_IMAGE}, "model": engine_facts(resolved, command.role), "chip": resolved.role(command.role).accelerator.chip.name,  # type: ignore[arg-type,union-attr]
        }
        for command in commands(planned.plan)
        if command.engine == 0
    ]  # fmt: skip


OF_THE_IMAGE = ("VLLM_USE_FASTOKENS",)
"""Variables that ask for a package which the published images have and this environment does not."""


def engine_facts(resolved: Resolved, role: str) -> dict[str, Any]:
    """What the release is told of the model: its kind of attention, and the keys of its config.json that checks read."""
    model, settled = resolved.model, resolved.role(role)  # type: ignore[arg-type]
    if model is None or settled is None:
        return {"attention": "MLA", "layers": 61}
    told = {
        # Where the spec does not say how many heads there are, as many as TP can split.
        "num_attention_heads": model.attention_heads or 128 * settled.tensor,
        "num_nextn_predict_layers": model.draft_layers,
        "n_routed_experts": None if model.moe else 0,
    }
    config = {key: value for key, value in told.items() if value is not None}
    is_told = model.attention in ("MLA", "SFA")
    return {"attention": model.attention, "layers": model.layers} | ({"config": config} if is_told else {})


def version_of(document: Any) -> str:
    """The release that a document names; "" when it is no deployment that could."""
    try:
        return str(document["spec"]["engine"]["version"])
    except (KeyError, TypeError):
        return ""


def written(versions: Sequence[str]) -> Iterator[Line]:
    """Examples, recipes, golden cases and everything that a rule's cases say must pass."""
    files = [
        *specs.EXAMPLES,
        *sorted((specs.ROOT / "examples" / "recipes").glob("*.yaml")),
        *sorted((specs.ROOT / "tests/render/cases").glob("*.yaml")),
    ]
    for file in files:
        for body in specs.read(file):
            if version_of(body) in versions:
                yield from lines(file.stem, body)
    for case in rule_cases.cases("pass"):
        if version_of(case.document) in versions and case.judge().accepted:
            yield from lines(str(case), case.document, case.configuration)


def gated(versions: Sequence[str]) -> Iterator[Line]:
    """Failing cases of rules that speak for the engine, for every release they hold for, let through by leaving out that
    one rule."""
    for case in rule_cases.cases("fail"):
        rule = rule_cases.BY_ID.get(case.rule)
        if rule is None or rule.evidence not in ENGINE_SAYS or not version_of(case.document):
            continue
        without = [other for other in RULES if other.id != rule.id]
        for version in sorted(rule.releases.intersection(versions)):
            document = copy.deepcopy(case.document)
            document["spec"]["engine"]["version"] = version
            if rule.id not in {finding.rule for finding in judge(document, case.configuration, OFFLINE).findings}:
                continue
            for line in lines(f"{case} on {version}", document, case.configuration, without):
                yield {**line, "rule": rule.id, "evidence": rule.evidence}


PASSING: dict[str, list[rule_cases.Case]] = {}
for _case in rule_cases.cases("pass"):
    if _case.configuration == DEFAULT and not _case.rule.startswith(("SCHEMA", "VERSION")):
        PASSING.setdefault(_case.base, []).append(_case)
BASES = [base for base, found in PASSING.items() for _ in found if len(found) > 5]
MODELS = ("GLM-5", "GLM-5.2", "DeepSeek-V3.1", "DeepSeek-R1", "DeepSeek-V3.2", "Kimi-K2")
ARGUMENTS = (
    ["--block-size", "128"], ["--seed=1024"], ["--enable-auto-tool-choice", "--tool-call-parser", "glm47"], ["--reasoning-parser", "glm45"],
    ["--safetensors-load-strategy", "prefetch"], ["--max-log-len", "100"], ["--disable-log-stats"], ["--no-enable-log-requests"],
)  # fmt: skip


def generated(count: int, seed: int, versions: Sequence[str]) -> Iterator[Line]:
    """`count` accepted specs, drawn at random; refused draws are thrown away. Every other one is a cross of written ones."""
    source = random.Random(seed)
    made = 0
    while made < count:
        body = (crossed, draw)[made % 2](source, source.choice(versions))
        found = lines(f"random-{seed}-{made}", body)
        if found:
            made += 1
            yield from found


def crossed(source: random.Random, version: str) -> Any:
    """What two to five passing cases of one base ask for, in one document; with luck the rules accept all of it together."""
    base = source.choice(BASES)
    parents = source.sample(PASSING[base], source.randint(2, 5))
    edits = [edit for parent in parents for edit in parent.edits]
    try:
        return applied(rule_cases.copied(base), [*edits, Set("spec.engine.version", version)])
    except (KeyError, IndexError, TypeError, ValueError):
        return None  # one parent's edit needs what another one's took away


def draw(source: random.Random, version: str) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "model": {"profile": source.choice(MODELS), "source": {"hostPath": {"path": "/mnt/models/m"}}, "quantization": "ascend"},
        "engine": {"version": version},
        "accelerator": {"chip": source.choice(["A2", "A3", "950DT"])},
        "kvpp": {"enabled": source.random() < 0.85},
    }  # fmt: skip
    if source.random() < 0.3:
        spec["model"]["maxModelLen"] = source.choice([4096, 131072])
    if source.random() < 0.4:
        spec["kvCache"] = {"indexer": source.choice(["Auto", "C8", "C4"]), "main": source.choice(["Auto", "C8"])}
    if source.random() < 0.5:
        spec["unified"] = role(source, decode=False)
    else:
        spec["prefill"], spec["decode"] = role(source, decode=False), role(source, decode=True)
    if source.random() < 0.2:
        spec["pooling"] = source.choice([
            {"backend": "Memcache", "role": source.choice(["Producer", "Both"]), "memcache": {"memoryPerDevice": "32Gi"}},
            {"backend": "Mooncake", "role": "Both", "mooncake": {"memoryPerDevice": "32Gi"}},
        ])  # fmt: skip
    return {
        "apiVersion": "serving.kvpp.io/v1alpha1",
        "kind": "KVPPDeployment",
        "metadata": {"name": "random"},
        "spec": spec,
    }


def role(source: random.Random, *, decode: bool) -> dict[str, Any]:
    tensor = source.choice([1, 2, 4, 8, 16])
    found: dict[str, Any] = {
        "parallelism": {
            "tensor": tensor, "data": source.choice([1, 1, 2, 8 if tensor == 1 else 1]), "expert": source.random() < 0.7,
            "pipeline": 1 if decode else source.choice([1, 1, 1, 2]), "prefillContext": source.choice([1, 1, 1, 2]),
        },
        "graphMode": source.choice(["Eager", "Piecewise", "FullDecodeOnly", "FullAndPiecewise"] if decode else ["Eager", "Eager", "Piecewise"]),
    }  # fmt: skip
    if source.random() < 0.4:
        found["scheduler"] = {"maxNumBatchedTokens": 32768, "maxNumSeqs": 12, "gpuMemoryUtilization": 0.9,
                              "chunkedPrefill": source.random() < 0.8, "prefixCaching": source.random() < 0.5, "asyncScheduling": source.random() < 0.5}  # fmt: skip
    if source.random() < 0.4:
        found["speculative"] = {"method": "MTP", "tokens": source.choice([1, 2, 3])}
    if source.random() < 0.3:
        found["extraArgs"] = [word for words in source.sample(ARGUMENTS, 2) for word in words]
    if source.random() < 0.2:
        found["graphCaptureSizes"] = [8, 16, 32]
    if source.random() < 0.2:
        found["additionalConfig"] = {"enable_cpu_binding": source.random() < 0.5}
    return found
