"""The line printed when the package is imported."""

import os
import sys

from quadrants._version import COMMIT, LLVM_VERSION, VERSION

_SYSTEMS = {"linux": "linux", "darwin": "osx", "win32": "win"}


def _newer_version() -> str:
    """The version that the second line of `timestamp` in the caches' root names, if it is newer."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    try:
        with open(os.path.join(home, "quadrants", "timestamp"), encoding="utf-8") as f:
            version = f.read().splitlines()[1].strip()
        return version if tuple(map(int, version.split("."))) > VERSION else ""
    except (OSError, ValueError, IndexError):  # none, or not ours
        return ""


def say(line: str) -> None:
    """Prints a line if somebody can read it: daemons close their output, readers leave."""
    try:
        print(line, flush=True)
    except (OSError, ValueError):
        pass


def print_banner() -> None:
    """Prints version, a newer one if it is known, compiler, commit, system and Python."""
    if os.environ.get("ENABLE_QUADRANTS_HEADER_PRINT", "").lower() in ("false", "0", "f"):
        return
    version = ".".join(map(str, VERSION))
    newer = _newer_version()
    latest = f"latest version {newer}, " if newer else ""
    system = _SYSTEMS.get(sys.platform, "unix")
    python = ".".join(map(str, sys.version_info[:3]))
    say(
        f"[Quadrants] version {version}, {latest}llvm {LLVM_VERSION}, commit {COMMIT[:8]}, {system}, python {python}"
    )


print_banner()
