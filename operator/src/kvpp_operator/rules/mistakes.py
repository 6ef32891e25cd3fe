"""One mistake that pydantic found → the rule that speaks, and what it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kvpp_operator.api.base import LINE
from kvpp_operator.rules import paths, schema_rules, shape
from kvpp_operator.rules.base import Edit, Fact, Remove, Rule, Set
from kvpp_operator.rules.belonging import fits, folded, home
from kvpp_operator.rules.readings import CONVERTERS, READINGS

Parts = tuple[str | int, ...]
Verdict = tuple[Rule, Fact]

WANTED = {
    "int_type": "a whole number", "int_from_float": "a whole number", "string_type": "text", "bool_type": "true or false",
    "float_type": "a number", "model_type": "a map", "dict_type": "a map", "list_type": "a list",
}  # fmt: skip
BOUNDS = {
    "greater_than_equal": ("ge", "must be {} or more"), "less_than_equal": ("le", "must be {} or less"),
    "too_long": ("max_length", "may have at most {} entries"), "too_short": ("min_length", "needs at least {} entries"),
    "string_too_long": ("max_length", "may have at most {} characters"),
    "string_too_short": ("min_length", "needs at least {} characters"),
}  # fmt: skip
FORMS = {
    "version": "of a version (`0.30.0rc2`) or `latest`", "resourceName": "`domain/name`", "digest": "`sha256:` and 64 hex digits",
    "tag": "of an image tag", "hugePages": "of a quantity (`64Gi`)", "memoryPerDevice": "of a quantity (`64Gi`)",
    "sharedMemory": "of a quantity (`64Gi`)", "startupTimeout": "of a duration (`45m`, `1h30m`)",
    "shutdownTimeout": "of a duration (`2m`)", "interface": "of a network interface's name",
    "reservedPorts": "`first-last` or a port number", "path": "of an absolute path without `..`", "name": "of an environment variable's name",
    "repo": "`organisation/name`", "servedName": "of a name that does not begin with a dash, as flags do",
    "quantization": "of one word (`ascend`)",
}  # fmt: skip

MARK = 2
"""`metadata` and `labels` stand before a label's name."""


def mistake(kind: str, place: Parts, value: Any, context: dict[str, Any]) -> Verdict:
    """The finding for pydantic's error `kind` at a place where `value` stands."""
    if place in (("metadata", "name"), ("metadata", "namespace")) and kind != "missing":
        return bad_name(place, value)
    if place in (("apiVersion",), ("kind",)) and kind != "missing":
        return wrong_kind(place, value)
    if kind in BOUNDS:
        return out_of_bounds(kind, place, value, context)
    return SPECIAL.get(kind, wrong_type)(place, value, context)


def bad_name(place: Parts, value: Any) -> Verdict:
    path = paths.join(place)
    readable = re.sub(r"[^a-z0-9-]+", "-", str(value).lower())[:63].strip("-") or shape.EXAMPLES[str(place[-1])]
    return schema_rules.BAD_NAME, Fact(path, value, (Set(path, readable),), {"field": path})


def wrong_kind(place: Parts, value: Any) -> Verdict:
    expected = shape.EXAMPLES[str(place[0])]
    path = paths.join(place)
    return schema_rules.WRONG_KIND, Fact(path, value, (Set(path, expected),), {"field": place[0], "expected": expected})


def unknown_field(place: Parts, value: Any, context: dict[str, Any]) -> Verdict:
    name, parent = str(place[-1]), place[:-1]
    known = shape.names_at(parent)
    path = paths.join(place)
    words = {"parent": paths.join(parent) or "a KVPPDeployment", "field": name, "suggestion": "", "advice": ""}
    meant = next((one for one in known if folded(one) == folded(name)), None)
    belongs = None if meant else home(context.get("document"), place, value)
    fix: tuple[Edit, ...] = (Remove(path),)
    if belongs:
        words["suggestion"] = f"; it belongs to {' or '.join(belongs.places)}"
        fix = (Set(belongs.places[0], value), *fix) if belongs.can_move else fix
        words["advice"] = "" if belongs.can_move else "and use that field"
    elif meant := meant or shape.closest(name, known):
        words["suggestion"] = f"; the closest is {meant}"
        if meant not in context.get("siblings", ()) and fits((*parent, meant), value):
            fix = (Set(paths.below(paths.join(parent), meant), value), *fix)
    elif known:
        words["advice"] = f"its fields are {', '.join(known)}"
    return schema_rules.UNKNOWN_FIELD, Fact(path, value, fix, words)


def missing(place: Parts, _: Any, __: dict[str, Any]) -> Verdict:
    path = paths.join(place)
    example = shape.EXAMPLES.get(str(place[-1]), "")
    return schema_rules.MISSING_FIELD, Fact(path, None, (Set(path, example),), {"field": path})


def out_of_bounds(kind: str, place: Parts, value: Any, context: dict[str, Any]) -> Verdict:
    key, words = BOUNDS[kind]
    limit = context[key]
    path, name = paths.join(place), word(place)
    if key == "max_length":
        legal: Any = shortened_to(value, limit)
    elif key == "min_length":
        legal = read(place, value) or shape.EXAMPLES.get(name)
    else:
        legal = shape.USUAL.get(name, limit)
    fix: Edit = Set(path, legal)
    if name == "pipelineLayers":  # one number of a layer split can't be right alone
        fix = Remove(paths.join(place[:-1]))
    elif name == "kvPort" or (legal is None and not shape.is_required(place)):
        fix = Remove(path)  # a block does not end where ports do, and a made-up text says nothing
    elif legal is None:
        fix = Set(path, "x" * limit)
    if value == "" and limit == 1:
        words = "must not be empty"
    return schema_rules.OUT_OF_BOUNDS, Fact(
        path, value, (fix,), {"field": field_name(place), "bound": words.format(limit)}
    )


