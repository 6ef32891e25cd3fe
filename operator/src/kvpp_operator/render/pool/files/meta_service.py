# ruff: noqa: INP001 - a program in a container
"""Start memcache's MetaService in a pod: `meta_service.py FILE`, with META_POD_IP in the environment.

It binds the pod's own address only, so that goes into its file here. It refuses symbolic links, which every file of a
ConfigMap or Secret volume is: it gets a file, and real paths of keys and certificates. And it ends with 0 when its file
is wrong or it can't start: here that becomes an exit code.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from openssl import provide  # type: ignore[import-not-found]

TARGET = Path("/tmp/mmc-meta.conf")  # noqa: S108 - a volume of the pod's own
OPENSSL = Path("/tmp/openssl")  # noqa: S108 - the same


def filled(text: str, address: str) -> str:
    """Fill in the pod's address and real paths."""
    lines = text.replace("$(META_POD_IP)", f"[{address}]" if ":" in address else address).splitlines()
    return "\n".join(map(with_real_path, lines)) + "\n"


def with_real_path(line: str) -> str:
    key, equals, value = line.partition(" = ")
    linked = equals and key.endswith(".path") and Path(value).is_symlink()
    return f"{key} = {Path(value).resolve()}" if linked else line


def main() -> int:
    text = filled(Path(sys.argv[1]).read_text(), os.environ["META_POD_IP"])
    if str(OPENSSL) in text:
        provide(OPENSSL)
    TARGET.write_text(text)
    os.environ["MMC_META_CONFIG_PATH"] = str(TARGET)  # read when the library is loaded
    from memcache_hybrid import MetaService  # type: ignore[import-not-found]  # noqa: PLC0415

    return 1 if MetaService.main() else 0


if __name__ == "__main__":
    sys.exit(main())
