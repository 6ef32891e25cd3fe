"""The real memcache client reads the file that engines mount. Without a driver it stops behind the config store."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from specs import UNIFIED

from kvpp_operator.catalogue import pools
from kvpp_operator.plan.model import Plan
from kvpp_operator.plan.pool import plan_pool
from kvpp_operator.render.pool.config import local_conf
from kvpp_operator.render.pool.meta_service import config
from kvpp_operator.rules import memcache_keys

ADDRESS = "127.0.0.1"


@pytest.fixture
def planned(plan_of: Any, pooled: Any, free_ports: Any) -> Callable[[str], Plan]:
    """A plan with that protocol, whose MetaService has ports of this host."""

    def planned(protocol: str) -> Plan:
        ports = dict(zip(("rpc", "store", "http"), free_ports(3), strict=True))
        accelerator = {"chip": "A3"} if protocol == "DeviceSdma" else {"chip": "950DT"}
        pooling = {"backend": "Memcache", "memcache": {"protocol": protocol, "memoryPerDevice": "1Gi"}}
        plan = plan_of(pooled(UNIFIED | {"accelerator": accelerator}, pooling))
        return Plan(plan.resolved, plan.roles, plan.engines, plan_pool(plan.resolved, "", ports))

    return planned


@pytest.mark.parametrize("protocol", ["DeviceUrma", "DeviceSdma", "HostTcp", "HostShm"])
def test_it_takes_our_file_and_finds_the_config_store(
    protocol: str, client: Any, planned: Any, meta_service: Any, until_healthy: Any, *, eventually: Any
) -> None:
    """By name: the Service's is one, too."""
    plan = planned(protocol)
    until_healthy(meta_service(config(plan), ADDRESS), plan.pool.service.ports["http"])
    pool = plan.pool
    text = local_conf("demo", pool).replace(pool.rpc.host, "localhost")
    process = client("1.3.0", text.replace("$(POD_IP)", ADDRESS).replace("$(LOCAL_SERVICE_PORT)", "7000"))
    eventually(lambda: "Success to auto ranking" in process.said(), what=process.said)
    assert f"ock.mmc.local_service.protocol = {pools.MEMCACHE_PROTOCOLS[protocol]}" in process.said()
    assert f"connect store success, ip:{ADDRESS}:{pool.service.ports['store']}" in process.said()


@pytest.mark.parametrize("version", ["1.2.1", "1.3.0"])
def test_every_key_of_our_table_is_known_to_it(version: str, client: Any) -> None:
    known = {key for key in memcache_keys.LOCAL if version != "1.2.1" or key not in pools.LOCAL_SINCE_1_3_0}
    lines = [f"{key} = {sample(memcache_keys.LOCAL[key])}\n" for key in sorted(known)]
    process = client(version, "".join(lines) + "ock.mmc.last = 1\n")
    process.wait()
    said = process.said()
    assert re.findall(r"Invalid key <(.*)>", said) == ["ock.mmc.last"], said[-2000:]


def sample(form: memcache_keys.Form) -> str:
    given = {"true or false": "true", memcache_keys.TEXT.words: "a", "a size such as 1GB or 512MB": "1GB"}
    number = re.search(r"\d+", form.words)
    return given.get(form.words) or (number[0] if number else form.words.removeprefix("one of ").split(",")[0])


def test_a_size_in_kubernetes_words_is_refused(client: Any) -> None:
    """Why a share is rendered as `64GB`, which is 64 GiB there."""
    process = client("1.3.0", "ock.mmc.local_service.dram.size = 64Gi\n")
    process.wait()
    assert "Memory size value (64Gi) is invalid" in process.said()
