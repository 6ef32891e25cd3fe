"""The chips we know: resource names, NPUs per node, legal counts, image suffix, mounts, environment.

Source: launch facts 7.2, 11.1, 12.1, 12.2 and 12.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kvpp_operator.api.model import ChipName, InterconnectName

CacheType = Literal["int8", "fp8"]


@dataclass(frozen=True)
class HostMount:
    """One host path, mounted read-only at the same path in the pod.

    The type is always checked: without a check a container runtime makes a missing file on the host, as a folder.
    """

    name: str
    path: str
    type: Literal["File", "Directory"]
    transfer: bool = False
    """Only engines that hand KV over need it."""


HCCN = HostMount("hccn-conf", "/etc/hccn.conf", "File", transfer=True)
HCCN_TOOL = HostMount("hccn-tool", "/usr/local/Ascend/driver/tools/hccn_tool", "File", transfer=True)
INSTALL_INFO = HostMount("ascend-install-info", "/etc/ascend_install.info", "File")
VERSION_INFO = HostMount("driver-version", "/usr/local/Ascend/driver/version.info", "File")
DRIVER = "/usr/local/Ascend/driver"
DRIVER_TREE = (
    HostMount("ascend-driver", DRIVER, "Directory"),
    HostMount("dcmi", "/usr/local/dcmi", "Directory"),
    HostMount("npu-smi", "/usr/local/bin/npu-smi", "File"),
)
UB_FILES = (
    HostMount("hixlep", "/etc/hixlep", "Directory", transfer=True),
    HostMount("route-conf", "/lib/route.conf", "File", transfer=True),
    HostMount("hccl-rootinfo", "/etc/hccl_rootinfo.json", "File", transfer=True),
)


@dataclass(frozen=True)
class Chip:
    name: ChipName
    product: str
    resource_name: str
    """The extended resource of the MindCluster device plugin."""
    devices_per_node: int
    image_suffix: str
    interconnect: InterconnectName
    cache_type: CacheType
    """Data type that C8 means on this chip (launch facts 7.2)."""
    even_devices: bool
    """A part of a node is one NPU or an even number of them."""
    small_files: tuple[HostMount, ...]
    ring_controller: str
    """Value of the label `ring-controller.atlas` for MindCluster's scheduling (launch facts 12.1)."""
    env: dict[str, str] = field(default_factory=dict)
    source: str = ""


COMMON_ENV = {
    "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
    "HCCL_OP_EXPANSION_MODE": "AIV",
    "OMP_PROC_BIND": "false",
}
A_FILES = (INSTALL_INFO, VERSION_INFO, HCCN, HCCN_TOOL)
KUBERNETES = "launch facts 12.1 and 12.2"

CHIPS = (
    Chip("A2", "Atlas A2 (910B)", "huawei.com/Ascend910", 8, "", "RoCE", "int8", even_devices=False, small_files=A_FILES,
         ring_controller="ascend-910b", env=COMMON_ENV, source=KUBERNETES),
    Chip("A3", "Atlas A3 (910C)", "huawei.com/Ascend910", 16, "-a3", "HCCS", "int8", even_devices=True, small_files=A_FILES,
         ring_controller="ascend-910b", env=COMMON_ENV, source=KUBERNETES),
    Chip("950DT", "Ascend 950DT", "huawei.com/npu", 8, "-a5", "UB", "fp8", even_devices=False,
         small_files=(*A_FILES, *UB_FILES), ring_controller="ascend-npu", env=COMMON_ENV, source=KUBERNETES),
    Chip("950PR", "Ascend 950PR", "huawei.com/npu", 8, "-a5", "UB", "fp8", even_devices=False,
         small_files=(*A_FILES, *UB_FILES), ring_controller="ascend-npu", env=COMMON_ENV, source=f"{KUBERNETES}; image suffix as 950DT"),
)  # fmt: skip
BY_NAME = {chip.name: chip for chip in CHIPS}

TRANSFER_ENV: dict[tuple[str, str], dict[str, str]] = {
    ("A2", "RoCE"): {"HCCL_INTRA_ROCE_ENABLE": "1"},
    ("A2", "HCCS"): {},
    ("A3", "RoCE"): {"HCCL_INTRA_ROCE_ENABLE": "1"},
    ("A3", "HCCS"): {"ACL_OP_INIT_MODE": "1", "ASCEND_ENABLE_USE_FABRIC_MEM": "1"},
    ("950DT", "UB"): {"ASCEND_LOCAL_COMM_RES": '{"version":"1.3"}'},
    ("950DT", "UBoE"): {"ASCEND_GLOBAL_RESOURCE_CONFIG": '{"comm_resource_config.protocol_desc":["uboe:device"]}'},
    ("950PR", "UB"): {"ASCEND_LOCAL_COMM_RES": '{"version":"1.3"}'},
    ("950PR", "UBoE"): {"ASCEND_GLOBAL_RESOURCE_CONFIG": '{"comm_resource_config.protocol_desc":["uboe:device"]}'},
}
"""Environment for KV transfer and pools by chip and interconnect (launch facts 4.3, Ascend env by hardware)."""

HUGE_PAGES: dict[tuple[str, str], str] = {("A2", "RoCE"): "64Gi", ("A3", "RoCE"): "64Gi"}
"""`hugepages-2Mi` of a pod with a Mooncake or memcache pool over RoCE; UB and HCCS need none (launch facts 11.1)."""

SHARED_MEMORY_GIBIBYTES_PER_DEVICE = 16
"""A small /dev/shm hangs HCCL's start: the engine's CI went from 15Gi to 128Gi for eight NPUs (vllm-ascend #8693)."""


def shared_memory(devices: int) -> str:
    """Size of a pod's /dev/shm by its NPUs, a quantity."""
    return f"{max(devices, 1) * SHARED_MEMORY_GIBIBYTES_PER_DEVICE}Gi"
