"""What the engine's parser makes of a list of arguments, and everything that it would refuse.

Mirrors argparse (`_parse_known_args`, `_parse_optional`, `_get_option_tuples`) as `vllm serve MODEL …` uses it: abbreviations
of long and short flags, values in the same word, clusters of short flags. argparse stops at the first error; we go on.
tests/engine_flags holds the spellings, `python -m kvpp_conformance agree` compares thousands of random lists with the
real parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kvpp_operator.engine_flags import values
from kvpp_operator.engine_flags.catalogue import Flag, FlagCatalogue
from kvpp_operator.engine_flags.problems import Problem, closest, or_list
from kvpp_operator.engine_flags.spelling import Dotted, Key, Word, respell

_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")
_CONFIG = "--config"
_SHORT = 2
"""Characters of a short flag that may stand in a cluster: `-q`."""


@dataclass(frozen=True)
class Argument:
    """One use of a flag, or a word that is none."""

    index: int
    """Of its first word in the list."""
    text: str
    """That word, as written."""
    flag: str | None
    """The canonical name; None: unknown, or no flag at all."""
    path: str | None = None
    """The key inside the flag's JSON, dotted, when it was given key by key."""
    values: tuple[str, ...] = ()
    """As written. Of a dotted key, its one value."""
    negated: bool = False
    """Written as `--no-…`."""
    problems: tuple[Problem, ...] = ()

    @property
    def problem(self) -> Problem | None:
        return self.problems[0] if self.problems else None


@dataclass(frozen=True)
class ParsedArguments:
    """All arguments, in the order of the list."""

    arguments: tuple[Argument, ...]

    def __iter__(self) -> Iterator[Argument]:
        return iter(self.arguments)

    @property
    def problems(self) -> tuple[tuple[Argument, Problem], ...]:
        """Everything the engine would refuse; empty: it takes the list."""
        return tuple((argument, problem) for argument in self.arguments for problem in argument.problems)

    def of(self, flag: str) -> tuple[Argument, ...]:
        """Every use of a flag, by canonical name."""
        return tuple(argument for argument in self.arguments if argument.flag == flag)

    def last(self, flag: str) -> Argument | None:
        """The use that counts, of a flag that overwrites."""
        return (*(None,), *self.of(flag))[-1]


@dataclass(frozen=True)
class _Option:
    """A word that argparse takes for an option: one flag, or several candidates, or none."""

    name: str
    flag: Flag | None
    attached: str | None = None
    candidates: tuple[str, ...] = ()


def parse(arguments: Sequence[str], catalogue: FlagCatalogue) -> ParsedArguments:
    """Read what stands after `vllm serve MODEL`. Never raises; every mistake is a problem of its argument."""
    respelled = respell(arguments)
    reader = _Reader(arguments, catalogue)
    found = [
        *reader.plain(respelled.words),
        *(reader.config_file(respelled.config)),
        *(
            reader.bad(index, Problem("missing-value", f"{arguments[index]} has no value"))
            for index in respelled.unfinished
        ),
    ]
    models = {*respelled.models}
    found = [one for one in found if one.index not in models] + [reader.model(index) for index in respelled.models]
    return ParsedArguments(tuple(sorted(found, key=lambda one: one.index)))


