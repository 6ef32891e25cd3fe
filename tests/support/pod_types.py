"""The types of a PodSpec and of all that stands in one, as the official client knows them: written to the catalogue.

PYTHONPATH=tests/support python -m pod_types
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from kubernetes.client import models

FILE = Path(__file__).parents[2] / "operator" / "src" / "kvpp_operator" / "catalogue" / "pod_spec.json"
SCALARS = {"str": "text", "int": "integer", "bool": "truth", "float": "number", "datetime": "text", "object": "any"}
QUANTITIES = {"limits": "{quantity}", "requests": "{quantity}", "sizeLimit": "quantity", "divisor": "quantity"}
"""The client calls a quantity text; the API server takes a number, too."""


def type_of(written: str) -> str:
    """`list[V1Container]` → `[Container]`, `dict(str, str)` → `{text}`."""
    if found := re.fullmatch(r"[Ll]ist\[(.*)\]", written):
        return f"[{type_of(found[1])}]"
    if found := re.fullmatch(r"[Dd]ict[(\[]str, (.*)[)\]]", written):
        return f"{{{type_of(found[1])}}}"
    return SCALARS.get(written) or written.removeprefix("V1")


def closure(name: str, known: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    if name in known or not hasattr(models, f"V1{name}"):
        return known
    model = getattr(models, f"V1{name}")
    fields = {model.attribute_map[field]: type_of(written) for field, written in model.openapi_types.items()}
    known[name] = {field: QUANTITIES.get(field, kind) for field, kind in sorted(fields.items())}
    for kind in fields.values():
        closure(kind.strip("[]{}"), known)
    return known


def text() -> str:
    types = closure("PodSpec", {})
    lines = (f"  {json.dumps(name)}: {json.dumps(types[name])}" for name in sorted(types))
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
