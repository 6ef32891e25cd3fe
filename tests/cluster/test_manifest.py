"""Identity, stamp and the comparison that decides whether a write is needed: one too many is a write for ever."""

from __future__ import annotations

import copy
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpp_operator import names
from kvpp_operator.cluster.satisfied import satisfied
from kvpp_operator.manifest import (
    KINDS,
    WORKLOAD_ORDER,
    DeploymentKey,
    Key,
    Manifest,
    Owner,
    apply_order,
    controller_of,
    key_of,
    stamp,
    wish_hash,
    wish_of,
)
from kvpp_operator.quantity import quantity

OWNER = Owner(DeploymentKey("team-a", "glm"), "uid-1")


def config_map(name: str = "settings", **data: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "team-a"}, "data": data}


def pod(**spec: Any) -> Manifest:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "spec": {"template": {"spec": spec}}}


def container(**fields: Any) -> Manifest:
    return pod(containers=[{"name": "vllm", **fields}])


def policy(**rule: Any) -> Manifest:
    return {"kind": "NetworkPolicy", "metadata": {}, "spec": {"ingress": [rule]}}


class TestIdentity:
    def test_key(self) -> None:
        assert Key("v1", "ConfigMap", "team-a", "settings") == key_of(config_map())

    def test_key_reads_as_a_person_would_say_it(self) -> None:
        assert str(key_of(config_map())) == "ConfigMap team-a/settings"

    def test_owner_of_a_body(self) -> None:
        body = {"metadata": {"namespace": "team-a", "name": "glm", "uid": "uid-1"}}
        assert Owner.of(body) == OWNER

    def test_kinds_are_unique(self) -> None:
        assert len({(kind.api_version, kind.name) for kind in KINDS}) == len(KINDS)

    def test_workloads_are_applied_after_all_that_pods_refer_to(self) -> None:
        before = {kind.name for kind in KINDS if kind.order < WORKLOAD_ORDER}
        assert {"ServiceAccount", "ConfigMap", "ControllerRevision", "Service", "NetworkPolicy", "PodGroup"} <= before

    def test_apply_order_sorts_by_kind_then_name(self) -> None:
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "team-a"}}
        mixed = [deployment, config_map("b"), config_map("a")]
        assert sorted(mixed, key=apply_order) == [config_map("a"), config_map("b"), deployment]


class TestStamp:
    def test_adds_what_makes_an_object_ours(self) -> None:
        stamped = stamp(config_map(a="1"), labels={names.DEPLOYMENT: "glm"}, owner=OWNER)
        assert stamped["metadata"]["labels"] == {names.DEPLOYMENT: "glm", names.MANAGED_BY: names.FIELD_MANAGER}
        assert controller_of(stamped) == OWNER.reference
        assert wish_of(stamped) == wish_hash(stamped)

    def test_leaves_its_argument_alone(self) -> None:
        manifest = config_map(a="1")
        before = copy.deepcopy(manifest)
        stamp(manifest, labels={"x": "y"}, owner=OWNER)
        assert manifest == before

    def test_the_manifest_overrules_labels_but_not_the_one_we_watch_by(self) -> None:
        manifest = config_map()
        manifest["metadata"]["labels"] = {"tier": "mine", names.MANAGED_BY: "helm"}
        stamped = stamp(manifest, labels={"tier": "default"}, owner=OWNER)
        assert stamped["metadata"]["labels"] == {"tier": "mine", names.MANAGED_BY: names.FIELD_MANAGER}

    def test_offline_the_hash_is_the_one_that_is_applied(self) -> None:
        offline = stamp(config_map(a="1"), labels={}, owner=Owner(OWNER.key))
        assert "ownerReferences" not in offline["metadata"]
        assert wish_of(offline) == wish_of(stamp(config_map(a="1"), labels={}, owner=OWNER))

    def test_stamping_twice_changes_nothing(self) -> None:
        once = stamp(config_map(a="1"), labels={"x": "y"}, owner=OWNER)
        assert stamp(once, labels={"x": "y"}, owner=OWNER) == once

    def test_another_wish_has_another_hash(self) -> None:
        assert wish_hash(config_map(a="1")) != wish_hash(config_map(a="2"))

    def test_order_of_names_is_no_part_of_a_wish(self) -> None:
        assert wish_hash(config_map(a="1", b="2")) == wish_hash(config_map(b="2", a="1"))


QUANTITIES = [
    ("1000m", "1"),
    (0.5, "500m"),
    ("1024Mi", "1Gi"),
    (8, "8"),
    ("1e3", "1k"),
    ("1E3", "1k"),
    ("1.5Gi", "1536Mi"),
    ("0", "0"),
    ("2Ei", 2 * 1024**6),
    ("100n", "0.1u"),
]


