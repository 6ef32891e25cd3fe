"""Real hosts run pods: a start, a name, a log, a way in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2e.images import reference

if TYPE_CHECKING:
    from e2e.place import Place

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESOLVE = "import socket, time; print(socket.gethostbyname('kubernetes.default'), flush=True); time.sleep(600)"


def test_a_pod_resolves_names_logs_and_lets_us_in(place: Place) -> None:
    container = {
        "name": "probe",
        "image": reference("operator"),
        "command": ["python3", "-c", RESOLVE],
        "securityContext": RESTRICTED,
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    with place.namespace("hosts") as namespace:
        place.apply(pod, namespace=namespace)
        kubectl = place.cluster.kubectl
        log = place.until("a pod has said something", lambda: _log(place, namespace), seconds=60)
        assert log.strip() == "10.96.0.1"
        assert kubectl("exec", "-n", namespace, "probe", "--", "kvpp", "rules").strip()
        assert "Successfully assigned" in kubectl("describe", "pod", "probe", "-n", namespace)


def _log(place: Place, namespace: str) -> str:
    (pod,) = place.pods(namespace)
    return place.cluster.kubectl("logs", "-n", namespace, "probe") if pod["status"]["phase"] == "Running" else ""
