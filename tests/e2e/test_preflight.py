"""`kvpp preflight` on real kubelets: it starts where engines start, and says what hosts without NPUs lack."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml
from click.testing import CliRunner
from e2e.place import example

from kvpp_operator.cli.app import app

if TYPE_CHECKING:
    from e2e.place import Json, Place

SMALL: Json = {"prefill": {"sharedMemory": "64Mi"}, "decode": {"sharedMemory": "64Mi"}}


def test_every_host_says_what_it_lacks(place: Place) -> None:
    with place.namespace("preflight") as namespace:
        body = example("2-prefill-decode.yaml", SMALL)
        body["metadata"]["namespace"] = namespace
        words, text = ["preflight", "--timeout", "120", "-o", "json", "-"], yaml.safe_dump(body)
        runner = CliRunner(env=place.cluster.environment())
        done = runner.invoke(app, words, input=text, catch_exceptions=False)
        assert done.exit_code == 1, done.output
        answers: list[dict[str, Any]] = json.loads(done.stdout)["nodes"]
        hosts = {node["metadata"]["name"] for node in place.get("nodes")["items"]}
        assert {(answer["role"], answer["node"]) for answer in answers} == {
            (role, host) for role in ("prefill", "decode") for host in hosts
        }
        for answer in answers:
            states = {result["check"]: result["state"] for result in answer["results"]}
            assert states == {
                **dict.fromkeys(("torch_npu", "vllm", "vllm_ascend", "driver", "devices", "hccn.conf"), "error"),
                f"{body['spec']['model']['source']['hostPath']['path']}/config.json": "error",
                "CPUs": "ok",
                "shared memory": "ok",
                "huge pages": "ok",
            }
        place.say(f"{len(answers)} pods have looked at {len(hosts)} hosts")
        assert place.get("jobs,configmaps", "--selector=serving.kvpp.io/preflight", namespace=namespace)["items"] == []
