"""The operator's own limits: what deployments may ask of hosts (operator configuration, `allow`)."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.resolve import Resolved
from kvpp_operator.rules.base import Fact, Remove, Set, rule
from kvpp_operator.rules.environment import places
from kvpp_operator.rules.fragments import entries, specs
from kvpp_operator.rules.model import sources
from kvpp_operator.rules.pool_template import service_template
from kvpp_operator.world import World

LIMITS = "docs/install.md, config.allow: hostPath and hostNetwork can be limited by the operator's allow-lists"


def is_below(path: str, prefixes: list[str]) -> bool:
    """Whether a host path lies in one of the allowed folders; `..` never does."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        return False
    return any(
        parts[: len(allowed)] == allowed for allowed in ([p for p in prefix.split("/") if p] for prefix in prefixes)
    )


@rule(
    "LIMIT001",
    severity="error",
    evidence="guide",
    source=LIMITS,
    message="Host path {value} lies outside what the operator's configuration allows: {allowed}.",
    fix="or ask the cluster's administrator for allow.hostPaths",
)
def host_path_not_allowed(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A host path outside the allow-list."""
    allowed = resolved.configuration.allow.host_paths
    if allowed is None:
        return
    words = {"allowed": ", ".join(allowed) or "none"}
    for path, source in sources(resolved):
        if source.host_path is not None and not is_below(source.host_path.path, allowed):
            claim = {"claimName": "weights"}
            fix = (Remove(f"{path}.hostPath"), Set(f"{path}.persistentVolumeClaim", claim))
            yield Fact(f"{path}.hostPath.path", source.host_path.path, fix, words)
    for written in (*places(resolved), *service_template(resolved)):
        for fragment_path, spec in specs(written):
            for place, volume in entries(fragment_path, spec, "volumes"):
                host = volume.get("hostPath")
                mounted = host.get("path") if isinstance(host, dict) else None
                if isinstance(mounted, str) and not is_below(mounted, allowed):
                    yield Fact(f"{place}.hostPath.path", mounted, (Remove(place),), words)


@rule(
    "LIMIT002",
    severity="error",
    evidence="guide",
    source=LIMITS,
    message="Namespace {namespace} may not use the host network; the operator's configuration allows {allowed}.",
    fix="or ask the cluster's administrator for allow.hostNetworkNamespaces",
)
def host_network_not_allowed(resolved: Resolved, _: World) -> Iterator[Fact]:
    """The host network in a namespace that may not use it."""
    allowed = resolved.configuration.allow.host_network_namespaces
    if allowed is None or resolved.namespace in allowed:
        return
    words = {"namespace": resolved.namespace, "allowed": ", ".join(allowed) or "no namespace"}
    if resolved.spec.networking.host_network:
        path = "spec.networking.hostNetwork"
        yield Fact(path, value=True, fix=(Set(path, value=False),), words=words)
    for written in service_template(resolved):
        for fragment_path, spec in specs(written):
            if spec.get("hostNetwork") is True:
                path = f"{fragment_path}.hostNetwork"
                yield Fact(path, value=True, fix=(Remove(path),), words=words)
