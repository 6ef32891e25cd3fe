"""`python -m kvpp_operator.docs [--check]`: write the generated files, or say which are stale."""

from __future__ import annotations

import sys
from pathlib import Path

from kvpp_operator.docs.pages import PAGES

ROOT = Path(__file__).resolve().parents[4]


def stale() -> dict[str, str]:
    """Generated files whose content differs from what the code says now, with what it says."""
    found = {}
    for path, page in PAGES.items():
        file = ROOT / path
        present = file.read_text("utf-8") if file.is_file() else ""
        if (wanted := page(present)) != present:
            found[path] = wanted
    return found


def main() -> int:
    if "--check" in sys.argv[1:]:
        old = stale()
        for path in old:
            sys.stderr.write(f"{path} is stale: run `make generate`\n")
        return 1 if old else 0
    for path, wanted in stale().items():
        file = ROOT / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(wanted, "utf-8")
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
