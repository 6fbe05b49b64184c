"""The line printed when the package is imported."""

import os
import sys

from quadrants._version import COMMIT, LLVM_VERSION, VERSION

_SYSTEMS = {"linux": "linux", "darwin": "osx", "win32": "win"}


def print_banner() -> None:
    """Prints version, compiler, commit, system and Python."""
    if os.environ.get("ENABLE_QUADRANTS_HEADER_PRINT", "").lower() in ("false", "0", "f"):
        return
    version = ".".join(map(str, VERSION))
    system = _SYSTEMS.get(sys.platform, "unix")
    python = ".".join(map(str, sys.version_info[:3]))
    print(
        f"[Quadrants] version {version}, llvm {LLVM_VERSION}, commit {COMMIT[:8]}, {system}, python {python}"
    )


print_banner()
