"""The part of the chart's values.schema.json that says what the operator's configuration may hold."""

from __future__ import annotations

import json
from typing import Any

from kvpp_operator.configuration import Configuration

Schema = dict[str, Any]

DEFINITIONS = "$defs"
PREFIX = "configuration."
"""Of the definitions that are ours; the others are the chart's own."""


def values_schema(present: str) -> str:
    """Put the configuration's schema of today into the text of a values.schema.json; everything else stays."""
    schema = json.loads(present)
    template = f"#/{DEFINITIONS}/{PREFIX}{{model}}"
    configuration = plain(Configuration.model_json_schema(by_alias=True, ref_template=template))
    ours = {f"{PREFIX}{name}": definition for name, definition in configuration.pop(DEFINITIONS, {}).items()}
    own = {name: definition for name, definition in schema[DEFINITIONS].items() if not name.startswith(PREFIX)}
    schema["properties"]["config"] = configuration
    return json.dumps({**schema, DEFINITIONS: own | ours}, indent=2, ensure_ascii=False) + "\n"


def plain(node: Any) -> Any:
    """Copy without the titles that pydantic gives to everything; a field called title is a map, never a text."""
    if isinstance(node, dict):
        kept = ((key, value) for key, value in node.items() if not (key == "title" and isinstance(value, str)))
        return named_members({key: plain(value) for key, value in kept})
    return [plain(item) for item in node] if isinstance(node, list) else node


def named_members(node: Schema) -> Schema:
    """Spell out a map with listed names: Helm 4.3 reports a wrong name of such a map at a wrong place."""
    if "propertyNames" not in node:
        return node
    others = {key: value for key, value in node.items() if key != "propertyNames"}
    members = dict.fromkeys(node["propertyNames"]["enum"], node["additionalProperties"])
    return {**others, "properties": members, "additionalProperties": False}
