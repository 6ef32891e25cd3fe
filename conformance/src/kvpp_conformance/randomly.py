"""Random argument lists for `vllm serve`: right and wrong values, in every spelling, from a release's own catalogue."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from kvpp_operator.engine_flags import Flag, FlagCatalogue

LEFT_OUT = {
    "--model": "moved to the front by vLLM; tests/engine_flags",
    "--config": "reads a file; tests/engine_flags",
    "--help": "prints and ends; tests/engine_flags",
    "--chat-template": "looks for a file",
    "--data-parallel-multi-port-external-lb": "checks that the operator never needs",
}
"""Flags that the lists do not use, and why."""

_WORDS = (
    "", "None", "auto", "abc", "a,b", "x=1", "4", "0", "-1", "-0.5", "-1k", "+3", "007", "1_000", "1.5", "1e3", "nan", "32k", "1.5k",
    "1.5K", "2M", "12Q", "true", "null", "{}", "[]", "[1, 2]", '["a"]', '{"a": 1}', '{"a": {"b": [1, 2]}}', "{a}", '"x"', "{'a': 1}",
    "-", "- x", "a b", "None ", " 4 ", "fp8", "FP8", "int8", "deep-gemm", "1.5x", "ä", "-x", "--x y",
)  # fmt: skip
_STRAYS = (
    "stray",
    "-x",
    "--unknown-flag",
    "--",
    "-O",
    "-O2",
    "-O=1",
    "-O.level=3",
    "-Ofast",
    "-v",
    "--n",
    "-",
    "--no-seed",
    "-ep=q4",
    "-q8",
)


class Lists:
    """An endless source of argument lists; the same seed gives the same lists."""

    def __init__(self, catalogue: FlagCatalogue, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311  (tests, not secrets)
        self.catalogue = catalogue
        self.flags = [flag for flag in catalogue.flags.values() if flag.name not in LEFT_OUT]
        self.json_flags = [flag for flag in self.flags if flag.takes_json]

    def next(self) -> list[str]:
        parts = [self._part() for _ in range(self.random.choice((1, 1, 1, 2, 3, 5)))]
        return [word for part in parts for word in part]

    def _part(self) -> list[str]:
        kinds: tuple[Callable[[], list[str]], ...] = (self._plain, self._dotted, self._stray)
        return self.random.choices(kinds, weights=(14, 5, 1))[0]()

    def _stray(self) -> list[str]:
        return [self.random.choice(_STRAYS)]

    def _plain(self) -> list[str]:
        flag = self.random.choice(self.json_flags if self._once_in(8) else self.flags)
        name = self._spelled(self.random.choice(flag.names))
        words = self._values(flag)
        if words and self._once_in(3):
            return [f"{name}={words[0]}", *words[1:]]
        return [name, *words]

    def _dotted(self) -> list[str]:
        flag = self.random.choice(self.flags if self._once_in(10) else self.json_flags)
        kind, path = flag.type or "any", []
        while isinstance(kind, dict) and kind.keys() & {"fields", "opt"}:
            if "opt" in kind:
                kind = kind["opt"]
                continue
            key = self.random.choice([*kind["fields"]])
            path.append(key)
            kind = kind["fields"][key]
        path = path or [self.random.choice(("a", "method", "a_b"))]
        if self._once_in(8):
            path[-1] = self._typo(path[-1])
        value = json.dumps(self._json(kind)) if self._once_in(2) else self._bare(kind)
        name = f"{self._spelled(self.random.choice(flag.names))}.{'.'.join(path)}" + ("+" if self._once_in(8) else "")
        return [f"{name}={value}"] if self._once_in(2) else [name, value]

    def _spelled(self, name: str) -> str:
        match self.random.randrange(10):
            case 0 | 1 if name.startswith("--"):
                return "--" + name[2:].replace("-", "_")
            case 2:
                return name[: self.random.randint(2, len(name))]
            case 3 if self._once_in(3):
                return self._typo(name)
        return name

    def _typo(self, word: str) -> str:
        place = self.random.randrange(len(word))
        return word[:place] + self.random.choice(("", "x", "-", "aa")) + word[place + 1 :]

    def _values(self, flag: Flag) -> list[str]:
        if flag.values == 0:
            return [self.random.choice(_WORDS)] if self._once_in(12) else []
        wanted = {1: 1, "?": self.random.randrange(2), "+": self.random.randint(1, 3)}[flag.values]
        if self._once_in(15):
            wanted = self.random.choice((0, 2))
        return [self._value(flag) for _ in range(wanted)]

    def _value(self, flag: Flag) -> str:  # noqa: PLR0911  (a table of kinds)
        if self._once_in(4):
            return self.random.choice(_WORDS)
        if flag.choices and not self._once_in(6):
            return str(self.random.choice(flag.choices))
        match flag.kind:
            case "int":
                return str(self.random.randint(-2, 70000))
            case "float":
                return self.random.choice(("0.5", "1", "-1", "1e-3", "3.25"))
            case "count" | "count|auto":
                return self.random.choice(("4096", "32k", "1M", "1.5m", "auto", "-1", "2.5G"))
            case "object":
                return json.dumps(self._json(flag.type))
            case "json" | "json|str":
                return json.dumps(self._json("any"))
            case "lora":
                return self.random.choice(
                    ("a=/b", '{"name": "a", "path": "/b"}', '{"name": "a"}', '{"name": "a", "path": "/b", "x": 1}')
                )
        return self.random.choice(("value", "a-b", "/path/to.x", "auto"))

    def _json(self, kind: Any) -> Any:  # noqa: PLR0911  (a table of types)
        """A value of the type, now and then not."""
        if self._once_in(12):
            return self.random.choice(
                (None, True, 0, 1, -7, 2.5, 4.0, "x", "4", " 4", "yes", "1.0", [], [1], {}, {"a": 1})
            )
        if isinstance(kind, str):
            some = {"int": (0, 1, 8, 4096), "float": (0.5, 1, 2.5), "str": ("x", "zmq"), "bool": (True, False)}
            return self.random.choice(some.get(kind, (1, "x", True, None, [1], {"k": 1})))
        (name, inner), *_ = kind.items()
        match name:
            case "opt":
                return None if self._once_in(4) else self._json(inner)
            case "one" | "name":
                chosen = self.random.choice(inner or ["x"])
                return chosen.lower() if name == "name" and self._once_in(2) else chosen
            case "list":
                return [self._json(inner) for _ in range(self.random.randrange(3))]
            case "map":
                return {key: self._json(inner) for key in self.random.sample(("a", "b", "c"), self.random.randrange(3))}
            case "union":
                return self._json(self.random.choice(inner))
            case "fields":
                keys = self.random.sample([*inner], min(len(inner), self.random.choice((0, 1, 1, 2))))
                return {self._typo(key) if self._once_in(20) else key: self._json(inner[key]) for key in keys}
        return self.random.choice((-1, 0, 1, 2, 100))

    def _bare(self, kind: Any) -> str:
        value = self._json(kind)
        return value if isinstance(value, str) else self.random.choice((json.dumps(value), *_WORDS))

    def _once_in(self, times: int) -> bool:
        return self.random.randrange(times) == 0
