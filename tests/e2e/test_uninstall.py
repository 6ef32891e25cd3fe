"""The end: a namespace with a deployment in it, and the operator, go within a minute and leave nothing but the CRDs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from e2e.place import RELEASE, SYSTEM, example, weights

if TYPE_CHECKING:
    from e2e.place import Place

# Made when host ports are first given out; it stays with its definition, empty when nothing runs.
LEDGER = "kvppportledger.serving.kvpp.io/default"
CRDS = ("kvppdeployments.serving.kvpp.io", "kvppportledgers.serving.kvpp.io")
NAMESPACE = "leaving"


def test_uninstall_leaves_the_definitions_and_nothing_else(operated: Place) -> None:
    operated.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    operated.apply(*weights(NAMESPACE), example("2-prefill-decode.yaml"), namespace=NAMESPACE)
    operated.until_ready(NAMESPACE, "glm-5-2-pd", seconds=180)
    operated.delete_namespace(NAMESPACE)
    operated.cluster.kubectl("delete", "persistentvolume", "e2e-weights")
    started = time.monotonic()
    operated.cluster.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait", "--timeout=60s")
    assert time.monotonic() - started < 60
    operated.cluster.kubectl("delete", "namespace", SYSTEM)
    kept = {f"customresourcedefinition.apiextensions.k8s.io/{name}" for name in CRDS}
    assert operated.objects() - operated.before_install - {LEDGER} == kept
    ledger = operated.get("kvppportledgers")["items"]
    assert [claim for item in ledger for claim in item["spec"].get("claims", [])] == []
