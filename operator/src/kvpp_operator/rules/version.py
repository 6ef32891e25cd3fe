"""The engine's version: which rules, flags and image it stands for."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator import versions
from kvpp_operator.resolve import Resolved
from kvpp_operator.rules import shape
from kvpp_operator.rules.base import Fact, Remove, Set, rule
from kvpp_operator.world import World

PATH = "spec.engine.version"
RULES_FROM = "spec.engine.rulesFrom"
GATES = "launch facts 1.3: which release accepts what"


@rule(
    "VERSION001",
    severity="error",
    evidence="guide",
    source=f"{GATES}; 0.27.1rc1 stops at the key enable_kvpp, stable releases ignore it silently",
    message="vLLM Ascend {value} has no KVPP; the first release with it is {oldest}.",
    fix="or an image of {oldest} or newer",
)
def older_than_kvpp(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A release from before KVPP."""
    version = resolved.spec.engine.version
    if resolved.spec.kvpp.enabled and versions.is_older_than_kvpp(version):
        yield Fact(PATH, version, (Set(PATH, versions.NEWEST_PINNED.name),), {"oldest": versions.FIRST.name})


@rule(
    "VERSION002",
    severity="error",
    evidence="guide",
    source="contract, engine.rulesFrom: an unknown version is judged only when a known one is chosen explicitly",
    message="The rules of vLLM Ascend {value} are unknown; known are {known}.",
    fix="to judge it by the rules of that release",
)
def unknown_version(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A version without rules, and no word on which to use."""
    engine = resolved.spec.engine
    older = resolved.spec.kvpp.enabled and versions.is_older_than_kvpp(engine.version)
    if versions.known(engine.version) is None and engine.rules_from is None and not older:
        near = versions.nearest(engine.version).name
        yield Fact(PATH, engine.version, (Set(RULES_FROM, near),), {"known": ", ".join(versions.BY_NAME)})


@rule(
    "VERSION003",
    severity="error",
    evidence="guide",
    source="contract, engine.rulesFrom: a known version",
    message="rulesFrom names {value}, whose rules are unknown too; known are {known}.",
    fix="",
)
def rules_from_unknown_version(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A rulesFrom that is no known version."""
    engine = resolved.spec.engine
    if engine.rules_from is not None and versions.known(engine.rules_from) is None:
        meant = shape.closest(engine.rules_from, versions.BY_NAME) or versions.nearest(engine.version).name
        yield Fact(RULES_FROM, engine.rules_from, (Set(RULES_FROM, meant),), {"known": ", ".join(versions.BY_NAME)})


@rule(
    "VERSION004",
    severity="warning",
    evidence="guide",
    source="contract, engine.rulesFrom: for versions without rules of their own",
    message="rulesFrom has no effect: vLLM Ascend {version} has rules of its own.",
    fix="",
)
def pointless_rules_from(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A rulesFrom beside a known version."""
    engine = resolved.spec.engine
    if engine.rules_from is not None and versions.known(engine.version) is not None:
        yield Fact(RULES_FROM, engine.rules_from, (Remove(RULES_FROM),), {"version": engine.version})


@rule(
    "VERSION005",
    severity="warning",
    evidence="guide",
    source="contract, engine.version: latest is the moving tag nightly-main; the seed guide describes that branch",
    message="latest follows the moving nightly tag: two pods may run different images, and the rules may be behind "
    "them.",
    fix="or pin engine.image.digest",
)
def latest_without_digest(resolved: Resolved, _: World) -> Iterator[Fact]:
    """The newest branch without a pinned image."""
    engine = resolved.spec.engine
    if engine.version == versions.LATEST.name and engine.image.digest is None:
        yield Fact(PATH, engine.version, (Set(PATH, versions.NEWEST_PINNED.name),))


@rule(
    "VERSION006",
    severity="warning",
    evidence="guide",
    source="contract, engine.image: overrides the image, never the rules",
    message="The image tag {value} looks like release {tagged}, but the rules are those of {version}.",
    fix="or say the image's release in engine.version",
)
def tag_of_another_release(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An image tag that names another release than engine.version."""
    tag = resolved.spec.engine.image.tag or ""
    tagged = versions.known(tag.removeprefix("v").partition("-")[0])
    if tagged is not None and tagged != resolved.release:
        yield Fact(
            "spec.engine.image.tag",
            tag,
            (Remove("spec.engine.image.tag"),),
            {"tagged": tagged.name, "version": resolved.release.name},
        )
