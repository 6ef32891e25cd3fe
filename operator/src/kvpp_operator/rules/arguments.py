"""`extraArgs`: what the engine's parser refuses, and what belongs to fields or to the operator."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.engine_flags import Argument as Use
from kvpp_operator.engine_flags import ParsedArguments, Problem, requirements
from kvpp_operator.ownership import BY_FLAG, BY_JSON_KEY, BY_KEY, Owned
from kvpp_operator.resolve import Resolved
from kvpp_operator.rules.base import Fact, Remove, Set, rule
from kvpp_operator.rules.environment import places
from kvpp_operator.rules.given import Argument, everywhere, of_role, words_of
from kvpp_operator.world import World

PARSER = "the release's own argument parser (vLLM's FlexibleArgumentParser), read into the flag catalogue"
ELSEWHERE = "--enable-kvpp"


UNKNOWN = ("unknown-flag", "ambiguous-flag")
STRAY = ("positional", "second-model")


def problems(resolved: Resolved) -> Iterator[tuple[Use, Problem, tuple[Remove, ...]]]:
    """Everything that the parser refuses, with the removal of its words."""
    for written in places(resolved):
        for use, problem in written.arguments.problems:
            yield use, problem, words_of(written, use)


SECRETS = ("--api-key", "--hf-token")
HIDDEN = "(hidden)"
"""What stands in a finding for a secret: findings go into status, events and logs (SECURITY.md)."""


def named(use: Use) -> str:
    """A word as findings show it: without a value that is attached to it."""
    return use.text.partition("=")[0]


def shown(argument: Argument) -> object:
    return HIDDEN if argument.flag in SECRETS else argument.value


def nearest(problem: Problem) -> str:
    return f"; the closest is {problem.closest[0]}" if problem.closest else ""


def owner_of(argument: Argument) -> Owned | None:
    """Who owns an argument; a JSON flag with a key of ours inside belongs to that key's field."""
    if argument.flag == "--additional-config" and len(argument.settings) == 1:
        [key] = argument.settings
        return BY_KEY.get(key, BY_FLAG[argument.flag])
    if (owned := BY_FLAG.get(argument.flag)) is not None:
        return owned
    for key in argument.settings:
        if (owned := BY_JSON_KEY.get(f"{argument.flag}.{key}")) is not None:
            return owned
    return None


def key_named(argument: Argument, owned: Owned) -> str:
    """The flag with the one key of its JSON that belongs to a field."""
    paths = (f"{argument.flag}.{key}" for key in argument.settings)
    owns = (path for path in paths if path in owned.json_keys or path.partition(".")[2] in owned.keys)
    return argument.name if argument.key else next(owns, argument.name)


