"""Every reason a condition can have, with one sentence each and what to do: the runbook is generated from here."""

from __future__ import annotations

from dataclasses import dataclass

ACCEPTED, PORTS, APPLIED, AVAILABLE, HANDOVER, POOL, READY, RECONCILING, STALLED = (
    "Accepted",
    "PortsAllocated",
    "Applied",
    "Available",
    "HandoverSeen",
    "PoolReady",
    "Ready",
    "Reconciling",
    "Stalled",
)
CONDITIONS = (ACCEPTED, PORTS, APPLIED, AVAILABLE, HANDOVER, POOL, READY, RECONCILING, STALLED)


@dataclass(frozen=True)
class Reason:
    name: str
    condition: str
    status: str
    meaning: str
    remedy: str
    warning: bool = False
    """Whether the transition's event is a Warning."""


def good(condition: str, name: str, meaning: str) -> Reason:
    return Reason(name, condition, "True", meaning, "Nothing to do.")


REASONS = (
    good(ACCEPTED, "Accepted", "The spec passed every rule; findings holds the warnings, if any."),
    Reason("Invalid", ACCEPTED, "False", "The spec breaks a rule. What ran before goes on running.",
           "Read status.findings: each names the field, the source and the smallest fix. `kvpp explain RULE` says more.", warning=True),
    good(PORTS, "PodNetwork", "Engines have addresses of their own: one fixed kv block per role, no claim is needed."),
    good(PORTS, "Claimed", "Every port that an engine binds on a host is claimed in the cluster's port ledger."),
    Reason("NotPlanned", PORTS, "Unknown", "The spec is not accepted, so no ports were planned.", "Fix the spec first."),
    Reason("MakingWay", PORTS, "False", "A pinned role can't surge: engines of its older revision stop first and leave them their ports.",
           "Wait; status.engines shows how far. A role without kvPort is rolled out without a pause."),
    Reason("PortConflict", PORTS, "False", "Engines that run have ports in common. Neither was moved.",
           "Scale the role of one of the two to 0 and back: it gets new ports. Find out who made it: not this operator.",
           warning=True),
    Reason("PortsUnavailable", PORTS, "False", "The window has no room for the blocks that are needed, or a pin collides.",
           "The message says what is free, what is needed and who holds most: widen the window, move the pin, or scale down.",
           warning=True),
    good(APPLIED, "Applied", "Every object is as wished."),
    Reason("NotApplied", APPLIED, "Unknown", "The spec is not accepted, so nothing was applied for it.", "Fix the spec first."),
    Reason("ForeignObject", APPLIED, "False", "An object of a name that we need exists and belongs to somebody else; it was left alone.",
           "Delete or rename the object that the message names, or give the deployment another name.", warning=True),
    Reason("MissingApi", APPLIED, "False", "The cluster lacks an API that this deployment needs.",
           "The message names it and says how to install it; nothing has to be touched here afterwards. Engines on several nodes "
           "need LeaderWorkerSet v0.6.0 or newer: `kubectl apply --server-side -f "
           "https://github.com/kubernetes-sigs/lws/releases/download/v0.10.0/manifests.yaml`.", warning=True),
    Reason("Refused", APPLIED, "False", "The API server refused an object: quota, admission policy, rights or validation.",
           "The message holds the server's own words.", warning=True),
    Reason("Retrying", APPLIED, "False", "The API server could not be reached or was too busy; it is tried again.",
           "Look at the API server if it stays."),
    good(AVAILABLE, "Available",
         "At least one prefill and one decode engine, or one unified engine, of one revision is ready, and so is a router in front."),
    Reason("NoEngineReady", AVAILABLE, "False", "No prefill and decode pair, or no unified engine, is ready yet.",
           "Look at status.engines for what each engine waits for."),
    Reason("RouterNotReady", AVAILABLE, "False", "Engines are ready, but no router pod takes requests.",
           "The message holds the router's own words, or why its pod does not run. `kubectl logs` of its container `agent` says more."),
    Reason("RouterWithoutMembers", AVAILABLE, "False", "Kubernetes calls engines ready, but the router finds no healthy pair of them.",
           "It asks every engine's /health itself: look for a NetworkPolicy between router and engines, and at the engines' logs. "
           "Engines need IPv4 addresses: the P/D proxy takes no others.", warning=True),
    Reason("CanaryFailed", AVAILABLE, "False",
           "A short completion through prefill and decode is not what prefill alone answers, so no request is let through.",
           "The message says how it showed. Look for /etc/hccn.conf on the nodes, for cache types that differ between the roles, and "
           "at the engines' logs. It is tried again, at the latest every minute.", warning=True),
    good(HANDOVER, "HandoverSeen", "Decode has fetched KV from prefill, and the first completion was right."),
    Reason("HandoverUnknown", HANDOVER, "Unknown", "No router pod has tried a hand-over yet, or decode does not count what it fetches.",
           "Wait for the router; if it is ready, look at `vllm:mooncake_bytes_transferred` in decode's own metrics."),
    Reason("HandoverNotSeen", HANDOVER, "False", "Requests are answered, but decode fetches no KV: it computes prompts itself.",
           "Compare the kv-transfer settings of both roles (`kvpp commands`), and look for transfer errors in decode's log.",
           warning=True),
    Reason("CanaryFailed", HANDOVER, "False", "A short completion through prefill and decode is not what prefill alone answers.",
           "See Available=False: CanaryFailed.", warning=True),
    good(POOL, "PoolReady", "The pool's service answers: engines find each other's blocks."),
    Reason("PoolDegraded", POOL, "True", "The pool's service answers, but not all of its pods are ready.",
           "The message says which and why; with one more gone, nothing may be left to elect."),
    Reason("PoolDown", POOL, "False",
           "No pod of the pool's service is ready. Engines that run go on without pooled blocks; new ones wait for it.",
           "The message says why; `kubectl logs` of the pod that it names says more. Blocks are lost where a service forgot them.",
           warning=True),
    good(READY, "Ready", "Every engine that is wanted is ready, on the revision of the present spec."),
    Reason("EnginesNotReady", READY, "False", "Some engines that are wanted are not ready.",
           "Look at status.engines: each entry has the scheduler's, kubelet's or engine's own reason."),
    Reason("RouterNotReady", READY, "False", "All engines are ready; a router pod is not, or has not all engines behind it yet.",
           "The message says which and why; condition HandoverSeen tells whether KV moves."),
    Reason("SpecNotAccepted", READY, "False", "The present spec is refused, so what runs is an earlier one or nothing.",
           "Read status.findings and fix the spec."),
    Reason("ObjectsNotApplied", READY, "False", "Not every object could be applied.", "Read condition Applied."),
    Reason("NoEnginesWanted", READY, "True", "Every role has replicas 0.", "Nothing to do."),
    Reason("Progressing", RECONCILING, "True", "Engines are being started, replaced or stopped.", "Wait; status.engines shows how far."),
    Reason("Settled", RECONCILING, "False", "Nothing is under way.", "Nothing to do."),
    Reason("Suspended", RECONCILING, "False", "spec.suspend is true: nothing is changed, what runs, runs.",
           "Set spec.suspend to false to go on."),
    Reason("Healthy", STALLED, "False", "Nothing needs a person.", "Nothing to do."),
    Reason("NeedsChange", STALLED, "True", "It will not go on by itself: the spec, a foreign object or a refusal needs a person.",
           "Read conditions Accepted, PortsAllocated and Applied: the one that is False says what to change.", warning=True),
)  # fmt: skip
BY_NAME = {(reason.condition, reason.name): reason for reason in REASONS}
