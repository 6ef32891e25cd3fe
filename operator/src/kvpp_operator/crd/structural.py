"""JSON Schema as pydantic writes it → the structural schema that an API server takes.

Raises on anything it does not know, so that a new kind of field is decided on and not dropped. What has no form:
unions other than `X | None` and int-or-string, tuples. Measured against a real API server: reference, section 5.4.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

KEPT = (
    "type", "format", "description", "default", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength",
    "minItems", "maxItems", "minProperties", "maxProperties", "required",
)  # fmt: skip
DROPPED = ("title", "additionalProperties", "$defs")
EXTENSION = "x-kubernetes-"


class NotStructuralError(ValueError):
    """The schema says something that a CRD can't; the message has the path."""


def structural(schema: Schema) -> Schema:
    return convert(schema, schema.get("$defs", {}), "$")


def convert(node: Schema, definitions: dict[str, Schema], path: str) -> Schema:
    node = unwrapped(node, definitions, path)
    converted: Schema = {key: node[key] for key in KEPT if node.get(key) is not None}
    converted |= {key: value for key, value in node.items() if key.startswith(EXTENSION)}
    if "const" in node:
        converted["enum"] = [node["const"]]
    if "enum" in converted:
        converted.setdefault("type", "string")
    if "properties" in node:
        converted["properties"] = {
            name: convert(field, definitions, f"{path}.{name}") for name, field in node["properties"].items()
        }
    if "items" in node:
        converted["items"] = convert(node["items"], definitions, f"{path}[]")
    settle_default(converted)
    extra = node.get("additionalProperties")
    if isinstance(extra, dict) and extra:
        converted["additionalProperties"] = convert(extra, definitions, f"{path}.*")
    elif extra is True or extra == {}:
        converted[f"{EXTENSION}preserve-unknown-fields"] = True
    known = {*KEPT, *DROPPED, "const", "properties", "items"}
    if unknown := {key for key in node if key not in known and not key.startswith(EXTENSION)}:
        raise NotStructuralError(f"{path}: no structural form for {', '.join(sorted(unknown))}")
    if not {"type", f"{EXTENSION}int-or-string"} & converted.keys():
        raise NotStructuralError(f"{path}: no type")
    return converted


def settle_default(schema: Schema) -> None:
    """An object's default is `{}`, and the API server fills in the defaults of its fields; empty collections need none:
    `extraArgs: []` and `podTemplate: {}` in every live object would be noise that means nothing.
    """
    if isinstance(schema.get("default"), dict):
        fields = schema.get("properties", {}).values()
        if any("default" in field for field in fields):
            schema["default"] = {}
        else:
            del schema["default"]
    elif schema.get("default") == []:
        del schema["default"]


BOUNDS_OF_TEXT = ("pattern", "maxLength")
"""What an API server asks of the text in an int-or-string; numbers pass it."""


def unwrapped(node: Schema, definitions: dict[str, Schema], path: str) -> Schema:
    """References inlined, `X | None` become X, int | str become int-or-string."""
    node = dict(node)
    if (reference := node.pop("$ref", None)) is not None:
        return unwrapped({**definitions[reference.rsplit("/", 1)[-1]], **node}, definitions, path)
    if (choices := node.pop("anyOf", None)) is None:
        return node
    real = [choice for choice in choices if choice.get("type") != "null"]
    if node.get(f"{EXTENSION}int-or-string"):
        texts = [choice for choice in real if choice.get("type") == "string"]
        bounds = {key: value for text in texts for key, value in text.items() if key in BOUNDS_OF_TEXT}
        return {key: value for key, value in node.items() if key not in ("type", "pattern")} | bounds
    if len(real) != 1:
        raise NotStructuralError(f"{path}: a union has no structural form")
    if node.get("default", ...) is None:
        node.pop("default")
    return unwrapped({**real[0], **node}, definitions, path)
