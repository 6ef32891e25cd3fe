"""`podTemplate`: what a fragment may not bring into a pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvpp_operator import names
from kvpp_operator.resolve import Resolved, Written
from kvpp_operator.rules import paths
from kvpp_operator.rules.base import Fact, Remove, Set, rule
from kvpp_operator.rules.environment import places
from kvpp_operator.rules.fragments import containers, entries, metadata, specs
from kvpp_operator.rules.pool_template import service_containers, service_template
from kvpp_operator.world import World

CONTRACT = "contract, podTemplate (docs/nodes.md): command, args and what fields own are refused in the engine's pods"
KEYED_LISTS = ("containers", "initContainers", "volumes", "tolerations", "imagePullSecrets", "hostAliases")
NAMED_LISTS = ("containers", "initContainers", "volumes", "imagePullSecrets")


@rule(
    "POD001",
    severity="error",
    evidence="guide",
    source=f"{CONTRACT}; launch facts 11.1 (Entrypoint): command replaces the entrypoint that loads the CANN "
    "environment",
    message="{field} of the engine's container is the operator's: it holds the vllm serve line, and the image's "
    "entrypoint "
    "loads the CANN environment.",
    fix="and use the fields or extraArgs",
)
def command_of_the_engine(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Command or args for the engine's container."""
    for written in places(resolved):
        for path, container in containers(written):
            for field in ("command", "args"):
                if field in container:  # its words may hold a secret, so they are not repeated
                    yield Fact(f"{path}.{field}", field, (Remove(f"{path}.{field}"),), {"field": field})


CONTAINER_FIELDS = {"image": "spec.engine.image", "imagePullPolicy": "spec.engine.image.pullPolicy"}
POD_FIELDS = {
    "hostNetwork": "spec.networking.hostNetwork",
    "terminationGracePeriodSeconds": "shutdownTimeout",
    "imagePullSecrets": "spec.imagePullSecrets",
}
OPERATORS = {
    "enableServiceLinks": "service links put VLLM_PORT into the environment and break the engine's start",
    "restartPolicy": "the workload restarts its pods",
    "hostname": "LeaderWorkerSet and the engine name their pods themselves",
    "subdomain": "LeaderWorkerSet and the engine name their pods themselves",
    "nodeName": "the scheduler places pods; use nodeSelector",
}


