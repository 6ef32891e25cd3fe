"""`podTemplate` of a pool's service: what a fragment may not bring into its pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvpp_operator.api.pooling import Memcache, Mooncake
from kvpp_operator.catalogue.pools import pool_service
from kvpp_operator.engine_flags import ParsedArguments
from kvpp_operator.resolve import Resolved, Written
from kvpp_operator.rules import paths
from kvpp_operator.rules.base import Fact, Remove, Set, rule
from kvpp_operator.rules.fragments import entries, metadata, specs
from kvpp_operator.world import World

CONTRACT = (
    "contract, pooling: podTemplate is merged into the service's pods; what fields and the operator own is theirs"
)
PLACES = {"meta-service": "spec.pooling.memcache.metaService", "mooncake-master": "spec.pooling.mooncake.master"}


def service_template(resolved: Resolved) -> Iterator[Written]:
    """The podTemplate of the service that the operator runs, in the form of the engines' ones."""
    pooling, service = resolved.spec.pooling, pool_service(resolved.spec.pooling)
    if pooling is None or service is None:
        return
    memcache, mooncake = pooling.memcache or Memcache(), pooling.mooncake or Mooncake()
    template = memcache.meta_service.pod_template if service == "meta-service" else mooncake.master.pod_template
    dumped = template.model_dump(mode="json", by_alias=True, exclude_none=True)
    yield Written(PLACES[service], (), ParsedArguments(()), {}, (), dumped)


def service_containers(resolved: Resolved) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(path, container) of every mention of the service's container."""
    for written in service_template(resolved):
        for path, spec in specs(written):
            for place, container in entries(path, spec, "containers"):
                if container.get("name") == pool_service(resolved.spec.pooling):
                    yield place, container


OWNED = {
    "command": "the operator, which writes the service's files for it",
    "args": "the operator; metaConfig, localConfig and master.args say more",
    "image": "the image field beside podTemplate",
    "imagePullPolicy": "the image field beside podTemplate",
    "ports": "the operator, which plans them and tells the engines",
}


@rule(
    "POOL060",
    severity="error",
    evidence="guide",
    source=CONTRACT,
    message="{key} of the pool's service belongs to {owner}.",
    fix="",
)
def owned_field_of_the_service(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Command, arguments, image or ports of the service through its podTemplate."""
    for path, container in service_containers(resolved):
        for key, owner in OWNED.items():
            if key in container:  # its words may hold a secret, so they are not repeated
                yield Fact(f"{path}.{key}", key, (Remove(f"{path}.{key}"),), {"key": key, "owner": owner})


ENVIRONMENT = frozenset({
    "META_POD_NAME", "META_POD_IP", "META_NAMESPACE", "META_LEASE_NAME", "MMC_META_CONFIG_PATH", "PYTHONPATH", "PYTHONUNBUFFERED",
})  # fmt: skip


@rule(
    "POOL061",
    severity="error",
    evidence="guide",
    source=f"{CONTRACT}; launch facts 4.2: the election reads META_…, the service its file's place",
    message="{value} is set by the operator in the pool's service.",
    fix="",
)
def owned_variable_of_the_service(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A variable that the operator sets in the pool's service."""
    for path, container in service_containers(resolved):
        for place, variable in entries(path, container, "env"):
            if variable.get("name") in ENVIRONMENT:
                yield Fact(f"{place}.name", variable["name"], (Remove(place),))


POD_FIELDS = {
    "serviceAccountName": "the operator: the account may do what the election needs, and nothing else",
    "automountServiceAccountToken": "the operator: only an election needs a token",
    "imagePullSecrets": "spec.imagePullSecrets",
    "hostname": "the workload, which names its pods",
    "subdomain": "the workload, which names its pods",
}
LEADER = "role"


@rule(
    "POOL062",
    severity="error",
    evidence="guide",
    source=f"{CONTRACT}; launch facts 4.2: the leader's label is called role, and the Service follows it",
    message="{key} of the pool's pods belongs to {owner}.",
    fix="",
)
def operators_part_of_the_service(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A field or label of the pool's pods that the operator or the election owns."""
    for written in service_template(resolved):
        for path, spec in specs(written):
            for key, owner in POD_FIELDS.items():
                if key in spec:
                    yield Fact(f"{path}.{key}", spec[key], (Remove(f"{path}.{key}"),), {"key": key, "owner": owner})
        for path, found in metadata(written):
            labels = found.get("labels")
            if isinstance(labels, Mapping) and LEADER in labels:
                place = paths.below(f"{path}.labels", LEADER)
                words = {"key": f"the label {LEADER}", "owner": "the election: the leader puts it on its own pod"}
                yield Fact(place, labels[LEADER], (Remove(place),), words)


VOLUMES = ("tmp", "config")


@rule(
    "POOL063",
    severity="error",
    evidence="guide",
    source=CONTRACT,
    message="The volume {value} of the pool's pods is the operator's.",
    fix="with another name",
)
def operators_volume_of_the_service(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A volume with a name that the operator uses."""
    for written in service_template(resolved):
        for path, spec in specs(written):
            for place, volume in entries(path, spec, "volumes"):
                if volume.get("name") in VOLUMES:
                    yield Fact(f"{place}.name", volume["name"], (Set(f"{place}.name", f"my-{volume['name']}"),))
