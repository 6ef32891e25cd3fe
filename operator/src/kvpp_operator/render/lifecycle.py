"""A role's engine → how the kubelet watches its pods, and how it lets them go.

Heads are asked over HTTP. A rank above 0 serves none (`vllm serve --headless`), and what ends it by itself is only the death
of a worker that its parent process notices. So the kubelet looks for two things that a rank can't work without:

- its worker processes, one an NPU, neither dead nor stopped: each carries the title `VLLM::Worker…` once it has joined the
  group (vLLM 0.28 to 0.30, v1/executor/multiproc_executor.py, set_process_title), a zombie has none;
- the head's rendezvous port: rank 0's torch store listens there from the start until the engine's end, for data-parallel
  engines too (vLLM 0.28 to 0.30, distributed/parallel_state.py), and takes no harm from a connection that says nothing
  (tried). Only data-parallel ranks of a model that is no mixture of experts have no group in common.

What looks alive from outside and does no work, a collective that never ends, only the head can see: its execute timeout makes
`/health` answer 503, its own probe restarts it, and LeaderWorkerSet then makes the whole group anew.

Both scripts are bash, which the CANN images have and which dials TCP itself: a Python every ten seconds would take CPU time
from the engine's bound cores, and an exec probe does not pass through the entrypoint that sets Python up.
"""

from __future__ import annotations

from typing import Any

from kvpp_operator.plan.model import Plan, RolePlan
from kvpp_operator.render.tokens import PortRef

PROBE_PERIOD = 10

SHUTDOWN_MARGIN = 30
"""Workers get 5 s and 4 s after the drain before they are killed (launch facts 10.2)."""

LEAVE_SECONDS = 5
"""Between the pod's deletion and SIGTERM: Services and the router take their time to let go of a head, and what they still
send meanwhile is served.

Then `--shutdown-timeout` drains. A prefill engine does not end before decode has pulled what it holds: requests whose blocks
are freed later count as work (vLLM 0.28 to 0.30, v1/core/sched/scheduler.py, has_finished_requests)."""

WORKERS = """\
alive=0
for folder in /proc/[0-9]*; do
  { IFS= read -r -d '' title <"$folder/cmdline"; IFS= read -r stat <"$folder/stat"; } 2>/dev/null || continue
  case $title in "${VLLM_PROCESS_NAME_PREFIX:-VLLM}::Worker"*) ;; *) continue ;; esac
  case ${stat##*) } in [ZXxTt]*) ;; *) alive=$((alive + 1)) ;; esac
done
"""
"""Count the live workers of this container. `stat` is `pid (name) state …`, and the name may hold anything."""

HEAD_ANSWERS = """timeout 3 bash -c ': 2>/dev/null >"/dev/tcp/$0/$1"' "$LWS_LEADER_ADDRESS" "$2\""""

RANK_WORKS = f"""\
{WORKERS}\
if [ "$alive" -lt "$1" ]; then echo "$alive of $1 worker processes are alive"; exit 1; fi
if [ "$2" != 0 ] && ! {HEAD_ANSWERS}; then echo "the head does not answer at $LWS_LEADER_ADDRESS:$2"; exit 1; fi
"""
"""`$1`: worker processes, `$2`: the head's rendezvous port, 0 where there is none."""

WAIT_FOR_HEAD = f"""\
{WORKERS}\
[ "$alive" -ge "$1" ] || exit 0
end=$((SECONDS + $3))
while [ "$2" != 0 ] && [ "$SECONDS" -lt "$end" ] && {HEAD_ANSWERS}; do sleep 1; done
exit 0
"""
"""Keep a rank that works until its head has drained: it would end on SIGTERM at once, and all requests in flight with it.
`$3`: seconds at most."""


def grace_seconds(role: RolePlan) -> int:
    """`terminationGracePeriodSeconds`: the preStop hook counts too."""
    return LEAVE_SECONDS + role.shutdown_seconds + SHUTDOWN_MARGIN


def head(role: RolePlan, *, has_api_key: bool) -> dict[str, Any]:
    """The server listens only once the model is loaded, so the startup probe has the whole budget; afterwards liveness is
    patient, because `/health` needs the API loop, which stalls under load.
    """
    health = {"httpGet": {"path": "/health", "port": "http"}}
    # The served model is listed as soon as requests for it are taken; with an API key only /health stays open.
    served = health if has_api_key else {"httpGet": {"path": "/v1/models", "port": "http"}}
    return {
        "startupProbe": {**health, **timing(5, startup_failures(role))},
        "readinessProbe": {**served, **timing(5, 3)},
        "livenessProbe": {**health, **timing(10, 6)},
        "lifecycle": {"preStop": {"sleep": {"seconds": LEAVE_SECONDS}}},
    }


def headless(plan: Plan, role: RolePlan) -> dict[str, Any]:
    """No readiness probe: nothing is sent to a rank above 0, and the head is not ready before all ranks are."""
    works = {"exec": {"command": script(RANK_WORKS, plan, role)}}
    wait = script(WAIT_FOR_HEAD, plan, role, str(LEAVE_SECONDS + role.shutdown_seconds))
    return {
        "startupProbe": {**works, **timing(5, startup_failures(role))},
        "livenessProbe": {**works, **timing(10, 6)},
        "lifecycle": {"preStop": {"exec": {"command": wait}}},
    }


def script(text: str, plan: Plan, role: RolePlan, *more: str) -> list[str | PortRef]:
    port = PortRef("torch_master") if has_rendezvous(plan, role) else "0"
    return ["bash", "-c", text, "rank", str(role.resolved.devices_per_pod), port, *more]


def has_rendezvous(plan: Plan, role: RolePlan) -> bool:
    """Whether all ranks are of one group: not so for replicas of a dense model that lie inside a node each (vLLM 0.30,
    ParallelConfig.reconfigure_for_independent_dp_rank).
    """
    model, resolved = plan.resolved.model, role.resolved
    inside = resolved.data > 1 and resolved.role.parallelism.replica <= resolved.devices_per_pod
    return not (inside and model is not None and not model.moe)


def startup_failures(role: RolePlan) -> int:
    return -(-role.startup_seconds // PROBE_PERIOD)


def timing(timeout_seconds: int, failures: int) -> dict[str, Any]:
    return {"periodSeconds": PROBE_PERIOD, "timeoutSeconds": timeout_seconds, "failureThreshold": failures}
