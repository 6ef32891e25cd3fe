"""Types of a PodSpec and of all that stands in one: Kubernetes' API, as the official client 36 knows it.

`pod_spec.json` has them by name: field → `text`, `integer`, `number`, `truth`, `quantity`, `any`, another type's name, `[…]` for a
list and `{…}` for a map of them. tests/rules/test_pod_types.py compares it with the client.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

Types = dict[str, dict[str, str]]


@cache
def types() -> Types:
    found: Types = json.loads(files(__package__).joinpath("pod_spec.json").read_text("utf-8"))
    return found
