"""docs/runbook.md: every reason that a condition can have, what it means and what to do."""

from __future__ import annotations

from kvpp_operator.report.reasons import CONDITIONS, REASONS, Reason

HEAD = """# Runbook

Every condition of a KVPPDeployment, and every reason it can have. `make generate` writes this page from
`report/reasons.py`; do not edit it.

Start with one line per deployment, then look at the condition that is not as it should be:

```sh
kubectl get kvpp -A
kubectl get kvpp NAME -o jsonpath='{range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\\n"}{end}'
kubectl get kvpp NAME -o jsonpath='{range .status.findings[*]}{.rule} {.path}: {.message} Fix: {.fix}{"\\n"}{end}'
kubectl get kvpp NAME -o jsonpath='{range .status.engines[*]}{.role} {.index} ready={.ready} {.reason}{"\\n"}{end}'
```

What an engine waits for or died of stands in its `reason`, in the words of the scheduler, the kubelet or the engine; the end of
the line may name an entry of [known failures](engine-codes.md).

Wait for a deployment in a script with `kubectl wait --for=condition=Ready kvpp/NAME --timeout=60m`.
"""


def runbook() -> str:
    return "\n".join([HEAD, *(section(condition) for condition in CONDITIONS)])


def section(condition: str) -> str:
    reasons = [reason for reason in REASONS if reason.condition == condition]
    table = ["| reason | status | event |", "|---|---|---|", *(row(reason) for reason in reasons)]
    return "\n".join([f"## {condition}", "", *table, "", *(entry(reason) for reason in reasons)])


def row(reason: Reason) -> str:
    return f"| [{reason.name}](#{anchor(reason)}) | {reason.status} | {'Warning' if reason.warning else 'Normal'} |"


def entry(reason: Reason) -> str:
    return f"### {title(reason)}\n\n{reason.meaning}\n\n**What to do.** {reason.remedy}\n"


def title(reason: Reason) -> str:
    """One name may stand under two conditions, so both are needed."""
    return f"{reason.condition}={reason.status}: {reason.name}"


def anchor(reason: Reason) -> str:
    """Link target as GitHub and most renderers make it: letters, digits and hyphens in lower case."""
    kept = "".join(letter for letter in title(reason).lower() if letter.isalnum() or letter in " -")
    return kept.replace(" ", "-")
