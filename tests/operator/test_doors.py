"""One judgement at every door: the API server's CEL, the admission review, the command line."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import specs
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from operator_process import Cluster

from kvpp_devcluster.cluster import LocalCluster
from kvpp_devcluster.controlplane import ApiError
from kvpp_devcluster.processes import ProgramError
from kvpp_operator.admission import review
from kvpp_operator.configuration import Configuration
from kvpp_operator.rules import RULES, judge
from kvpp_operator.world import OFFLINE

pytestmark = pytest.mark.cluster

CEL_RULES = {rule.id for rule in RULES if rule.cel}
SIZES = st.sampled_from([1, 1, 1, 2, 4, 8])

parallelism = st.fixed_dictionaries(
    {},
    optional={
        "tensor": SIZES, "pipeline": st.sampled_from([1, 1, 2]), "data": SIZES, "prefillContext": st.sampled_from([1, 1, 2]),
        "decodeContext": st.sampled_from([1, 1, 1, 2]), "expert": st.booleans(),
        "pipelineLayers": st.lists(st.sampled_from([0, 38, 39, 40]), min_size=1, max_size=3),
    },
)  # fmt: skip
role = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.sampled_from([0, 1, 3]), "parallelism": parallelism, "kvPort": st.sampled_from([22000, 22004, 37000]),
        "graphMode": st.sampled_from(["Eager", "Piecewise", "FullDecodeOnly", "FullAndPiecewise", "Full"]),
        "speculative": st.fixed_dictionaries({"method": st.sampled_from(["MTP", "DSpark"]), "tokens": st.sampled_from([1, 3])}),
    },
)  # fmt: skip
source = st.fixed_dictionaries(
    {},
    optional={
        "hostPath": st.just({"path": "/m"}),
        "persistentVolumeClaim": st.just({"claimName": "c"}),
        "huggingFace": st.just({"repo": "a/b"}),
    },
)
model = st.fixed_dictionaries(
    {"source": source},
    optional={"profile": st.just("GLM-5.2"), "architecture": st.just({"attention": "MLA", "layers": 61})},
)
spec = st.fixed_dictionaries(
    {"model": model, "engine": st.just({"version": "0.30.0rc2"}), "accelerator": st.just({"chip": "950DT"})},
    optional={
        "kvpp": st.fixed_dictionaries({"enabled": st.booleans()}), "unified": role, "prefill": role, "decode": role,
        "networking": st.fixed_dictionaries({"hostNetwork": st.booleans()}),
        "pooling": st.fixed_dictionaries({"backend": st.sampled_from(["Memcache", "Mooncake"])}, optional={"memcache": st.just({}), "mooncake": st.just({})}),
    },
)  # fmt: skip


def verdict_of_the_server(cluster: LocalCluster, namespace: str, body: dict[str, Any]) -> tuple[set[str], str]:
    """Rule ids in the API server's refusal (a dry run), and the refusal; nothing when it accepts."""
    path = f"/apis/serving.kvpp.io/v1alpha1/namespaces/{namespace}/kvppdeployments?dryRun=All&fieldValidation=Strict"
    try:
        cluster.control_plane.request("POST", path, body)
    except ApiError as refusal:
        return set(re.findall(r"\(([A-Z]+[0-9]+)\)", str(refusal))), str(refusal)
    return set(), ""


@pytest.mark.usefixtures("crds")
def test_cel_and_python_never_disagree(local_cluster: LocalCluster, namespace: str) -> None:
    disagreed: list[str] = []

    @settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(spec)
    def compare(wanted: dict[str, Any]) -> None:
        body = {**specs.deployment({}), "spec": wanted}
        body["metadata"] = {"name": "demo", "namespace": namespace}
        found = {
            finding.rule for finding in judge(body, Configuration(), OFFLINE).findings if finding.severity == "error"
        }
        server, refusal = verdict_of_the_server(local_cluster, namespace, body)
        if any(rule.startswith("SCHEMA") for rule in found):
            # A type error hides CEL from the server; what the schema refuses both refuse.
            assert refusal, (body, found)
            return
        assert server == found & CEL_RULES, (json.dumps(body), found & CEL_RULES, refusal)

    compare()
    assert disagreed == []


@pytest.mark.usefixtures("crds")
def test_the_same_words_in_cel_and_python(local_cluster: LocalCluster, namespace: str) -> None:
    body = specs.deployment(specs.DISAGGREGATED, prefill__graphMode="Full")
    body["metadata"] = {"name": "demo", "namespace": namespace}
    [finding] = [f for f in judge(body, Configuration(), OFFLINE).findings if f.severity == "error"]
    _, refusal = verdict_of_the_server(local_cluster, namespace, body)
    assert finding.message in refusal
    assert finding.path in refusal


def certificate(folder: Path, cluster: LocalCluster) -> tuple[Path, Path]:
    """A serving certificate for 127.0.0.1 from the control plane's own CA."""
    pki = cluster.control_plane.ca.parent
    key, request, cert, extensions = (folder / name for name in ("tls.key", "tls.csr", "tls.crt", "ext"))
    extensions.write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)

    openssl(
        "req",
        "-new",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        str(key),
        "-subj",
        "/CN=webhook",
        "-out",
        str(request),
    )
    openssl(
        "x509",
        "-req",
        "-in",
        str(request),
        "-CA",
        str(cluster.control_plane.ca),
        "-CAkey",
        str(pki / "ca.key"),
        "-CAcreateserial",
        "-days",
        "2",
        "-extfile",
        str(extensions),
        "-out",
        str(cert),
    )
    return cert, key


async def test_the_admission_review_through_the_api_server(user: Cluster, tmp_path: Path) -> None:
    """`review` served by URL: refusals with every finding, warnings as warnings, deletion always allowed."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(review(await request.json(), Configuration()))

    cert, key = certificate(tmp_path, user.cluster)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    application = web.Application()
    application.router.add_post("/validate", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    port = runner.addresses[0][1]
    hook = {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": user.namespace},
        "webhooks": [{
            "name": "validate.serving.kvpp.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5,
            "clientConfig": {"url": f"https://127.0.0.1:{port}/validate", "caBundle": base64.b64encode(user.cluster.control_plane.ca.read_bytes()).decode()},
            "rules": [{"apiGroups": ["serving.kvpp.io"], "apiVersions": ["v1alpha1"], "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["kvppdeployments"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": user.namespace}},
        }],
    }  # fmt: skip
    try:
        await asyncio.to_thread(user.kubectl, "apply", "-f", "-", input=json.dumps(hook))
        dense = {"attention": "MLA", "layers": 61, "moe": False}
        bad = specs.deployment(specs.DISAGGREGATED, model__profile=None, model__architecture=dense)
        for _ in range(50):  # the API server takes a moment to see a new webhook
            try:
                await asyncio.to_thread(user.apply, bad)
            except ProgramError as problem:
                refusal = str(problem)
                break
            await asyncio.to_thread(user.kubectl, "delete", "kvpp", "demo")
        messages = [str(f) for f in judge(bad, Configuration(), OFFLINE).findings if f.severity == "error"]
        assert len(messages) == 2
        assert all(message in refusal for message in messages)
        warned = specs.deployment(specs.UNIFIED, engine__version="latest")
        await asyncio.to_thread(user.apply, warned)
        await asyncio.to_thread(user.kubectl, "delete", "kvpp", "demo")
    finally:
        await asyncio.to_thread(user.kubectl, "delete", "validatingwebhookconfiguration", user.namespace)
        await runner.cleanup()
