# ruff: noqa: INP001, T201 - a program in a container, whose output the kubelet shows
"""Ask a MetaService how it is: `health.py PORT live|ready|elected`, with META_POD_IP in the environment.

Not an httpGet probe: to a client that will close the connection, and the kubelet is one, the service sends the headers
of its answer and never the body, so every such probe runs into its timeout (memcache-hybrid 1.3.0, asked with the
kubelet's own prober).
"""

from __future__ import annotations

import http.client
import json
import os
import sys

SECONDS = 4


def ask(host: str, port: int) -> dict[str, object]:
    """Its answer; OSError or HTTPException when there is none."""
    connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
    connection.request("GET", "/health")
    answer = connection.getresponse()
    body = answer.read().decode()
    if answer.status != http.HTTPStatus.OK:
        raise http.client.HTTPException(f"{answer.status} {body}")
    found: dict[str, object] = json.loads(body)
    return found


def verdict(found: dict[str, object], question: str) -> bool:
    """Tell whether the answer will do.

    `elected`: the election has given it its part, so its pod's label says which; before, a leader of the past would get
    requests.
    """
    if question == "live":
        return True
    has_part = question == "ready" or found.get("ha_state") in ("serving", "standby")
    return has_part and found.get("service_ready") is True


def main() -> int:
    try:
        found = ask(os.environ["META_POD_IP"], int(sys.argv[1]))
    except (OSError, http.client.HTTPException, ValueError) as error:
        print(f"no answer: {error}")
        return 1
    print(json.dumps(found))
    return 0 if verdict(found, sys.argv[2]) else 1


if __name__ == "__main__":
    sys.exit(main())
