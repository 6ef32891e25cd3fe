"""The rules that parsing asks (`schema.parse`): what a type can say.

The API server refuses the same values by the CRD's schema; these rules give its refusals a path, a reason and a fix
where no API server is asked (`kvpp validate`), and words that are ours.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.resolve import Resolved
from kvpp_operator.rules.base import Fact, Rule
from kvpp_operator.world import World

CONTRACT = "contract of the custom resource (docs/api.md): types, bounds and choices of each field"


def judged_by_parse(_: Resolved, __: World) -> Iterator[Fact]:
    """A schema rule speaks before there is anything resolved: `parse` asks it."""
    return iter(())


def schema_rule(number: int, title: str, message: str, fix: str = "", source: str = CONTRACT) -> Rule:
    return Rule(
        id=f"SCHEMA{number:03}", severity="error", evidence="guide", source=source, message=message, fix=fix,
        check=judged_by_parse, title=title,
    )  # fmt: skip


UNREADABLE = schema_rule(
    0, "A file that can't be read", "The file can't be read: {reason}.", "make it readable YAML or JSON", source="YAML 1.1 as kubectl reads it"
)  # fmt: skip
"""Of files only; what comes through the API server has been read."""
WRONG_TYPE = schema_rule(1, "A value of the wrong type", "{field} must be {expected}, not {given}.", "{advice}")
UNKNOWN_FIELD = schema_rule(
    2, "A field that does not exist", "{parent} has no field {field}{suggestion}.", "{advice}",
    source="contract of the custom resource (docs/api.md): unknown fields are refused, never dropped silently",
)  # fmt: skip
MISSING_FIELD = schema_rule(3, "A required field is missing", "{field} is required.", "with your own value")
OUT_OF_BOUNDS = schema_rule(4, "A value out of bounds", "{field} {bound}.")
NOT_A_CHOICE = schema_rule(5, "A value that is not among the choices", "{field} must be one of {choices}{remark}.")
BAD_PATTERN = schema_rule(6, "A text of the wrong form", "{field} does not have the form {form}.", "{advice}")
WRONG_KIND = schema_rule(
    7, "Another kind or version of object", "{field} must be {expected}; {value} is another kind of object.",
    source="Kubernetes API conventions: apiVersion and kind say what an object is",
)  # fmt: skip
BAD_NAME = schema_rule(
    8, "A name that Kubernetes can't take",
    "{field} must be a DNS label: at most 63 small letters, digits and dashes, no dash at either end.",
    source="contract, metadata.name; Kubernetes, Object Names and IDs: DNS labels of RFC 1123",
)  # fmt: skip
DUPLICATE = schema_rule(
    9, "A name given twice in a list keyed by name", "{name} stands twice in {list}; the API server refuses the list.",
    source="CRD: x-kubernetes-list-type map, keyed by name",
)  # fmt: skip
NOT_JSON = schema_rule(
    10, "A value that JSON or an API server can't take", "{field} can't be sent to an API server: {reason}.", "{advice}",
    source="Kubernetes API: objects are JSON (RFC 8259)",
)  # fmt: skip

SCHEMA: tuple[Rule, ...] = (
    WRONG_TYPE, UNKNOWN_FIELD, MISSING_FIELD, OUT_OF_BOUNDS, NOT_A_CHOICE, BAD_PATTERN, WRONG_KIND, BAD_NAME, DUPLICATE, NOT_JSON,
)  # fmt: skip
