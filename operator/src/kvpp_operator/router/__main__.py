"""`python -m kvpp_operator.router`: the agent without the rest of the command line."""

from __future__ import annotations

import os
import sys

from kvpp_operator.router.agent import run_agent
from kvpp_operator.router.settings import settings_from


def main() -> None:
    sys.exit(run_agent(settings_from(sys.argv[1:], os.environ)))


if __name__ == "__main__":
    main()
