"""What can be wrong with an argument, in words for the person who wrote it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

ProblemKind = Literal[
    "unknown-flag", "ambiguous-flag", "missing-value", "unexpected-value", "wrong-type", "not-a-choice", "invalid-json",
    "unknown-key", "positional", "stops-early", "second-model", "config-file", "no-keys", "separator",
]  # fmt: skip
STRICTER: tuple[ProblemKind, ...] = ("no-keys", "separator")
"""What the engine's parser would take, and nobody can mean: keys of a flag whose value is no JSON, and a lone `--`."""


@dataclass(frozen=True)
class Problem:
    """Why the engine's parser refuses an argument. `closest`: what may have been meant, likeliest first."""

    kind: ProblemKind
    message: str
    expected: str = ""
    closest: tuple[str, ...] = ()


ALIKE = 0.7
"""Below that, words share letters and no meaning: --rope-scaling, --return-sampling-mask."""

ALIKE_WORDS = 0.6


def closest(wrong: str, known: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """The known names that look like the wrong one; a long flag is no slip of a short one."""
    alike = [name for name in known if name.startswith("--") == wrong.startswith("--") and is_slip(wrong, name)]
    return tuple(difflib.get_close_matches(wrong, alike, n=most, cutoff=ALIKE))


def is_slip(wrong: str, name: str) -> bool:
    """Whether the words that two names do not share look alike: torchair_graph_config is not xlite_graph_config."""
    if name.startswith(wrong) or wrong.startswith(name):
        return True
    left, right = (re.split("[-_.]+", one.strip("-")) for one in (wrong, name))
    apart = "".join(word for word in left if word not in right), "".join(word for word in right if word not in left)
    return not any(apart) or difflib.SequenceMatcher(None, *apart).ratio() >= ALIKE_WORDS


def or_list(names: Iterable[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last