class _Reader:
    def __init__(self, arguments: Sequence[str], catalogue: FlagCatalogue) -> None:
        self.arguments, self.catalogue = arguments, catalogue

    def plain(self, words: list[Word]) -> Iterator[Argument]:
        """Options with the words after them, as many as each wants; what is left over is a problem."""
        options = _options(words, self.catalogue)
        place = 0
        while place < len(words):
            word, option = words[place], options[place]
            place += 1
            if word.dotted is not None:
                yield from self._keys(word.dotted, option)
                place += 1
                continue
            if option is None:
                yield self.bad(word.index, _stray(word.text))
                continue
            run = 0
            while place + run < len(words) and options[place + run] is None and words[place + run].text != "--":
                run += 1
            taken = min(run, self._wanted(option))
            yield from self._option(word, option, [one.text for one in words[place : place + taken]])
            place += taken

    def config_file(self, places: list[int]) -> Iterator[Argument]:
        """`--config FILE`: its content can't be judged here, only that there is one file."""
        for nth, index in enumerate(places):
            file = self.arguments[index + 1] if index + 1 < len(self.arguments) else None
            if nth:
                problem = Problem("config-file", f"{_CONFIG} is given more than once")
            elif file is None:
                problem = Problem("missing-value", f"{_CONFIG} has no value", "a YAML file")
            elif file.rsplit(".", 1)[-1] not in ("yaml", "yml"):
                problem = Problem("config-file", f"{_CONFIG}: {file!r} is not a .yaml file", "a YAML file")
            else:
                yield Argument(index, _CONFIG, _CONFIG, values=(file,))
                continue
            yield Argument(index, _CONFIG, _CONFIG, values=(file,) if file else (), problems=(problem,))

    def model(self, index: int) -> Argument:
        """`--model X`: vLLM moves it to the front, where the model then stands twice."""
        text = self.arguments[index]
        return Argument(
            index, text, "--model", problems=(Problem("second-model", f"{text}: the model is given already"),)
        )

    def bad(self, index: int, problem: Problem) -> Argument:
        return Argument(index, self.arguments[index], None, problems=(problem,))

    def _keys(self, dotted: Dotted, option: _Option | None) -> Iterator[Argument]:
        """The keys of one flag; they become one JSON value, so they are judged together and blamed one by one."""
        if option is None or option.flag is None:
            problem = Problem("positional", f"{dotted.head!r} is no flag") if option is None else self._unknown(option)
            yield from (self._key(None, key, (problem,)) for key in dotted.keys)
            return
        flag = option.flag
        if option.attached is not None or not flag.takes_json:
            problem = Problem("no-keys", f"{flag.name} is not JSON and has no keys")
            yield from (self._key(flag, key, (problem,)) for key in dotted.keys)
            return
        for key in dotted.keys:
            inside = values.misfits(flag, dotted.merged, key.path) if flag.kind == "object" else ()
            yield self._key(flag, key, tuple(inside))

    def _wanted(self, option: _Option) -> int:
        """How many of the following words the option takes at most; an unknown one keeps all, to be blamed once."""
        if option.attached is not None:
            return 0
        if option.flag is None:
            return len(self.arguments)
        most = {0: 0, 1: 1, "?": 1, "+": len(self.arguments)}
        return most[option.flag.values]

    def _option(self, word: Word, option: _Option, following: list[str]) -> Iterator[Argument]:
        if option.flag is None:
            yield replace(self.bad(word.index, self._unknown(option)), values=tuple(following))
        elif option.attached is not None:
            yield from self._attached(word, option, option.attached)
        else:
            yield self._use(word, option, option.flag, following)

    def _attached(self, word: Word, option: _Option, attached: str) -> Iterator[Argument]:
        """`--flag=value`, `-q4`, or a cluster of short flags (`-ep=q4` is `-ep -q 4` to argparse)."""
        flag: Flag | None = option.flag
        name = option.name
        while flag is not None and flag.values == 0 and not name.startswith("--") and attached:
            yield self._use(word, _Option(name, flag), flag, [])
            name, attached = "-" + attached[0], attached[1:]
            flag = self.catalogue.spellings.get(name)
            if flag is not None and not attached:
                yield self._use(word, _Option(name, flag), flag, [])
                return
        if flag is None or flag.values == 0:
            problem = Problem("unexpected-value", f"{option.name} takes no value", "no value")
            yield self.bad(word.index, problem)
        else:
            yield self._use(word, _Option(name, flag), flag, [attached])

    def _use(self, word: Word, option: _Option, flag: Flag, given: list[str]) -> Argument:
        problems = [problem for one in given for problem in values.problems(flag, one)]
        if not given and flag.values in (1, "+"):
            problems.append(Problem("missing-value", f"{option.name} needs a value"))
        if flag.name == "--help":
            problems.append(Problem("stops-early", "prints the help and ends"))
        negated = flag.kind == "flag" and option.name.startswith("--no-") and option.name != flag.name
        text = self.arguments[word.index]
        return Argument(word.index, text, flag.name, None, tuple(given), negated=negated, problems=tuple(problems))

    def _key(self, flag: Flag | None, key: Key, problems: tuple[Problem, ...]) -> Argument:
        name = flag.name if flag else None
        return Argument(key.index, self.arguments[key.index], name, ".".join(key.path), (key.text,), problems=problems)

    def _unknown(self, option: _Option) -> Problem:
        if option.candidates:
            names = or_list(option.candidates[:5])
            return Problem("ambiguous-flag", f"{option.name} may mean {names}", closest=option.candidates)
        like = closest(option.name, self.catalogue.spellings)
        return Problem("unknown-flag", f"{option.name} is no flag of this engine version", closest=like)


def _stray(text: str) -> Problem:
    if text == "--":
        return Problem("separator", "-- separates nothing here: every word after it belongs to no flag")
    return Problem("positional", f"{text!r} belongs to no flag")


def _options(words: list[Word], catalogue: FlagCatalogue) -> list[_Option | None]:
    """For each word, what argparse takes it for; after `--` nothing is an option. `--` itself is none either."""
    ended = False
    kinds: list[_Option | None] = []
    for word in words:
        ended = ended or word.text == "--"
        kinds.append(None if ended else _option(word.text, catalogue))
    return kinds


def _option(text: str, catalogue: FlagCatalogue) -> _Option | None:
    """`_parse_optional`: None is a value."""
    if not text.startswith("-") or text == "-":
        return None
    if flag := catalogue.spellings.get(text):
        return _Option(text, flag)
    name, equals, value = text.partition("=")
    attached = value if equals else None
    if equals and (flag := catalogue.spellings.get(name)):
        return _Option(name, flag, attached)
    found = list(_abbreviated(text, name, attached, catalogue))
    if len(found) == 1:
        return found[0]
    if not found and (_NEGATIVE.fullmatch(text) or " " in text):
        return None
    return _Option(name, None, candidates=tuple(one.name for one in found))


def _abbreviated(text: str, name: str, attached: str | None, catalogue: FlagCatalogue) -> Iterable[_Option]:
    """`_get_option_tuples`: every spelling that the word may be the beginning of."""
    if text.startswith("--"):
        return (_Option(full, catalogue.spellings[full], attached) for full in catalogue.named(name))
    short, rest = text[:_SHORT], text[_SHORT:]
    begun = [
        _Option(full, flag) for full, flag in catalogue.spellings.items() if full.startswith(text) and full != short
    ]
    if flag := catalogue.spellings.get(short):
        return [_Option(short, flag, rest), *begun]
    return begun