def shortened_to(value: Any, limit: int) -> Any:
    return dict(list(value.items())[:limit]) if isinstance(value, dict) else value[:limit]


def not_a_choice(place: Parts, value: Any, context: dict[str, Any]) -> Verdict:
    choices = re.findall(r"'([^']*)'", str(context.get("expected", "")))
    meant = read(place, value) or (shape.closest(value, choices) if isinstance(value, str) else None)
    path = paths.join(place)
    words = {
        "field": field_name(place),
        "choices": ", ".join(choices),
        "remark": REMARKS.get((word(place), str(value).lower()), ""),
    }
    return schema_rules.NOT_A_CHOICE, Fact(path, value, (Set(path, meant or choices[0]),), words)


REMARKS = {
    ("role", "consumer"): "; kv_consumer is not tested with KVPP and outside its validated scope",
    ("backend", "yuanrong"): "; Yuanrong has no place with KVPP",
    ("chip", "310p"): "; 310P has no KVPP",
    ("chip", "ascend310p"): "; 310P has no KVPP",
    ("type", "aibrix"): "; AIBrix has no hand-over for these connectors",
}
"""Choices that people expect and can't have: (field, value in small letters) → why."""


def bad_pattern(place: Parts, value: Any, context: dict[str, Any]) -> Verdict:
    name = word(place)
    pattern = context.get("pattern", "")
    form = "of one line without control characters" if pattern == LINE else FORMS.get(name, f"`{pattern}`")
    form = "of a label: letters, digits, `-`, `_` and `.`, at most 63 of them" if is_mark(place) else form
    path = paths.join(place)
    fix: tuple[Edit, ...] = (Set(path, shape.EXAMPLES[name]),) if shape.is_required(place) else (Remove(path),)
    if meant := read(place, value):
        fix = (Set(path, meant),)
    return schema_rules.BAD_PATTERN, Fact(
        path, value, fix, {"field": field_name(place), "form": form, "advice": "or correct it"}
    )


def read(place: Parts, value: Any) -> str | None:
    """What the text means in the form that its field wants; None where nobody can tell."""
    reading = READINGS.get(word(place))
    meant = reading(value) if reading and isinstance(value, str) else None
    return meant if meant and fits(place, meant) else None


def wrong_type(place: Parts, value: Any, context: dict[str, Any]) -> Verdict:
    kinds = context.get("types", ())
    if isinstance(value, str) and any(kind.startswith("string_") and kind not in WANTED for kind in kinds):
        return bad_pattern(place, value, context)
    expected = context.get("expected") if "expected" in context and not kinds else None
    wanted = expected or " or ".join(dict.fromkeys(WANTED.get(kind, "another kind of value") for kind in kinds))
    path = paths.join(place)
    fix, advice = conversion(place, value, wanted)
    words = {"field": field_name(place), "expected": wanted, "given": given(value), "advice": advice}
    return schema_rules.WRONG_TYPE, Fact(path, value, fix, words)


def conversion(place: Parts, value: Any, wanted: str) -> tuple[tuple[Edit, ...], str]:
    """The same value in the wanted type where that can be had, else the field's absence or an example."""
    path = paths.join(place)
    if not place:
        return (Set("apiVersion", shape.EXAMPLES["apiVersion"]),), "write a KVPPDeployment"
    converter = CONVERTERS.get(wanted)
    # Of the version 0.30 YAML leaves 0.3, which is another one.
    converted = converter(value) if converter and (word(place) != "version" or is_mark(place)) else None
    if converted is not None and (isinstance(place[-1], int) or is_mark(place) or fits(place, converted)):
        return (Set(path, converted),), "in quotes, or YAML reads something else" if isinstance(converted, str) else ""
    if shape.is_required(place) or word(place) in shape.USUAL:
        return (Set(path, shape.USUAL.get(word(place), shape.EXAMPLES.get(word(place), ""))),), "with your own value"
    form = f" {FORMS[word(place)]}" if wanted == "text" and word(place) in FORMS and not is_mark(place) else ""
    return (Remove(path),), f"or give {wanted}{form}"


def non_json(place: Parts, value: Any, reason: str) -> Verdict:
    path = paths.join(place)
    fix: tuple[Edit, ...] = (Remove(path),) if path else ()
    return schema_rules.NOT_JSON, Fact(path, str(type(value).__name__) if not isinstance(value, str) else value, fix,
                                       {"field": field_name(place), "reason": reason, "advice": "or write it as text"})  # fmt: skip


def is_mark(place: Parts) -> bool:
    """Whether a place is a label or an annotation: its name is the user's, and says nothing of what belongs there."""
    return len(place) > MARK and place[-3] == "metadata" and place[-2] in ("labels", "annotations")


def word(place: Parts) -> str:
    """The last name of a place, indices left out."""
    return next((part for part in reversed(place) if isinstance(part, str)), "")


def field_name(place: Parts) -> str:
    """How a message calls a place: its last name, with an index where it is a list's entry."""
    index = f"[{place[-1]}]" if place and isinstance(place[-1], int) else ""
    return f"{word(place)}{index}" or "The document"


def given(value: Any) -> str:
    """What kind of thing a value is, in words."""
    kinds = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a map",
    }
    return "nothing" if value is None else kinds.get(type(value), type(value).__name__)


SPECIAL: dict[str, Callable[[Parts, Any, dict[str, Any]], Verdict]] = {
    "missing": missing,
    "extra_forbidden": unknown_field,
    "literal_error": not_a_choice,
    "string_pattern_mismatch": bad_pattern,
}