class TestQuantities:
    @pytest.mark.parametrize(("left", "right"), QUANTITIES)
    def test_equal_by_value(self, left: Any, right: Any) -> None:
        assert quantity(left) == quantity(right) is not None

    @pytest.mark.parametrize("text", ["", "Gi", "1.2.3", "8 Gi", "1ki", "true", True, None, "1e", "--1"])
    def test_what_is_no_quantity(self, text: Any) -> None:
        assert quantity(text) is None

    def test_one_exa_is_no_exponent(self) -> None:
        assert quantity("1E") == Fraction(10**18)

    def test_only_where_the_api_has_quantities(self) -> None:
        limits = container(resources={"limits": {"cpu": 1, "huawei.com/Ascend910": 8}})
        assert satisfied(limits, container(resources={"limits": {"cpu": "1", "huawei.com/Ascend910": "8"}}))
        arguments = container(env=[{"name": "SIZE", "value": "1000m"}])
        assert not satisfied(arguments, container(env=[{"name": "SIZE", "value": "1"}]))

    def test_size_limit_of_a_volume(self) -> None:
        wish = pod(volumes=[{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "65536Mi"}}])
        live = pod(volumes=[{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}])
        assert satisfied(wish, live)


HELD = {
    "a default that the server fills in": (container(image="x"), container(image="x", imagePullPolicy="Always")),
    "a container that a mesh adds": (container(), pod(containers=[{"name": "proxy"}, {"name": "vllm"}])),
    "another order of environment": (
        container(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]),
        container(env=[{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]),
    ),
    "an empty value, which the server drops": (
        container(env=[{"name": "A", "value": ""}]),
        container(env=[{"name": "A"}]),
    ),
    "a false that the server drops": (pod(hostNetwork=False), pod()),
    "an empty list that the server drops": (container(args=[]), container()),
    "no labels": ({"metadata": {"labels": {}}}, {"metadata": {}}),
    "a protocol that is the default": (
        container(ports=[{"containerPort": 8000}]),
        container(ports=[{"containerPort": 8000, "protocol": "TCP"}]),
    ),
    "the protocol of a policy's port": (
        policy(ports=[{"port": 8000}]),
        policy(ports=[{"port": 8000, "protocol": "TCP"}]),
    ),
    "a port of a Service that somebody adds": (
        {"spec": {"ports": [{"port": 80}]}},
        {"spec": {"ports": [{"port": 9, "protocol": "TCP"}, {"port": 80, "protocol": "TCP", "targetPort": 80}]}},
    ),
    "an api group that the server fills in": (
        {"subjects": [{"kind": "ServiceAccount", "name": "x"}]},
        {"subjects": [{"kind": "ServiceAccount", "name": "x", "apiGroup": ""}]},
    ),
}

