"""The operator as a process against a real control plane: repairs, restarts, outages, its end."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from kvpp_operator.cluster.client import Patch
from kvpp_operator.manifest import KIND_OF, Manifest, key_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from tests.controller.conftest import Stage

    Eventually = Callable[..., Awaitable[Any]]

pytestmark = pytest.mark.cluster


async def test_applies_reports_and_writes_each_thing_once(stage: Stage) -> None:
    async with stage.start() as operator:
        await operator.ready()
        await stage.apply(replicas=2)
        live = await stage.observed()
        assert live["status"]["conditions"][0]["status"] == "True"
        assert await operator.probes.writes() == {
            "APPLY ConfigMap": 1,
            "APPLY Deployment": 2,
            "APPLY_STATUS KVPPDeployment": 1,
        }
        assert await operator.probes.metric('kvpp_deployments{condition="Ready",status="True"}') == 1.0
        assert await operator.probes.metric('kvpp_reconcile_seconds_count{result="internal_error"}') == 0.0


async def test_leaves_no_mark_on_the_users_object(stage: Stage, eventually: Eventually) -> None:
    async with stage.start() as operator:
        await operator.ready()
        before = await stage.apply()
        live = await stage.observed()
        assert (live["spec"], live["metadata"]["generation"]) == (before["spec"], 1)
        assert {"annotations", "finalizers", "labels"} & live["metadata"].keys() == set()
        await stage.cluster.delete(stage.user, uid=live["metadata"]["uid"])
        assert await stage.cluster.get(stage.user) is None  # at once: nobody holds it back

        async def collected() -> bool:
            return await stage.cluster.get(stage.settings) is None and await stage.cluster.get(stage.engine) is None

        # The garbage collector looks for new kinds of owners twice a minute.
        await eventually(collected, seconds=90.0)


async def test_a_deleted_and_an_edited_child_are_back_at_once(stage: Stage, eventually: Eventually) -> None:
    async with stage.start() as operator:
        await operator.ready()
        await stage.apply()
        await stage.observed()
        live = await stage.live(stage.settings)
        await stage.cluster.delete(stage.settings, uid=live["metadata"]["uid"])
        await eventually(lambda: stage.cluster.get(stage.settings), seconds=2.0)

        edit = {"spec": {"template": {"spec": {"containers": [{"name": "vllm", "image": "example.com/other"}]}}}}
        await stage.cluster.patch(stage.engine, edit, form=Patch.STRATEGIC)

        async def is_as_wished() -> bool:
            live = await stage.live(stage.engine)
            return bool(live["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/vllm")

        await eventually(is_as_wished, seconds=2.0)


async def test_a_new_spec_prunes_what_it_no_longer_wants(stage: Stage) -> None:
    async with stage.start() as operator:
        await operator.ready()
        await stage.apply(replicas=3)
        await stage.observed()
        await stage.apply(replicas=1)
        await stage.observed(generation=2)
        deployments = KIND_OF["apps/v1", "Deployment"]
        left = [item async for item in stage.cluster.list(deployments, namespace=stage.namespace)]
        assert [item["metadata"]["name"] for item in left] == ["glm-u0"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_after_a_restart_nothing_is_written(stage: Stage, eventually: Eventually, number: int) -> None:
    async with stage.start() as operator:
        await operator.ready()
        for name in ("glm", "other"):
            await stage.apply(name, replicas=2)
            await stage.observed(name)
        await operator.stop(number)
    async with stage.start() as operator:

        async def looked_at_both() -> bool:
            return await operator.probes.metric('kvpp_reconcile_seconds_count{result="ok"}') >= 2

        await eventually(looked_at_both)
        assert await operator.probes.writes() == {}


async def test_what_changed_while_it_was_away_is_made_good(stage: Stage, eventually: Eventually) -> None:
    async with stage.start() as operator:
        await operator.ready()
        await stage.apply()
        await stage.observed()
        await operator.stop()
    live = await stage.live(stage.settings)
    await stage.cluster.delete(stage.settings, uid=live["metadata"]["uid"])
    async with stage.start():
        await eventually(lambda: stage.cluster.get(stage.settings))


async def test_an_api_server_that_dies_and_comes_back(stage: Stage, local_cluster: Any, eventually: Eventually) -> None:
    async with stage.start() as operator:
        await operator.ready()
        await stage.apply()
        await stage.observed()
        outage = asyncio.to_thread(local_cluster.control_plane.restart_apiserver, down_seconds=2.0)
        restart = asyncio.create_task(outage)

        async def is_unready() -> bool:
            return not await operator.probes.is_ready()

        await eventually(is_unready)
        assert (await operator.probes.get("/healthz"))[0] == 200
        problems = await operator.probes.problems()
        assert any("cannot reach the API server" in problem for problem in problems), problems
        await restart
        await operator.ready()
        before = await operator.probes.writes()
        await stage.apply(replicas=2)
        await stage.observed(generation=2)
        after = await operator.probes.writes()
        assert after["APPLY Deployment"] - before["APPLY Deployment"] == 1
        assert operator.process.returncode is None


async def test_sigterm_finishes_the_look_in_flight_and_exits_0(stage: Stage, eventually: Eventually) -> None:
    async with stage.start() as operator:
        await operator.ready()
        await stage.apply(replicas=30)
        await eventually(lambda: stage.cluster.get(stage.settings))  # the first of its objects: it is at work
        started = time.monotonic()
        assert await operator.stop() == 0
        assert time.monotonic() - started < 8.0  # 4 for the look, 2 for the watches, the rest for a busy machine
        assert (await stage.live(stage.user))["status"]["observedGeneration"] == 1


async def test_sigterm_while_it_waits_for_a_dead_server(stage: Stage, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "nowhere"
    cluster = {"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "x"}}
    kubeconfig.write_text(json.dumps({"current-context": "x", "clusters": [cluster], "contexts": [context]}))
    async with stage.start(kubeconfig) as operator:
        assert not await operator.probes.is_ready()
        assert await operator.stop() == 0


@pytest.fixture
async def grant(stage: Stage) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Give the service account `operator` of the stage all rights; the cluster forgets it afterwards."""
    group = "rbac.authorization.k8s.io"
    meta = {"name": f"operator-{stage.namespace}"}
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": meta, "rules": [rule]}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": meta["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": stage.namespace}],
    }
    granted: list[Manifest] = []

    async def give() -> None:
        granted.extend([await stage.cluster.apply(role), await stage.cluster.apply(binding)])

    yield give
    for manifest in granted:
        await stage.cluster.delete(key_of(manifest), uid=manifest["metadata"]["uid"])