@rule(
    "ARG001",
    severity="error",
    evidence="parser",
    source=PARSER,
    message="vLLM Ascend {release} does not take this: {why}{nearest}.",
    fix="",
)
def unknown_flag(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A flag that the release does not have, or an abbreviation of several."""
    for use, problem, removal in problems(resolved):
        if problem.kind in UNKNOWN and not is_elsewhere(use):
            yield Fact(removal[0].path, named(use), removal, {"why": problem.message, "nearest": nearest(problem)})


@rule(
    "ARG002",
    severity="error",
    evidence="parser",
    source=PARSER,
    message="The engine's parser refuses this: {why}{nearest}.",
    fix="",
)
def bad_value(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A value that the parser refuses."""
    for use, problem, removal in problems(resolved):
        if problem.kind not in (*UNKNOWN, *STRAY) and use.flag not in SECRETS and not glued(use):
            value = use.values[0] if use.values else named(use)
            yield Fact(removal[0].path, value, removal, {"why": problem.message, "nearest": nearest(problem)})


@rule(
    "ARG003",
    severity="error",
    evidence="parser",
    source=PARSER,
    message="The engine's parser has no place for this: {why}.",
    fix="",
)
def stray_word(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A word that belongs to no flag, or a second model."""
    for use, problem, removal in problems(resolved):
        apart = glued(use)
        if apart:
            hidden = apart.replace("_", "-").startswith(SECRETS)
            fix = removal if hidden else (Set(removal[0].path, apart),)
            text = HIDDEN if hidden else use.text
            words = {"why": f"{text!r} is one word; a flag and its value are two, or one with ="}
            yield Fact(removal[0].path, text, fix, words)
        elif problem.kind in STRAY:
            yield Fact(removal[0].path, named(use), removal, {"why": problem.message})


@rule(
    "ARG006",
    severity="error",
    evidence="parser",
    source="launch facts 1.4: --enable-kvpp is another project's, the KVPP of vLLM Ascend is a key of the additional config",
    message="{value} is a flag of another project's KVPP; here KVPP is switched by spec.kvpp.enabled.",
    fix="",
)
def flag_of_another_project(resolved: Resolved, _: World) -> Iterator[Fact]:
    """The KVPP flag of another project."""
    for use, problem, removal in problems(resolved):
        if problem.kind in UNKNOWN and is_elsewhere(use):
            yield Fact(removal[0].path, named(use), removal)


def glued(use: Use) -> str:
    """Flag and value that someone wrote as one word, as the engine would take them: `--seed=1`; empty for other words."""
    flag, _, value = use.text.partition(" ")
    return f"{flag}={value.strip()}" if flag.startswith("-") and "=" not in flag and value.strip() else ""


def is_elsewhere(use: Use) -> bool:
    return use.text.replace("_", "-").partition("=")[0] == ELSEWHERE


@rule(
    "ARG007",
    severity="error",
    evidence="parser",
    source="vLLM, validate_parsed_serve_args and ServeSubcommand.cmd of the release: flags that need or exclude one another",
    message="The engine does not start with these flags together: {why}.",
    fix="",
)
def flags_that_need_one_another(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A flag that needs another one, or excludes it."""
    seen: set[str] = set()
    for role in resolved.roles:
        whole = ParsedArguments(tuple(use for written in role.written for use in written.arguments))
        for use, problem in requirements(whole):
            written = next(written for written in role.written if any(one is use for one in written.arguments))
            removal = words_of(written, use)
            if removal[0].path not in seen:
                seen.add(removal[0].path)
                yield Fact(removal[0].path, named(use), removal, {"why": problem.message})


@rule(
    "ARG004",
    severity="error",
    evidence="guide",
    source="contract, extraArgs: they may not touch what a field owns (docs/flags.md)",
    message="{flag} belongs to {field}{why}.",
    fix="and use that field",
)
def flag_of_a_field(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A flag that a field owns."""
    for argument in everywhere(resolved):
        owned = owner_of(argument)
        if owned is not None and owned.field:
            words = {
                "flag": argument.name if owned is BY_FLAG.get(argument.flag) else key_named(argument, owned),
                "field": owned.place(argument.written.path),
                "why": f": {owned.why}" if owned.why else "",
            }
            yield Fact(argument.path, shown(argument), argument.removal, words)


@rule(
    "ARG005",
    severity="error",
    evidence="guide",
    source="contract, extraArgs: nodes, ports and addresses are planned (docs/flags.md)",
    message="{flag} is set by the operator: {why}.",
    fix="",
)
def flag_of_the_operator(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A flag that the operator sets."""
    for argument in everywhere(resolved):
        owned = owner_of(argument)
        if owned is not None and not owned.field:
            yield Fact(argument.path, argument.value, argument.removal, {"flag": argument.name, "why": owned.why})


LAYOUT = (
    "--hf-overrides", "--dtype", "--block-size", "--attention-config", "--attention-backend", "--model-impl", "--config-format",
    "--hf-config-path", "--code-revision", "--kv-cache-dtype-skip-layers", "--quantization-config", "--model-class-overrides",
)  # fmt: skip
"""Flags that change model, dtype or cache layout."""


@rule(
    "ARG008",
    severity="error",
    evidence="guide",
    source="launch facts 11.1 (Cache layouts): V2 compares block lengths and tensor counts of both sides, and fails every transfer when they differ",
    message="{flag} changes the model, its dtype or the cache layout, and prefill and decode don't say the same; every hand-over "
    "fails.",
    fix="or set it for both in spec.engine.extraArgs",
)
def layout_differs_between_sides(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Arguments that make prefill and decode differ in layout."""
    prefill, decode = resolved.role("prefill"), resolved.role("decode")
    if prefill is None or decode is None:
        return
    sides = [
        {argument.name: argument for argument in of_role(role) if argument.flag in LAYOUT} for role in (prefill, decode)
    ]
    for name in sorted({*sides[0], *sides[1]}):
        here, there = (side.get(name) for side in sides)
        if here is not None and there is not None and here.value == there.value:
            continue
        own = [
            argument for argument in (here, there) if argument is not None and argument.written.path != "spec.engine"
        ]
        removal = tuple(edit for argument in own for edit in argument.removal)
        yield Fact(own[0].path, own[0].value, removal, {"flag": name})
