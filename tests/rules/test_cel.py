"""The API server's verdict (CEL in the CRD) and ours are the same, in the same words, on specs that both can judge."""

from __future__ import annotations

import copy
import json
from http.client import HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rule_cases import bases, cases, unshared

from kvpp_devcluster import kubeconfig
from kvpp_operator.configuration import DEFAULT
from kvpp_operator.crd import definitions
from kvpp_operator.rules import RULES, judge
from kvpp_operator.world import OFFLINE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvpp_devcluster.cluster import LocalCluster

pytestmark = pytest.mark.cluster

WITH_CEL = {rule.id: rule.message for rule in RULES if rule.cel}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OBJECTS = "/apis/serving.kvpp.io/v1alpha1/namespaces/default/kvppdeployments"
DRY_RUN = f"{OBJECTS}?dryRun=All&fieldValidation=Strict"


class Server:
    """A real API server that knows our CRD; nothing is stored."""

    def __init__(self, cluster: LocalCluster) -> None:
        plane = cluster.control_plane
        context = kubeconfig.with_certificate(plane.server, plane.ca, plane.admin).ssl_context()
        # One connection for a thousand requests: a handshake takes longer than a verdict.
        self.connection = HTTPSConnection(urlsplit(plane.server).netloc, context=context, timeout=30)
        for definition in definitions():
            assert self.request("POST", CRDS, definition)[0] in (201, 409)
        for _ in range(500):  # the API is served a moment after the CRD is established
            if self.request("GET", OBJECTS)[0] == 200:
                break

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        content = None if body is None else json.dumps(body)
        self.connection.request(
            method, path, content, {"Content-Type": "application/json", "Accept": "application/json"}
        )
        answer = self.connection.getresponse()
        return answer.status, answer.read().decode()

    def refusal(self, document: Any) -> str:
        """What the server says against a document, empty when it takes it."""
        status, text = self.request("POST", DRY_RUN, document)
        return "" if status == 201 else json.loads(text)["message"]


@pytest.fixture(scope="module")
def server(local_cluster: LocalCluster) -> Iterator[Server]:
    found = Server(local_cluster)
    yield found
    found.connection.close()


def ours(document: Any) -> set[str]:
    """Rules with CEL that Python finds broken."""
    return {finding.rule for finding in judge(document, DEFAULT, OFFLINE).findings if finding.rule in WITH_CEL}


def theirs(refusal: str) -> set[str]:
    return {rule for rule, message in WITH_CEL.items() if message in refusal}


def is_well_formed(document: Any) -> bool:
    return not any(finding.rule.startswith("SCHEMA") for finding in judge(document, DEFAULT, OFFLINE).findings)


def as_json(document: Any) -> Any:
    """As `kubectl` sends it, into the namespace of the request."""
    plain = json.loads(json.dumps(document, default=str))
    if isinstance(plain.get("metadata"), dict):
        plain["metadata"].pop("namespace", None)
    return plain


DOCUMENTS = [case for kind in ("pass", "fail") for case in cases(kind) if case.rule != "SCHEMA010"]


def test_every_case(server: Server) -> None:
    """Types, bounds, unknown fields and cross-field rules: refused by both or by none, for the same rules."""
    assert [str(case) for case in DOCUMENTS if not agree(server, as_json(case.document))] == []


def agree(server: Server, document: Any) -> bool:
    refusal, judged = server.refusal(document), ours(document)
    if not is_well_formed(document):
        return bool(refusal)
    return theirs(refusal) == judged and bool(refusal) == bool(judged)


SIZES = st.sampled_from([1, 1, 1, 2, 3, 4, 8])


@st.composite
def parallelism(draw: st.DrawFn) -> dict[str, Any]:
    names = ("tensor", "pipeline", "prefillContext", "decodeContext")
    sizes: dict[str, Any] = {name: draw(SIZES) for name in names if draw(st.booleans())}
    if draw(st.booleans()):
        sizes["pipelineLayers"] = draw(st.lists(st.sampled_from([38, 40, 78]), max_size=3))
    return sizes


SOURCES = st.dictionaries(
    st.sampled_from(["persistentVolumeClaim", "hostPath", "huggingFace"]), st.none(), max_size=2
).map(
    lambda chosen: {
        name: {"persistentVolumeClaim": {"claimName": "w"}, "hostPath": {"path": "/w"}, "huggingFace": {"repo": "a/b"}}[
            name
        ]
        for name in chosen
    }
)


@st.composite
def roles(draw: st.DrawFn) -> dict[str, Any]:
    role: dict[str, Any] = {}
    if draw(st.booleans()):
        role["parallelism"] = draw(parallelism())
    if draw(st.booleans()):
        role["graphMode"] = draw(st.sampled_from(["Eager", "Piecewise", "FullDecodeOnly", "FullAndPiecewise", "Full"]))
    if draw(st.booleans()):
        role["speculative"] = {"method": "MTP", "tokens": 1}
        if draw(st.booleans()):
            role["speculative"]["draftModel"] = draw(SOURCES)
    return role


@st.composite
def documents(draw: st.DrawFn) -> Any:
    """Specs that vary in everything that CEL reads, right in every other way."""
    document = copy.deepcopy(unshared(bases()["unified"]))
    spec = document["spec"]
    del spec["unified"]
    for name in ("unified", "prefill", "decode"):
        if draw(st.booleans()):
            spec[name] = draw(roles())
    spec["model"]["source"] = draw(SOURCES)
    if draw(st.booleans()):
        del spec["model"]["profile"]
    if draw(st.booleans()):
        attention = draw(st.sampled_from(["MLA", "SFA", "GQA", "Hybrid"]))
        spec["model"]["architecture"] = {
            "attention": attention,
            "layers": 78,
            "draftSharesTargetCache": draw(st.booleans()),
        }
    if draw(st.booleans()):
        spec["kvpp"] = {"enabled": draw(st.booleans())} if draw(st.booleans()) else {}
    if draw(st.booleans()):
        spec["pooling"] = {"backend": draw(st.sampled_from(["Memcache", "Mooncake"]))}
        mooncake: dict[str, Any] = draw(st.sampled_from([{}, {"layerwise": {}}]))
        for name, value in (("memcache", {}), ("mooncake", mooncake)):
            if draw(st.booleans()):
                spec["pooling"][name] = value
    if draw(st.booleans()):
        spec["networking"] = {
            "kvPorts": {"first": draw(st.integers(22000, 22003)), "last": draw(st.integers(22000, 22003))}
        }
    return document


@given(document=documents())
@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_any_spec(server: Server, document: Any) -> None:
    refusal = server.refusal(document)
    assert theirs(refusal) == ours(document), refusal
    assert bool(refusal) == bool(ours(document)), refusal
