"""Write the flag catalogues that ship with the operator, from the real parsers and the plugin's own classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kvpp_conformance.environment import Say
from kvpp_conformance.releases import PAIRS
from kvpp_conformance.session import Engine
from kvpp_operator.engine_flags.ascend import ADDITIONS
from kvpp_operator.engine_flags.catalogue import Flag, FlagCatalogue, from_data

FOLDER = Path("operator/src/kvpp_operator/engine_flags/data")

Data = dict[str, Any]


class IncompleteAdditions(RuntimeError):  # noqa: N818
    """engine_flags/ascend.py is not what the plugin really adds; the text lists the flags and both sides."""


def read(release: str, say: Say) -> Data:
    """The data of one release. Raises IncompleteAdditions, EnvironmentProblem."""
    flags = _plain_flags(PAIRS[release], release, say)
    with Engine(release, say=say) as engine:
        with_plugin, additional = engine.ask([{"do": "flags"}, {"do": "additional"}])
    keys = additional["keys"]
    data = {
        "source": f"vllm {PAIRS[release]} and vllm-ascend {release}",
        "flags": [row(one) for one in flags],
        "additional": keys["fields"],
        "ignored": keys["ignored"],
    }
    _require_complete(release, data, data | {"flags": [row(one) for one in with_plugin["flags"]]})
    return data


_PLAIN: dict[str, list[Data]] = {}


def _plain_flags(vllm: str, release: str, say: Say) -> list[Data]:
    """The flags of a vLLM release alone; asked once for all plugin releases that are made for it."""
    if vllm not in _PLAIN:
        with Engine(release, plain=True, say=say) as engine:
            (answer,) = engine.ask([{"do": "flags"}])
        _PLAIN[vllm] = answer["flags"]
    return _PLAIN[vllm]


def row(flag: Data) -> list[Any]:
    """The compact form (engine_flags/catalogue.py reads it): what is usual is left out."""
    names = [flag["name"], *(name for name in flag["names"] if name != flag["name"])]
    unusual = {name: flag[name] for name in ("optional", "repeats", "deprecated") if flag[name]}
    if flag.get("choices"):
        unusual["choices"] = flag["choices"]
    if "schema" in flag:
        unusual["type"] = flag["schema"]
    return [" ".join(names), flag["kind"], flag["values"], *([unusual] if unusual else [])]


def write(release: str, data: Data, folder: Path = FOLDER) -> Path:
    """The data file of one release."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{release}.json"
    target.write_text(text(data))
    return target


def text(data: Data) -> str:
    """One flag a line, so that a new release shows as a readable difference."""
    flags = ",\n".join(_compact(one) for one in data["flags"])
    keys = ",\n".join(f"{_compact(key)}:{_compact(kind)}" for key, kind in data["additional"].items())
    return (
        f'{{"source":{_compact(data["source"])},\n"flags":[\n{flags}\n],\n"additional":{{\n{keys}\n}},\n'
        f'"ignored":{_compact(data["ignored"])}}}\n'
    )


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _require_complete(release: str, plain: Data, with_plugin: Data) -> None:
    ours = from_data(release, plain, ADDITIONS[release])
    real = from_data(release, with_plugin, ())
    wrong = differences(ours, real)
    if wrong:
        raise IncompleteAdditions(f"{release}: engine_flags/ascend.py and the plugin differ:\n" + "\n".join(wrong))


def differences(ours: FlagCatalogue, real: FlagCatalogue) -> list[str]:
    names = [*ours.flags, *(name for name in real.flags if name not in ours.flags)]
    pairs = [(name, ours.flags.get(name), real.flags.get(name)) for name in names]
    return [
        f"{name}\n  ours: {mine}\n  real: {its}" for name, mine, its in pairs if _comparable(mine) != _comparable(its)
    ]


def _comparable(flag: Flag | None) -> Any:
    """Order of choices means nothing."""
    return flag and (flag.names, flag.kind, flag.values, sorted(map(str, flag.choices)), _sorted(flag.type))


def _sorted(kind: Any) -> Any:
    if isinstance(kind, dict):
        return {name: sorted(map(str, inner)) if name == "one" else _sorted(inner) for name, inner in kind.items()}
    return kind
