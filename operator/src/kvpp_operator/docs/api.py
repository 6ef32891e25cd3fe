"""docs/api.md: every field of a KVPPDeployment, from the schema that the API server enforces."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from kvpp_operator.api import v1alpha1
from kvpp_operator.api.base import LINE, QUANTITY
from kvpp_operator.crd.definition import COLUMNS, root_schema
from kvpp_operator.docs.table import code, table
from kvpp_operator.render.merge import DEFAULTS, LIST_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Schema = dict[str, Any]

HEAD = f"""# API

`{v1alpha1.KIND}`, `{v1alpha1.API_VERSION}`, namespaced, short name `kvpp`. `make generate` writes this page from the
model in `operator/src/kvpp_operator/api/`; do not edit it. `kubectl explain kvpp.spec` prints the same texts.

`metadata.name` is a DNS label of at most 63 characters. An absent field has the default of its row; where a row shows
none, the engine's own default stands, or the text says which. Unknown fields are refused. Names of objects and keys, paths and addresses
are one line without control characters.
"""
MERGE_HEAD = """## How a pod template is merged

`podTemplate` of `spec.engine` comes first, then the role's, then for node ranks above 0 the `worker` of both, each on
top of what the operator makes. Maps are merged by key. Lists in this table are merged by the keys shown, and an item
with the same keys is merged into ours; every other list is replaced as a whole. An explicit `null` takes a field of
ours away. Of alternatives only yours stays: an environment variable's `value` or `valueFrom`, a volume's source, a
probe's handler. The engine's container is called `vllm`.
"""


@dataclass(frozen=True)
class Shared:
    """A group of fields that stands in several places: described once, referred to by its heading."""

    heading: str
    name: str
    at: tuple[str, ...]
    """Path of one place, to take the schema from."""


SHARED = (
    Shared("Role", "prefill", ("spec", "prefill")),
    Shared("Pod template", "podTemplate", ("spec", "engine", "podTemplate")),
    Shared("Image", "image", ("spec", "engine", "image")),
    Shared("Weights", "source", ("spec", "model", "source")),
)
IN_THE_FIRST_TABLE = ("suspend", "imagePullSecrets")
"""Members of spec without a table of their own."""

ROLE_PATH = "<role>"
COLUMN_NAMES = "field | type | default | meaning"


def api_page() -> str:
    spec, status = part("spec"), part("status")
    lines = [HEAD, "## spec", "", *table(COLUMN_NAMES, overview(spec)), ""]
    for name, node in members(spec):
        if name not in IN_THE_FIRST_TABLE and shared_of(node) is None:
            lines += [f"## spec.{name}", "", *fields(node, f"spec.{name}"), ""]
    for shared in SHARED:
        lines += [f"## {shared.heading}", "", *shared_section(shared, spec), ""]
    lines += [MERGE_HEAD, *merge_table(), ""]
    written = ((path, kind, meaning) for path, kind, _, meaning in walk(status, "status", {}))
    lines += [
        "## status",
        "",
        *table("field | type | meaning", written),
        "",
        "## Columns of kubectl get",
        "",
        *columns(),
        "",
    ]
    return "\n".join(lines)


def overview(spec: Schema) -> Iterator[tuple[str, ...]]:
    for name, node in members(spec):
        yield row(name, node, "spec", spec, {})
        if name in IN_THE_FIRST_TABLE:
            yield from walk(unlisted(node), f"spec.{name}{suffix(node)}", {})


@cache
def part(name: str) -> Schema:
    """`spec` or `status`."""
    schema: Schema = root_schema()["properties"][name]
    return schema


def shared_section(shared: Shared, spec: Schema) -> Iterator[str]:
    if shared.heading == "Role":
        decode = spec["properties"]["decode"]["properties"]
        yield "The fields of `spec.unified`, `spec.prefill`, `spec.decode`; where decode's default differs, it is named."
        yield ""
        yield from fields(at(spec, shared.at[1:]), ROLE_PATH, others={"decode": decode})
        return
    yield f"The fields of every `{shared.name}`."
    yield ""
    yield from fields(at(spec, shared.at[1:]), shared.name)


def at(schema: Schema, path: tuple[str, ...]) -> Schema:
    for name in path:
        schema = schema["properties"][name]
    return schema


def fields(schema: Schema, path: str, others: dict[str, Schema] | None = None) -> list[str]:
    return table(COLUMN_NAMES, walk(schema, path, others or {}))


def members(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Fields of an object; of a list, of its items."""
    yield from schema.get("properties", schema.get("items", {}).get("properties", {})).items()