async def test_without_rights_it_says_why_and_heals_when_given_them(
    stage: Stage, local_cluster: Any, grant: Callable[[], Awaitable[None]], eventually: Eventually
) -> None:
    meta = {"name": "operator", "namespace": stage.namespace}
    await stage.cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    kubeconfig = local_cluster.control_plane.kubeconfig_for_service_account(stage.namespace, "operator")
    async with stage.start(kubeconfig) as operator:

        async def says_so() -> bool:
            return any("refused by the API server (403" in problem for problem in await operator.probes.problems())

        await eventually(says_so)
        await grant()
        await operator.ready()
        await stage.apply()
        await stage.observed()


async def test_is_small(stage: Stage) -> None:
    async with stage.start() as operator:
        await operator.ready()
        await stage.apply(replicas=20)
        await stage.observed()
        assert await operator.probes.metric("process_resident_memory_bytes") < 70 * 2**20


async def test_logs_are_json_lines(stage: Stage) -> None:
    async with stage.start() as operator:
        await operator.ready()
        await operator.stop()
    lines = [json.loads(line) for line in operator.log.read_text().splitlines()]
    assert [line["message"] for line in lines] == ["started", "synchronised", "stopping", "stopped"]
    assert {"time", "level", "logger"} <= lines[0].keys()
