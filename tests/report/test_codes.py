"""Words as engines, kubelets and API servers say them → the known failure."""

from __future__ import annotations

import pytest

from kvpp_operator.report.codes import BY_NAME, CODES, PHASES, recognise

SAID = [
    ("quota", 'FailedCreate: pods "a" is forbidden: exceeded quota: npus, requested: requests.huawei.com/npu=8, used: requests.huawei.com/npu=8, limited: requests.huawei.com/npu=8'),
    ("quota", 'FailedCreate: pods "a" is forbidden: failed quota: all: must specify limits.memory for: vllm'),
    ("limit-range", 'FailedCreate: pods "a" is forbidden: maximum cpu usage per Container is 8, but limit is 40'),
    ("limit-range", 'FailedCreate: Pod "a" is invalid: spec.containers[0].resources.requests: Invalid value: "40": must be less than or equal to cpu limit of 8'),
    ("pod-security", 'FailedCreate: pods "a" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes (volumes "hccn-conf")'),
    ("priority-class", 'FailedCreate: pods "a" is forbidden: no PriorityClass with name gold was found'),
    ("npus-used-up", "Unschedulable: 0/8 nodes are available: 6 Insufficient huawei.com/npu, 2 Insufficient cpu"),
    ("npus-used-up", "Unschedulable: 0/8 nodes are available: 8 Insufficient huawei.com/ascend-1980"),
    ("host-port-taken", "Unschedulable: 0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports"),
    ("apart", "Unschedulable: 0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules"),
    ("node-lost", "Evicted: Taint manager: deleting due to NoExecute taint"),
    ("image-pull", 'ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image "quay.io/ascend/vllm-ascend:v9"'),
    ("host-file-missing", 'FailedMount: MountVolume.SetUp failed for volume "hccn-conf" : hostPath type check failed: /etc/hccn.conf is not a file'),
    ("config-missing", 'CreateContainerConfigError: secret "key" not found'),
    ("volume", 'FailedAttachVolume: Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) x'),
    ("arguments", "CrashLoopBackOff: vllm: error: unrecognized arguments: --prefill-context-parallel-size 2"),
    ("lws-too-old", "vllm: error: argument --node-rank: invalid int value: '$(LWS_WORKER_INDEX)'"),
    ("kvpp-refused", "Error: exit code 1. ValueError: KVPP currently supports only non-hybrid MLA models."),
    ("kvpp-refused", "Error: exit code 1. ValueError: KVPP PD disaggregation requires MooncakeConnectorV2."),
    ("driver-missing", "CrashLoopBackOff: ImportError: libascend_hal.so: cannot open shared object file: No such file or directory"),
    ("set-device", "RuntimeError: Initialize:torch_npu/csrc/core/npu/sys_ctrl/npu_sys_ctrl.cpp:146 NPU function error: c10_npu::SetDevice(device_id_), error code is 507033"),
    ("threads", "CrashLoopBackOff: RuntimeError: can't start new thread"),
    ("memory-lock", "RuntimeError: rtsHostRegister failed, ret 507899"),
    ("hub", "huggingface_hub.errors.GatedRepoError: 403 Client Error."),
    ("weights-missing", "OSError: /mnt/model/GLM-5.2 does not appear to have a file named config.json."),
    ("weights-broken", "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge"),
    ("npu-out-of-memory", "torch.OutOfMemoryError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 61.00 GiB total capacity)"),
    ("npu-out-of-memory", "EL0004: [PID: 7] Failed to allocate memory."),
    ("no-room-for-cache", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
    ("no-room-for-cache", "ValueError: Free memory on device (3.1/61.0 GiB) on startup is less than desired GPU memory utilization (0.9, 54.9 GiB)."),
    ("host-out-of-memory", "OOMKilled: exit code 137"),
    ("address-in-use", "zmq.error.ZMQError: Address already in use (addr='tcp://10.0.0.1:37008')"),
    ("address-in-use", "EJ0003: [PID: 159] Failed to bind the IP port. Reason: The IP address and port have been bound already."),
    ("address-in-use", "Communication_Error_Bind_IP_Port(EI0019): Failed to bind the IP port."),
    ("address-in-use", "listen on ip[192.2.2.195] and specific port[16666] fail. Please check the port status"),
    ("link-down", "RuntimeError: EJ0002: [PID: 38079] The network port is down."),
    ("hccl-timeout", "Get_Socket_Timeout(EI0006): Getting socket times out. Reason: 1. The remote does not initiate a connect request."),
    ("hccl-timeout", "EI0009: [PID: 2225827] Transport init error. Reason: [Create][DestLink]Create Dest error!"),
    ("rendezvous", "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."),
    ("rendezvous", "The client socket has timed out after 600000ms while trying to connect to (demo-p0-x-0.demo-p0-x.default, 29501)."),
    ("rank-lost", "Worker proc VllmWorker-3 died unexpectedly (exit code: -9), shutting down executor."),
    ("same-node-transfer", "ADXL connect failed, status 103900"),
    ("kernel", "RuntimeError: synchronize failed, error code is 507034"),
    ("pool-join", "ValueError: The environment variable MMC_LOCAL_CONFIG_PATH is not set."),
    ("engine-start", "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), SAID)
def test_words_are_recognised(name: str, text: str) -> None:
    code = recognise(text)
    assert code is not None
    assert code.name == name


@pytest.mark.parametrize(
    "text",
    [
        "Loading: the engine runs but is not ready yet",
        "Starting: waiting for the pod",
        "Terminating: the pod is being stopped",
        "CrashLoopBackOff: exit code 3",
        "INFO: Application startup complete.",
        "FooError: port 5070110 is fine, status 1039000, xEJ0003x",
    ],
)
def test_others_are_not(text: str) -> None:
    assert recognise(text) is None


def test_every_code_has_words_that_name_it() -> None:
    assert {name for name, _ in SAID} == BY_NAME.keys()


def test_codes_are_whole() -> None:
    phases = {phase for phase, _ in PHASES}
    assert len(BY_NAME) == len(CODES)
    for code in CODES:
        assert code.phase in phases
        assert code.source
        assert len(code.hint) <= 100, code.name
        assert code.name == code.name.lower().replace(" ", "-")
