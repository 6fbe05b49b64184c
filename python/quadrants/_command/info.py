"""`info`: what this installation is and what it can do here."""

from __future__ import annotations

import argparse
import ctypes.util
import importlib.util
import os
import platform
import sys

from quadrants._command import cache
from quadrants._lib import core
from quadrants._lib.core import Arch
from quadrants._version import COMMIT, LLVM_VERSION
from quadrants.lang.misc import is_arch_supported

_LIBRARIES = {Arch.amdgpu: "amdhip64", Arch.vulkan: "vulkan"}


def why_not(arch: Arch) -> str:
    """Why kernels cannot run on an architecture here."""
    variable = f"QD_ENABLE_{arch.name.upper()}"
    if os.environ.get(variable) == "0":
        return f"{variable}=0"
    if arch in (Arch.x64, Arch.arm64):
        return f"this machine is {platform.machine()}"
    if arch is Arch.python:
        off = os.environ.get("QD_ENABLE_TORCH") == "0"
        return "QD_ENABLE_TORCH=0" if off else "needs torch (pip install torch)"
    if arch is Arch.metal:
        return (
            "this build has no Metal code generation" if sys.platform == "darwin" else "needs macOS"
        )
    if arch is Arch.cuda:
        return core.device_problem("cuda")
    if ctypes.util.find_library(_LIBRARIES[arch]) is None:
        return f"this build has no {arch.name} code generation, and no driver library is found"
    return f"this build has no {arch.name} code generation (a driver library is there)"


def processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            for line in f:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def run() -> int:
    import quadrants

    folder = cache.folder_of(argparse.Namespace(path=None))
    entries = cache.entries_of(folder)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    torch = "yes" if importlib.util.find_spec("torch") else "no"
    rows = [
        ("quadrants", f"{quadrants.__version_str__}, commit {COMMIT}, LLVM {LLVM_VERSION}"),
        ("installed at", os.path.dirname(quadrants.__file__)),
        ("python", f"{platform.python_version()} at {sys.executable}; torch: {torch}"),
        ("system", platform.platform()),
        ("CPU", f"{processor()}, {usable} threads"),
        ("code for", os.environ.get("QD_CPU_TARGET") or "this CPU"),
        (
            "cache",
            f"{folder}, {len(entries)} entries, {cache.size_text(sum(e[2] for e in entries))}",
        ),
    ]
    rows += [
        (f"arch {arch.name}", "yes" if is_arch_supported(arch) else f"no: {why_not(arch)}")
        for arch in Arch
        if arch not in (Arch.js, Arch.opencl)  # names alone
    ]
    rows += [
        (name, value)
        for name, value in sorted(os.environ.items())
        if name.startswith("QD_") or name in ("XDG_CACHE_HOME", "ENABLE_QUADRANTS_HEADER_PRINT")
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    return 0
