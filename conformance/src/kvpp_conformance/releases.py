"""Which vLLM wheel belongs to which vLLM Ascend release.

Source: facts section 9 and the engine-parser notes. The operator's own table is not imported, so that an error in it
shows when the two are compared (tests/conformance).
"""

from __future__ import annotations

PAIRS = {"0.28.0rc1": "0.28.0", "0.29.0rc1": "0.29.0", "0.30.0rc1": "0.30.0", "0.30.0rc2": "0.30.0"}
NEWEST = "0.30.0rc2"
VLLM = tuple(dict.fromkeys(PAIRS.values()))


def ascend(names: list[str]) -> list[str]:
    """The vLLM Ascend releases that are meant: `all`, `newest`, and a vLLM version means each release made for it.

    Raises ValueError for a name that is neither.
    """
    if names == ["all"]:
        return list(PAIRS)
    chosen: list[str] = []
    for name in (NEWEST if name == "newest" else name for name in names):
        meant = [name] if name in PAIRS else [release for release, vllm in PAIRS.items() if vllm == name]
        if not meant:
            raise ValueError(f"unknown version {name}: known are {', '.join([*PAIRS, *VLLM])}")
        chosen += meant
    return list(dict.fromkeys(chosen))
