"""Pydantic's schema of a configuration class, boiled down to what a value may be.

A type is one of (the operator's `engine_flags/types.py` reads the same):

    "any" "bool" "int" "float" "str"
    {"int": bounds} {"float": bounds}     bounds: some of ge, gt, le, lt
    {"one": [value, ...]}                 exactly one of these
    {"name": [name, ...]}                 one of these, in any case
    {"opt": T}                            T or null
    {"list": T} {"map": T}
    {"union": [T, ...]}
    {"fields": {name: T}}                 an object that forbids other keys
    {"fields": {name: T}, "open": true}   an object that takes them

Where a validator of the class looks at the raw value first, we can't know what it takes: "any". So a value that does not
fit is surely refused by the engine; one that fits may still be refused by a check across fields.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import SchemaValidator

Schema = dict[str, Any]
_MORE_RULES = {"min_length", "max_length", "pattern", "multiple_of"}
"""Rules that no type here can express."""
_INNER = ("default", "nullable", "function-after", "function-before", "function-wrap")


def describe(python_type: Any) -> Any:
    """The type of what `TypeAdapter(python_type).validate_json` takes."""
    return _Describer(TypeAdapter(python_type).core_schema).type_of()


class _Describer:
    def __init__(self, root: Any) -> None:
        self.root: Schema = root
        self.definitions: dict[str, Schema] = {}

    def type_of(self) -> Any:
        return self._of(self.root)

    def _of(self, schema: Schema) -> Any:
        if (ref := schema.get("ref")) is not None:
            self.definitions[ref] = schema
        if schema.keys() & _MORE_RULES:
            return "any"
        handler: Callable[[Schema], Any] | None = getattr(self, "_" + schema["type"].replace("-", "_"), None)
        return handler(schema) if handler else "any"

    def _definitions(self, schema: Schema) -> Any:
        self.definitions |= {one["ref"]: one for one in schema["definitions"]}
        return self._of(schema["schema"])

    def _definition_ref(self, schema: Schema) -> Any:
        return self._of(self.definitions[schema["schema_ref"]])

    def _default(self, schema: Schema) -> Any:
        return self._of(schema["schema"])

    def _function_after(self, schema: Schema) -> Any:
        return self._of(schema["schema"])

    def _function_before(self, schema: Schema) -> Any:
        return self._looked_at(schema)

    def _function_wrap(self, schema: Schema) -> Any:
        if "skip_none" in getattr(schema["function"]["function"], "__name__", ""):  # vLLM's: null stays null
            return _or_null(self._of(schema["schema"]))
        return self._looked_at(schema)

    def _looked_at(self, schema: Schema) -> Any:
        """A validator sees the raw value: what it does to an object's keys or an enumeration's names can be told."""
        inner = schema["schema"]
        while inner["type"] in _INNER:
            inner = inner["schema"]
        if inner["type"] in ("dataclass", "dataclass-args"):
            return self._of(inner)
        return _names(schema, cls) if (cls := _enumeration(inner)) else "any"

    def _nullable(self, schema: Schema) -> Any:
        return _or_null(self._of(schema["schema"]))

    def _json_or_python(self, schema: Schema) -> Any:
        return self._of(schema["json_schema"])

    def _lax_or_strict(self, schema: Schema) -> Any:
        return self._of(schema["lax_schema"])

    def _bool(self, _schema: Schema) -> Any:
        return "bool"

    def _str(self, _schema: Schema) -> Any:
        return "str"

    def _int(self, schema: Schema) -> Any:
        return _bounded("int", schema)

    def _float(self, schema: Schema) -> Any:
        return _bounded("float", schema)

    def _literal(self, schema: Schema) -> Any:
        return {"one": list(schema["expected"])}

    def _enum(self, schema: Schema) -> Any:
        if schema.get("missing") is not None:
            return "any"
        return {"one": [member.value for member in schema["members"]]}

    def _list(self, schema: Schema) -> Any:
        return {"list": self._of(schema["items_schema"]) if "items_schema" in schema else "any"}

    _set = _frozenset = _list

    def _tuple(self, schema: Schema) -> Any:
        items = schema["items_schema"]
        return {"list": self._of(items[0]) if len(items) == 1 or "variadic_item_index" in schema else "any"}

    def _dict(self, schema: Schema) -> Any:
        return {"map": self._of(schema["values_schema"]) if "values_schema" in schema else "any"}

    def _union(self, schema: Schema) -> Any:
        kinds = [self._of(one[0] if isinstance(one, tuple) else one) for one in schema["choices"]]
        return "any" if "any" in kinds else {"union": kinds}

    def _is_instance(self, _schema: Schema) -> Any:
        return {"one": []}  # nothing that JSON can say

    def _dataclass(self, schema: Schema) -> Any:
        described = self._of(schema["schema"])
        if isinstance(described, dict) and schema.get("config", {}).get("extra_fields_behavior") != "forbid":
            described["open"] = True
        return described

    def _dataclass_args(self, schema: Schema) -> Any:
        fields = {one["name"]: self._of(one["schema"]) for one in schema["fields"] if one.get("init", True)}
        return {"fields": fields}


def _bounded(kind: str, schema: Schema) -> Any:
    bounds = {name: schema[name] for name in ("ge", "gt", "le", "lt") if name in schema}
    return {kind: bounds} if bounds else kind


def _or_null(inner: Any) -> Any:
    return inner if inner == "any" or (isinstance(inner, dict) and "opt" in inner) else {"opt": inner}


def _enumeration(schema: Schema) -> type[enum.Enum] | None:
    cls = schema.get("cls")
    return cls if isinstance(cls, type) and issubclass(cls, enum.Enum) else None


def _names(schema: Schema, cls: type[enum.Enum]) -> Any:
    """Which names and numbers of the enumeration the validator takes, found out by asking it; null stays open."""
    validator = SchemaValidator(schema)
    names = [name for name in cls.__members__ if _takes(validator, name)]
    anycase = bool(names) and all(_takes(validator, name.lower()) and _takes(validator, name.upper()) for name in names)
    values = [one.value for one in cls if isinstance(one.value, int | str) and one.value not in names]
    others = [value for value in values if _takes(validator, value)]
    kinds = [{"name" if anycase else "one": names}] + ([{"one": others}] if others else [])
    told = kinds[0] if len(kinds) == 1 else {"union": kinds}
    return {"opt": told} if _takes(validator, None) else told


def _takes(validator: SchemaValidator, value: Any) -> bool:
    try:
        validator.validate_json(json.dumps(value))
    except Exception:  # noqa: BLE001  (a KeyError of a validator is a refusal as well)
        return False
    return True