@rule(
    "POD002",
    severity="error",
    evidence="guide",
    source=CONTRACT,
    message="{key} of the pod belongs to {field}.",
    fix="",
)
def field_through_the_template(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A fragment that says what a field says."""
    for written in places(resolved):
        found = [(path, spec, POD_FIELDS) for path, spec in specs(written)]
        found += [(path, container, CONTAINER_FIELDS) for path, container in containers(written)]
        for path, fragment, fields in found:
            for key, field in fields.items():
                if key in fragment and not (
                    key == "hostNetwork" and fragment[key] is resolved.spec.networking.host_network
                ):
                    where = field if field.startswith("spec.") else f"{written.path}.{field}"
                    yield Fact(f"{path}.{key}", fragment[key], (Remove(f"{path}.{key}"),), {"key": key, "field": where})


@rule(
    "POD003",
    severity="error",
    evidence="guide",
    source=CONTRACT,
    message="{key} of the pod is set by the operator: {why}.",
    fix="",
)
def operators_part_of_the_pod(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A fragment that says what the operator decides."""
    harmless = {"enableServiceLinks": False, "restartPolicy": "Always"}
    for written in places(resolved):
        for path, spec in specs(written):
            for key, why in OPERATORS.items():
                if key in spec and not (key in harmless and spec[key] == harmless[key]):
                    yield Fact(f"{path}.{key}", spec[key], (Remove(f"{path}.{key}"),), {"key": key, "why": why})


def npu_resources(resolved: Resolved, written: Written) -> set[str]:
    return {role.accelerator.resource_name for role in resolved.roles if written in role.written}


@rule(
    "POD004",
    severity="error",
    evidence="guide",
    source="contract, parallelism and accelerator.resourceName: an engine asks for one NPU a rank",
    message="The number of NPUs of a pod follows from the parallel sizes; {key} in the fragment contradicts them.",
    fix="",
)
def devices_through_the_template(resolved: Resolved, _: World) -> Iterator[Fact]:
    """NPUs asked for by a fragment."""
    for written in places(resolved):
        for path, container in containers(written):
            resources = container.get("resources")
            for part in ("requests", "limits"):
                asked = resources.get(part) if isinstance(resources, Mapping) else None
                for key in sorted(npu_resources(resolved, written) & set(asked if isinstance(asked, Mapping) else ())):
                    place = paths.below(f"{path}.resources.{part}", key)
                    yield Fact(place, asked and asked[key], (Remove(place),), {"key": key})


@rule(
    "POD005",
    severity="error",
    evidence="guide",
    source="contract, status and Services: selectors and pruning rely on these labels",
    message="The label or annotation {key} belongs to the operator; Services and pruning select by it.",
    fix="",
)
def operators_label(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A label of the operator's own."""
    own = set(names.base_labels("x"))
    for written in (*places(resolved), *service_template(resolved)):
        for path, found in metadata(written):
            for part in ("labels", "annotations"):
                held = found.get(part)
                for key, value in held.items() if isinstance(held, Mapping) else ():
                    if key in own or str(key).partition("/")[0] in (names.DOMAIN, "leaderworkerset.sigs.k8s.io"):
                        place = paths.below(f"{path}.{part}", key)
                        yield Fact(place, value, (Remove(place),), {"key": key})


@rule(
    "POD006",
    severity="error",
    evidence="guide",
    source="Kubernetes API, PodSpec: these are lists of maps, keyed by name",
    message="{what} in a pod must be a list of maps{with_names}; the API server refuses the pod.",
    fix="",
)
def fragment_of_the_wrong_shape(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A list in a fragment that is none, or entries without a name."""
    for written in (*places(resolved), *service_template(resolved)):
        for path, spec in specs(written):
            yield from misshapen(path, spec, KEYED_LISTS)
    engines = (found for written in places(resolved) for found in containers(written))
    for path, container in (*engines, *service_containers(resolved)):
        yield from misshapen(path, container, ("env", "volumeMounts", "ports", "envFrom"))


def misshapen(path: str, fragment: Mapping[str, Any], lists: tuple[str, ...]) -> Iterator[Fact]:
    for name in lists:
        value = fragment.get(name)
        if value is None:
            continue
        named = name in (*NAMED_LISTS, "env")
        words = {"what": name, "with_names": ", each with a name" if named else ""}
        if not isinstance(value, list):
            yield Fact(f"{path}.{name}", value, (Remove(f"{path}.{name}"),), words)
            continue
        for index, entry in enumerate(value):
            if not isinstance(entry, Mapping) or (named and not isinstance(entry.get("name"), str)):
                yield Fact(f"{path}.{name}[{index}]", entry, (Remove(f"{path}.{name}[{index}]"),), words)


@rule(
    "POD007",
    severity="warning",
    evidence="guide",
    source=f"{CONTRACT}; Kubernetes: envFrom brings every key of its object",
    message="envFrom brings variables that nobody checks; what the operator sets itself still wins.",
    fix="or name them one by one in env",
)
def unchecked_environment(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A whole ConfigMap or Secret as environment."""
    for written in places(resolved):
        for path, container in containers(written):
            if container.get("envFrom"):
                yield Fact(f"{path}.envFrom", container["envFrom"], (Remove(f"{path}.envFrom"),))


@rule(
    "POD008",
    severity="error",
    evidence="guide",
    source="contract, podTemplate: the container of the engine is called vllm",
    message="A container beside the engine may not be called {value}: that name is the engine's.",
    fix="with another name",
)
def engines_name_for_another_container(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An init container with the engine's name."""
    for written in places(resolved):
        for path, spec in specs(written):
            for place, container in entries(path, spec, "initContainers"):
                if container.get("name") == names.CONTAINER:
                    yield Fact(f"{place}.name", names.CONTAINER, (Set(f"{place}.name", "prepare"),))


API_PORT, API_PORT_NAME = 8000, "http"


@rule(
    "POD009",
    severity="error",
    evidence="guide",
    source="contract, podTemplate; probes, Services and the router look for the port called http",
    message="The port called http is the engine's API and no other; {value} does not fit that.",
    fix="",
)
def engines_port_under_another_name(resolved: Resolved, _: World) -> Iterator[Fact]:
    """The API's port renamed, or its name given to another port."""
    for written in places(resolved):
        for path, container in containers(written):
            for place, port in entries(path, container, "ports"):
                name, number = port.get("name"), port.get("containerPort")
                is_api = (
                    number == API_PORT
                    and port.get("protocol", "TCP") == "TCP"
                    and not resolved.spec.networking.host_network
                )
                if isinstance(name, str) and (name == API_PORT_NAME) != is_api and (is_api or name == API_PORT_NAME):
                    yield Fact(f"{place}.name", name, (Remove(f"{place}.name"),))