BROKEN = {
    "an argument changed": (container(args=["serve", "x"]), container(args=["serve", "y"])),
    "an argument added": (container(args=["serve"]), container(args=["serve", "--trust-remote-code"])),
    "an argument removed": (container(args=["serve", "x"]), container(args=["serve"])),
    "arguments swapped": (container(args=["serve", "x"]), container(args=["x", "serve"])),
    "the container gone": (container(), pod(containers=[{"name": "other"}])),
    "a variable changed": (
        container(env=[{"name": "A", "value": "1"}]),
        container(env=[{"name": "A", "value": "2"}]),
    ),
    "a variable gone": (container(env=[{"name": "A", "value": "1"}]), container()),
    "a volume of another sort": (
        pod(volumes=[{"name": "shm", "emptyDir": {}}]),
        pod(volumes=[{"name": "shm", "hostPath": {"path": "/"}}]),
    ),
    "a security setting removed": (
        container(securityContext={"privileged": False}),
        container(securityContext={}),
    ),
    "a security setting turned": (
        container(securityContext={"privileged": False}),
        container(securityContext={"privileged": True}),
    ),
    "host network switched on": (pod(hostNetwork=False), pod(hostNetwork=True)),
    "another quantity": (
        container(resources={"limits": {"cpu": "1"}}),
        container(resources={"limits": {"cpu": "2"}}),
    ),
    "a selector narrowed": (
        {"spec": {"selector": {"app": "x"}}},
        {"spec": {"selector": {"app": "x", "role": "y"}}},
    ),
    "a node selector narrowed": (pod(nodeSelector={"npu": "a3"}), pod(nodeSelector={"npu": "a3", "zone": "1"})),
    "labels to match narrowed": (
        {"spec": {"podSelector": {"matchLabels": {"a": "b"}}}},
        {"spec": {"podSelector": {"matchLabels": {"a": "b", "c": "d"}}}},
    ),
    "a peer widened": (
        policy(**{"from": [{"podSelector": {"matchLabels": {"a": "b"}}}]}),
        policy(**{"from": [{"podSelector": {"matchLabels": {"a": "b"}}, "namespaceSelector": {}}]}),
    ),
    "a peer added": (
        policy(**{"from": [{"podSelector": {}}]}),
        policy(**{"from": [{"podSelector": {}}, {"ipBlock": {"cidr": "0.0.0.0/0"}}]}),
    ),
    "a port range opened": (
        policy(ports=[{"port": 8000, "protocol": "TCP"}]),
        policy(ports=[{"port": 8000, "protocol": "TCP", "endPort": 9000}]),
    ),
    "a port let in": (policy(ports=[{"port": 8000}]), policy(ports=[{"port": 8000}, {"port": 22}])),
    "a rule removed from a policy": ({"spec": {"ingress": [{}]}}, {"spec": {}}),
    "a verb added": ({"rules": [{"verbs": ["get"]}]}, {"rules": [{"verbs": ["get", "delete"]}]}),
    "a number where a text was": ({"data": {"a": "1"}}, {"data": {"a": 1}}),
    "true where one was": ({"spec": {"replicas": 1}}, {"spec": {"replicas": True}}),
    "a label gone": ({"metadata": {"labels": {"a": "b"}}}, {"metadata": {"labels": {}}}),
    "another owner": (
        {"metadata": {"ownerReferences": [{"uid": "1", "controller": True}]}},
        {"metadata": {"ownerReferences": [{"uid": "2", "controller": True}]}},
    ),
}


class TestSatisfied:
    @pytest.mark.parametrize("case", HELD)
    def test_held(self, case: str) -> None:
        wish, live = HELD[case]
        assert satisfied(wish, live)

    @pytest.mark.parametrize("case", BROKEN)
    def test_broken(self, case: str) -> None:
        wish, live = BROKEN[case]
        assert not satisfied(wish, live)


WORDS = st.text("abcxyz", min_size=1, max_size=3)
LEAVES = st.one_of(st.integers(-5, 5), st.booleans(), WORDS)
TREES = st.dictionaries(
    WORDS,
    st.recursive(LEAVES, lambda t: st.dictionaries(WORDS, t, max_size=3) | st.lists(t, max_size=3), max_leaves=6),
    max_size=3,
)


def grown(tree: Any, draw: Any) -> Any:
    """A tree with names added in any of its maps, as the server's defaults do."""
    if isinstance(tree, dict):
        more = {f"default{n}": draw(LEAVES) for n in range(draw(st.integers(0, 2)))}
        return {**more, **{name: grown(value, draw) for name, value in tree.items()}}
    return [grown(item, draw) for item in tree] if isinstance(tree, list) else tree


def leaf_paths(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(tree, dict):
        return [found for name, value in tree.items() for found in leaf_paths(value, (*path, name))]
    if isinstance(tree, list):
        return [found for n, value in enumerate(tree) for found in leaf_paths(value, (*path, n))]
    return [path]


class TestProperties:
    @given(TREES)
    def test_a_wish_satisfies_itself(self, tree: Manifest) -> None:
        assert satisfied(tree, tree)

    @given(TREES, st.data())
    def test_defaults_never_cause_a_write(self, tree: Manifest, data: st.DataObject) -> None:
        assert satisfied(tree, grown(tree, data.draw))

    @given(TREES, st.data())
    def test_a_changed_leaf_is_always_seen(self, tree: Manifest, data: st.DataObject) -> None:
        paths = leaf_paths(tree)
        if not paths:
            return
        *parents, last = data.draw(st.sampled_from(paths))
        live = copy.deepcopy(tree)
        node: Any = live
        for step in parents:
            node = node[step]
        node[last] = data.draw(LEAVES.filter(lambda value: (type(value), value) != (type(node[last]), node[last])))
        assert not satisfied(tree, live)

    @given(st.fractions(0, 10**6), st.sampled_from(["", "k", "M", "Ki", "Mi", "Gi"]))
    def test_a_quantity_is_the_number_times_its_unit(self, number: Fraction, unit: str) -> None:
        text = f"{float(number):.6f}{unit}"
        value, one = quantity(text), quantity(f"1{unit}")
        assert value is not None
        assert one is not None
        assert value == Fraction(text.removesuffix(unit)) * one
