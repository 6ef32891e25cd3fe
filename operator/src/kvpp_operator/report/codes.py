"""Known failures of engines: how a pod's own words are recognised, in which phase they come up, and what to do.

`docs/engine-codes.md` is generated from here. The first entry that matches is taken, so what names a cause stands before what
only names an effect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Phase = Literal["admission", "scheduling", "pull", "mounts", "start", "weights", "memory", "ports", "HCCL", "graph", "transfer", "pool"]  # fmt: skip
PHASES: tuple[tuple[Phase, str], ...] = (
    ("admission", "The API server refuses the pod."),
    ("scheduling", "The pod waits for a node."),
    ("pull", "The node fetches the image."),
    ("mounts", "The node prepares volumes, Secrets and ConfigMaps."),
    ("start", "The engine reads its arguments and opens its NPUs."),
    ("weights", "The engine reads the model."),
    ("memory", "NPU or host memory does not suffice."),
    ("ports", "A port that the engine binds is taken."),
    ("HCCL", "The ranks of an engine find each other."),
    ("graph", "Kernels are compiled, graphs captured, the model runs."),
    ("transfer", "KV goes from prefill to decode."),
    ("pool", "The engine joins the shared KV store."),
)


@dataclass(frozen=True)
class Code:
    """One known failure."""

    name: str
    """Anchor of the page."""
    phase: Phase
    pattern: str
    """Regular expression, looked for in `<reason>: <message>`."""
    meaning: str
    hint: str
    """A few words for status."""
    remedy: str
    source: str

    def found_in(self, text: str) -> bool:
        return re.search(self.pattern, text) is not None


CODES: tuple[Code, ...] = (
    Code("quota", "admission", r"exceeded quota|failed quota",
         "A ResourceQuota of the namespace leaves no room for the pod, or wants requests or limits that the pod does not name.",
         "raise the quota or lower replicas",
         "Raise the quota, lower `replicas`, or give the requests and limits that it asks for through `podTemplate`.",
         "Kubernetes, ResourceQuota"),
    Code("limit-range", "admission", r"(maximum|minimum) \S+ usage per|limit to request ratio|must be less than or equal to \S+ limit",
         "A LimitRange of the namespace forbids the pod's requests or limits.", "change the LimitRange or podTemplate resources",
         "Change the LimitRange, or the resources of container `vllm` through `podTemplate`.", "Kubernetes, LimitRange"),
    Code("pod-security", "admission", r"violates PodSecurity",
         "The namespace's Pod Security level forbids what engines need: hostPath volumes, and IPC_LOCK with KV transfer.",
         "label the namespace pod-security.kubernetes.io/enforce=privileged",
         "Label the namespace `pod-security.kubernetes.io/enforce: privileged`: level baseline has neither hostPath volumes nor "
         "IPC_LOCK. Engines are still not privileged containers.", "Kubernetes, Pod Security Standards"),
    Code("priority-class", "admission", r"no PriorityClass with name",
         "`podTemplate` names a PriorityClass that does not exist.", "create the PriorityClass",
         "Create it, or correct `podTemplate.spec.priorityClassName`.", "Kubernetes, admission plugin Priority"),
    Code("npus-used-up", "scheduling", r"Insufficient (huawei\.com/\S+)",
         "No node has as many NPUs free as one pod asks for.", "add nodes, free NPUs, or lower replicas",
         "Add nodes, free NPUs or lower `replicas`. Do nodes show the resource at all (`kubectl describe node`)? Its name is a "
         "matter of the device plugin: `accelerator.resourceName`, or the operator's configuration.",
         "kube-scheduler; launch facts 12.1"),
    Code("host-port-taken", "scheduling", r"didn't have free ports",
         "On the host network another pod holds a port that the engine would bind.", "see kvpp ports",
         "`kvpp ports` shows who holds what; engines of this operator never collide, so it is another pod's hostPort: list it in "
         "`networking.reservedPorts`.", "kube-scheduler"),
    Code("apart", "scheduling", r"didn't match pod anti-affinity rules",
         "Prefill and decode of one deployment don't share a node on the pod network, and the other nodes are full.",
         "add a node",
         "Add a node. Where chips reach each other inside a node over the pod network too, an empty list at "
         "`podTemplate.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution` takes the rule away.",
         "vllm-ascend #14506"),
    Code("node-lost", "scheduling", r"Taint manager: deleting",
         "The pod's node is unreachable or not ready, or was tainted NoExecute by hand.", "the engine comes back on another node",
         "Nothing, if the node is known to be down: after Kubernetes' own 300 s (a toleration of `podTemplate` changes them), the "
         "grace period and 30 s more the engine is made anew elsewhere, if there is room.", "Kubernetes, taint-eviction-controller"),
    Code("image-pull", "pull", r"^(ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull)\b",
         "The node cannot fetch the engine's image: no such tag, no right, no route.",
         "check engine.image, imagePullSecrets and the mirror",
         "Compare the tag with what the registry has (`engine.version` and the chip make it, `engine.image` overrides), name "
         "`imagePullSecrets`, or set `imageRepository` of the operator's configuration to a mirror.", "Kubernetes, images"),
    Code("host-file-missing", "mounts", r"hostPath type check failed",
         "A file or folder of the host that the pod mounts is not there: driver files, `/etc/hccn.conf`, or the weights.",
         "make the path exist on that node",
         "Install the driver completely on that node (`/etc/hccn.conf` is written by hccn_tool's configuration), or copy the "
         "weights there. Without hccn.conf answers are silently wrong, so the mount is never optional.", "vllm-ascend #7711"),
    Code("config-missing", "mounts", r"^CreateContainerConfigError\b",
         "A Secret or ConfigMap that the pod refers to, or a key in it, does not exist.", "create the Secret or key that it names",
         "Create it in the deployment's namespace; the pod goes on by itself.", "Kubernetes, kubelet"),
    Code("volume", "mounts", r"^(FailedMount|FailedAttachVolume|FailedMapVolume)\b|unbound immediate PersistentVolumeClaims",
         "A volume cannot be mounted: claim unbound, storage unreachable, or attached elsewhere.", "look at the claim",
         "`kubectl describe pvc`. A claim for several nodes needs access mode ReadOnlyMany or ReadWriteMany.", "Kubernetes, kubelet"),
    Code("lws-too-old", "start", r"\$\(LWS_WORKER_INDEX\)",
         "LeaderWorkerSet did not tell the pod its rank: it is older than v0.6.0, or its pod webhook was not called.",
         "install LeaderWorkerSet v0.6.0 or newer",
         "Install LeaderWorkerSet v0.6.0 or newer; its mutating webhook for pods must be registered.", "kubernetes-sigs/lws #416"),
    Code("arguments", "start", r"vllm: error:|unrecognized arguments|error: argument -|Extra inputs are not permitted",
         "The image does not know an argument that this `engine.version` has: the image is of another release.",
         "make engine.version and the image's tag agree",
         "Set `engine.version` to the release that the image holds; the operator then renders and judges for that one.",
         "vLLM's argument parser; launch facts 1.1"),
    Code("kvpp-refused", "start", r"KVPP (currently supports|supports|does not support|and DCP|PD disaggregation|must be disabled|requires)",
         "The engine's start-up check refuses this combination with KVPP: the image is older than the feature.",
         "use a newer engine.version, or turn the feature off",
         "`kvpp rules` lists since when each combination is accepted. If the operator accepted it for this `engine.version`, the "
         "image is of another release.", "launch facts 1.2, 1.3"),
    Code("driver-missing", "start", r"libascend_hal\.so|libdrvdsmi|driver.{0,40}(not found|not installed)",
         "The driver's libraries are not in the container: the node's runtime does not inject them.",
         "set accelerator.driverMounts: Host",
         "Where ascend-docker-runtime is not the node's default, set `accelerator.driverMounts: Host` (or `driverMounts` of the "
         "operator's configuration), or a `runtimeClassName`.", "launch facts 12.2"),
    Code("set-device", "start", r"\b507033\b|Set visible device failed|aclrtSetDevice",
         "An NPU cannot be opened: device ids of the host used inside the container, or the NPU is held by another process.",
         "leave ASCEND_RT_VISIBLE_DEVICES to the device plugin",
         "Don't set ASCEND_RT_VISIBLE_DEVICES or ASCEND_VISIBLE_DEVICES in the image; in the container ids count from 0. If it "
         "stays on one node, `npu-smi info` there shows what holds the NPU.", "vllm-ascend #9428, #2557, #1558"),
    Code("threads", "start", r"can't start new thread",
         "The container may not start threads: an old host's seccomp profile blocks clone3, or a limit on processes.",
         "seccompProfile Unconfined, or a higher pids limit",
         "Set `securityContext.seccompProfile.type: Unconfined` through `podTemplate`, or raise the kubelet's podPidsLimit.",
         "launch facts 12.4"),
    Code("memory-lock", "start", r"rtsHostRegister|memlock|RLIMIT_MEMLOCK",
         "Host memory cannot be registered for the NPU: the runtime limits locked memory.",
         "LimitMEMLOCK=infinity for containerd on the node",
         "Engines with KV transfer have the capability IPC_LOCK; the limit itself is the container runtime's: set "
         "`LimitMEMLOCK=infinity` in its systemd unit.", "launch facts 12.3; Mooncake #1854"),
    Code("hub", "weights", r"(401|403) Client Error|GatedRepoError|RepositoryNotFoundError|LocalEntryNotFoundError|OfflineModeIsEnabled",
         "The model hub refuses the download, or cannot be reached.", "check repo, token and route to the hub",
         "Check `model.source`, the Secret of `tokenSecretRef`, and whether nodes reach the hub; a volume with the weights is the "
         "safer way.", "Hugging Face hub client"),
    Code("weights-missing", "weights", r"config\.json|not a valid model identifier|Repo id must|Can't load (the configuration|tokenizer)",
         "There is no model at the path: wrong folder of the volume, or an empty one.", "check model.source's path",
         "Look into the volume: the folder that `model.source` names must hold config.json and the weights.", "transformers"),
    Code("weights-broken", "weights", r"SafetensorError|HeaderTooLarge|MetadataIncompleteBuffer|incomplete metadata",
         "A weight file is damaged: a broken download, or a Git LFS pointer instead of the file.", "copy the weights again",
         "Compare sizes and checksums with the source and copy them again.", "safetensors"),
    Code("npu-out-of-memory", "memory", r"NPU out of memory|OutOfMemoryError|\bEL0004\b|\b207001\b|\b207018\b",
         "NPU memory does not suffice for weights, cache and communication buffers. EL0004 with a pool: the segment is larger than "
         "the fabric memory.", "lower gpuMemoryUtilization or maxModelLen; KVPP's transfer and pool need room too",
         "Lower `scheduler.gpuMemoryUtilization` (transfer and pool take memory beside it), `maxNumBatchedTokens` or "
         "`maxModelLen`, or spread over more NPUs. With a pool on A3, `memoryPerDevice` must fit into the fabric memory.",
         "vllm-ascend #6127, #13248, #12839; launch facts 4.3"),
    Code("no-room-for-cache", "memory", r"No available memory for the cache blocks|less than desired|KV cache is needed, which is larger",
         "After the weights too little memory is left for one request of the full length.", "lower maxModelLen or use more NPUs",
         "Lower `model.maxModelLen`, raise `scheduler.gpuMemoryUtilization`, or spread the model over more NPUs.", "vLLM 0.30, v1/core"),
    Code("host-out-of-memory", "memory", r"\bOOMKilled\b",
         "The container used more host memory than its limit; `/dev/shm` counts.", "raise the memory limit in podTemplate",
         "Raise or remove the memory limit in `podTemplate`; shared memory and a pool's memory are part of it.", "Kubernetes"),
    Code("address-in-use", "ports", r"[Aa]ddress already in use|EADDRINUSE|\bEJ0003\b|\bEI0019\b|have been bound already|specific port\[\d+\] fail",
         "Somebody on the host or in the pod holds a port that the engine binds: HCCL's (EJ0003, EI0019), the transport's, or a kv "
         "port.", "see kvpp ports; list the stranger's ports in networking.reservedPorts",
         "On the host network list foreign ports in `networking.reservedPorts` and look at `kvpp ports`. HCCL's 60000 and up and "
         "16666 collide when processes outside this operator use the same NPUs.", "vllm-ascend #405, #16205, #4725, #6455"),
    Code("link-down", "HCCL", r"\bEJ0002\b|network port is down",
         "The NPU's own network port has no link.", "check the NPU's link: hccn_tool -i ID -link -g",
         "`hccn_tool -i ID -link -g` on that node, for each NPU; optics and switch ports are the usual cause.",
         "vllm-ascend #1815, #10502"),
    Code("hccl-timeout", "HCCL", r"\bEI0006\b|\bEI0009\b|[Gg]et(ting)?[_ ]socket times? ?out|wait socket establish timeout|Transport init error",
         "A rank waited in vain for another one's connection: that one failed earlier, started much later, or is not reachable.",
         "look at the other ranks first; then links and startupTimeout",
         "The rank with a different error is the cause. If all say the same: links between the nodes (`hccn_tool -link`, TLS "
         "setting alike everywhere), or one node loads much more slowly (`startupTimeout` sets HCCL_CONNECT_TIMEOUT too).",
         "vllm-ascend #5461, #3162, #16646"),
    Code("rendezvous", "HCCL", r"DistStoreError|client socket has timed out|waiting for (clients|node ranks)|head does not answer",
         "The nodes of an engine did not find each other through the head's rendezvous port.",
         "pods of an engine must reach each other",
         "All pods of an engine must reach each other on every port: look for NetworkPolicies, and whether the head's name "
         "resolves in a worker pod (headless Service of the LeaderWorkerSet).", "vLLM 0.30, distributed/parallel_state.py"),
    Code("rank-lost", "HCCL", r"worker processes are alive|Worker proc \S+ died|died unexpectedly|EngineDeadError|head is gone",
         "A rank or worker ended while the others worked; the group is made anew.", "read the log of the rank that ended first",
         "`kubectl logs --previous` of each pod of the engine: the earliest failure is the cause.", "vLLM 0.30, v1/executor"),
    Code("same-node-transfer", "transfer", r"\b103900\b",
         "Prefill and decode on one node with addresses of their own are taken for two servers, and the link between them is down.",
         "keep prefill and decode on different nodes, or use the host network",
         "Leave the default anti-affinity in place, or set `networking.hostNetwork: true`.", "vllm-ascend #14506, #5044"),
    Code("kernel", "graph", r"\b5070(11|14|15|16|17|18|34|35|46)\b|aclgraph|[Gg]raph capture",
         "A kernel failed or timed out on the NPU, often as the consequence of a lost rank or memory error before it.",
         "look for an earlier error; then driver and CANN versions",
         "Look for an earlier error on any rank. Else compare the node's driver with what the image's CANN needs, and try "
         "`graphMode: Eager`.", "CANN aclError 5070xx; vllm-ascend #16205, #5468"),
    Code("pool-join", "pool", r"MMC_\w+|mmc[_-]local|MF_GROUP_JOIN|MOONCAKE_\w+|batch_put_session_start",
         "The engine cannot join the pool: service unreachable, file wrong, or the image's client too old.",
         "look at the pool's pods and condition",
         "Look at the pool's pods; layerwise Mooncake needs a client that no released image has yet.", "launch facts 4.2, 11.1 (Pools)"),
    Code("engine-start", "start", r"Engine core initialization failed",
         "The engine did not come up; the cause stands further up in its log.", "kubectl logs --previous",
         "Read the log from the first ERROR on, of every pod of the engine.", "vLLM 0.30, v1/engine"),
)  # fmt: skip

BY_NAME = {code.name: code for code in CODES}


def recognise(text: str) -> Code | None:
    """The known failure that a pod's words tell of."""
    return next((code for code in CODES if code.found_in(text)), None)
