"""Releases of vLLM Ascend that we know: which rules, flags and image tag they have.

Source: facts section 9 (release table) and 1.3 (what each release accepts). `latest` is the branch that the seed guide describes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from packaging.version import InvalidVersion, Version


@dataclass(frozen=True, order=True)
class Release:
    """One engine release; ordered by age, `latest` last."""

    age: int
    name: str = field(compare=False)
    vllm: str = field(compare=False)
    tag: str = field(compare=False)


RELEASES = (
    Release(0, "0.28.0rc1", vllm="0.28.0", tag="v0.28.0rc1"),
    Release(1, "0.29.0rc1", vllm="0.29.0", tag="v0.29.0rc1"),
    Release(2, "0.30.0rc1", vllm="0.30.0", tag="v0.30.0rc1"),
    Release(3, "0.30.0rc2", vllm="0.30.0", tag="v0.30.0rc2"),
    Release(4, "latest", vllm="0.30.0", tag="nightly-main"),
)
BY_NAME = {release.name: release for release in RELEASES}
FIRST, LATEST = RELEASES[0], RELEASES[-1]
NEWEST_PINNED = RELEASES[-2]


def known(name: str) -> Release | None:
    """The release of that name; PEP 440 spellings of the same version count (`0.30.0-rc2`)."""
    if name in BY_NAME:
        return BY_NAME[name]
    wanted = parsed(name)
    return next((r for r in RELEASES if wanted is not None and parsed(r.name) == wanted), None)


def parsed(name: str) -> Version | None:
    try:
        return Version(name)
    except InvalidVersion:
        return None


def is_older_than_kvpp(name: str) -> bool:
    """Before 0.28.0rc1 no release has KVPP: the key is ignored or stops the engine (launch facts 1.3)."""
    wanted, first = parsed(name), parsed(FIRST.name)
    return wanted is not None and first is not None and wanted < first


def nearest(name: str) -> Release:
    """The known release that an unknown version is most like: the newest that is not newer than it."""
    wanted = parsed(name)
    if wanted is None:
        return NEWEST_PINNED
    older = [r for r in RELEASES[:-1] if (own := parsed(r.name)) is not None and own <= wanted]
    return older[-1] if older else FIRST