def walk(schema: Schema, path: str, others: dict[str, Schema]) -> Iterator[tuple[str, ...]]:
    for name, node in members(schema):
        yield row(name, node, path, schema, others)
        if shared_of(node) is None:
            yield from walk(unlisted(node), f"{path}.{name}{suffix(node)}", {})


def unlisted(node: Schema) -> Schema:
    """Descend into what a list or a map is made of, where that has fields."""
    inner = node.get("items") or node.get("additionalProperties")
    return inner if isinstance(inner, dict) and "properties" in inner else node


def suffix(node: Schema) -> str:
    return "[]" if "items" in node else ".*" if isinstance(node.get("additionalProperties"), dict) else ""


def row(name: str, node: Schema, path: str, parent: Schema, others: dict[str, Schema]) -> tuple[str, ...]:
    shared = shared_of(node)
    meaning = node.get("description", "")
    if shared is not None:
        meaning = f"{meaning} See [{shared.heading}](#{shared.heading.lower().replace(' ', '-')}).".strip()
    required = name in parent.get("items", parent).get("required", ())
    standard = "required" if required else default_text(node)
    for other, properties in others.items():
        if properties.get(name, {}).get("default") != node.get("default"):
            standard += f"; {other}: {default_text(properties[name])}"
    return (code(f"{path}.{name}".removeprefix(f"{ROLE_PATH}.")), type_text(node), standard, meaning)


def shared_of(node: Schema) -> Shared | None:
    """Find the shared group that a field is, by its members: an image with weights is called `image` too."""
    own = node.get("properties", {}).keys()
    return next((shared for shared in SHARED if own == at(part("spec"), shared.at[1:])["properties"].keys()), None)


def type_text(node: Schema) -> str:
    if node.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "enum" in node:
        return ", ".join(code(str(value)) for value in node["enum"])
    kind = str(node["type"])
    inner = node.get("items") or node.get("additionalProperties")
    if isinstance(inner, dict) and inner:
        return " ".join(["list of" if kind == "array" else "map to", type_text(inner), *bounds(node)])
    if node.get("x-kubernetes-preserve-unknown-fields"):
        return "any object"
    return "quantity" if node.get("pattern") == QUANTITY else " ".join([kind, *bounds(node)])


def bounds(node: Schema) -> Iterable[str]:
    """Limits in words, if there are any: `(1 to 1024)`, `(at most 63 characters)`."""
    found = []
    if "minimum" in node or "maximum" in node:
        low, high = node.get("minimum"), node.get("maximum")
        found.append(f"from {low}" if high is None else f"up to {high}" if low is None else f"{low} to {high}")
    for key, noun in (("maxLength", "characters"), ("maxItems", "items"), ("maxProperties", "entries")):
        if key in node:
            found.append(f"at most {node[key]} {noun}")
    if node.get("pattern", LINE) != LINE:  # said once, at the head
        found.append(code(node["pattern"]))
    return [f"({', '.join(found)})"] if found else []


def default_text(node: Schema) -> str:
    value = node.get("default")
    if value is None or value in ([], {}) or isinstance(value, dict):
        return ""  # an object's default is what its members say
    return code(value if isinstance(value, str) else json.dumps(value))


def merge_table() -> list[str]:
    note = "".join(f"; {key} is {value} where it is not written" for key, value in DEFAULTS.items())
    named = ((name, keys, note if set(DEFAULTS) & set(keys) else "") for name, keys in LIST_KEYS.items())
    rows = ((code(name), ", ".join(map(code, keys)) + remark) for name, keys, remark in named)
    return table("list | merged by", rows)


def columns() -> list[str]:
    shown = ((column, "with `-o wide`" if column.get("priority") else "always") for column in COLUMNS)
    rows = ((column["name"], when, code(column["jsonPath"])) for column, when in shown)
    return table("column | shown | from", rows)
