"""`doctor`: tries what programs need and says what to do about what fails."""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from quadrants._command import cache
from quadrants.lang._config import checked, from_environment, table

# A problem is what was found and what to do; what is fine has no advice.
Finding = tuple[str, str]

_PROGRAM = """
import numpy as np, quadrants as qd
from quadrants._lib import core
qd.init(arch=qd.cpu, log_level=qd.ERROR)
@qd.kernel
def twice(x: qd.types.ndarray()):
    for i in x: x[i] = 2 * i
x = np.zeros(100_000, np.int32)
twice(x)
assert (x == 2 * np.arange(100_000)).all()
core.finish_optimisations()
twice(x)
assert (x == 2 * np.arange(100_000)).all()
print("lowered", core.counters()["lowered"])
"""
# Variables beside the options.
_KNOWN = frozenset(
    "QD_ARCH QD_CI QD_COVERAGE_MAX_PROBES QD_CPU_TARGET QD_CPU_TIER QD_DEBUG_ADSTACK QD_DUMP_AST "
    "QD_DUMP_CFG QD_DUMP_IR QD_DUMP_MSL QD_DUMP_SIMPLIFY QD_ENABLE_AMDGPU QD_ENABLE_CUDA "
    "QD_ENABLE_HIP_MEMPOOL QD_ENABLE_METAL QD_ENABLE_PYBUF QD_ENABLE_TORCH QD_ENABLE_VULKAN "
    "QD_FILE_TIMING QD_GRAPH QD_GUARDED_MEMORY QD_IN_DOCKER QD_KEEP_ALL_TREES QD_KERNEL_COVERAGE "
    "QD_LIB_DIR QD_LOAD_IR QD_MANYLINUX2014_OK QD_PERFDISPATCH_FORCE QD_PERFDISPATCH_PRINT_DEBUG "
    "QD_PERF_MAP QD_PTXAS QD_SHOW_COMPILING QD_TEST_FAULT QD_TEST_THREADS QD_TMP_DIR "
    "QD_VISIBLE_DEVICE QD_WANTED_ARCHS".split()
)


def _variables() -> Iterator[Finding]:
    rows = {f"QD_{name.upper()}": row for name, row in table().items()}
    for name in sorted(os.environ):
        if not name.startswith("QD_") or name in _KNOWN or not os.environ[name]:
            continue
        row = rows.get(name)
        if row is None:
            yield f"{name} is no variable that Quadrants reads", "check its spelling, or unset it"
            continue
        if name == "QD_DEFAULT_UP":
            yield f"{name} is set: qd.init raises TypeError", "set QD_DEFAULT_IP instead"
        elif name in ("QD_DEFAULT_FP", "QD_DEFAULT_IP"):
            if os.environ[name] not in ("32", "64"):
                yield f"{name}={os.environ[name]}: qd.init raises ValueError", "use 32 or 64"
        else:
            try:
                checked(row, from_environment(row, os.environ))
            except (TypeError, ValueError) as e:
                yield f"{name}={os.environ[name]}: qd.init raises: {e}", "correct or unset it"


def _folder() -> Iterator[Finding]:
    folder = cache.folder_of(argparse.Namespace(path=None))
    native, kept = (os.path.join(folder, name) for name in ("native", "kernel_compilation_manager"))
    for path in (folder, native, kept):
        if not os.path.isdir(path):
            continue
        info = os.stat(path)
        mine = (os.geteuid(), 0) if path == folder else (os.geteuid(),)
        if info.st_uid not in mine:
            yield (
                f"{path} belongs to another user, so its kernels are ignored",
                "set QD_OFFLINE_CACHE_FILE_PATH to a folder of yours",
            )
        # In a folder like /tmp nobody can replace what is another's.
        writers = info.st_mode & (0o002 if path == folder else 0o022)
        if writers and not (path == folder and info.st_mode & stat.S_ISVTX):
            yield f"{path} is writable by others, so it is ignored", f"chmod go-w {path}"
    lock = os.path.join(kept, "qdcache.lock")
    # Ours are not empty, and are taken over if their process was killed.
    found = os.stat(lock) if os.path.exists(lock) else None
    if found and not found.st_size and found.st_mtime < time.time() - 60:
        yield f"{lock} was left by something else: others wait for it when they end", "delete it"
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as e:
        yield (
            f"{folder} cannot be written ({e.strerror}): every process compiles anew",
            "make it writable, or set QD_OFFLINE_CACHE_FILE_PATH",
        )
        return
    if shutil.disk_usage(folder).free < 100 << 20:
        yield (
            f"the disk of {folder} is full",
            "free some space; kernels are compiled anew meanwhile",
        )
    damaged = [e for e in cache.entries_of(folder) if not e[4]]
    if damaged:
        yield (
            f"{len(damaged)} entries of {folder} are damaged or of another version",
            "python -m quadrants cache verify --remove; if it happens again, check the disk",
        )


def _run(program: str, folder: str) -> tuple[str, str]:
    """Standard output of a program with a cache of its own, and what went wrong."""
    env = {**os.environ, "QD_OFFLINE_CACHE_FILE_PATH": folder, "QD_OFFLINE_CACHE": "1"}
    for name in ("QD_ARCH", "QD_LOAD_IR", "QUADRANTS_LOAD_PTX"):
        env.pop(name, None)
    path = os.path.join(folder, "program.py")
    with open(path, "w", encoding="utf-8") as f:
        f.write(program)
    try:
        done = subprocess.run(
            [sys.executable, path], env=env, capture_output=True, text=True, timeout=60
        )
    except subprocess.TimeoutExpired:
        return "", "it did not end within a minute"
    lines = done.stderr.strip().splitlines() or [""]
    return done.stdout, "" if done.returncode == 0 else f"exit {done.returncode}: {lines[-1]}"


def _program() -> Iterator[Finding]:
    with tempfile.TemporaryDirectory(prefix="quadrants-doctor") as folder:
        _, problem = _run(_PROGRAM, folder)
        if problem:
            yield (
                f"a small kernel fails: {problem}",
                "run it with python -X faulthandler and report what it prints with the output of "
                "`python -m quadrants info`",
            )
            return
        out, problem = _run(_PROGRAM, folder)
        if problem or "lowered 0" not in out:
            yield (
                f"a second process does not find the first one's kernel {problem}".rstrip(),
                "the folder for temporary files may not keep owners or modes; try another TMPDIR",
            )


def _numpy() -> Iterator[Finding]:
    try:
        import numpy  # noqa: F401
    except Exception as e:
        yield f"NumPy cannot be imported: {e}", "pip install --force-reinstall numpy"


CHECKS = (
    ("NumPy", _numpy),
    ("environment variables", _variables),
    ("cache folder", _folder),
    ("a kernel, cold and warm", _program),
)


def run() -> int:
    """Exit status 1 if something was found."""
    status = 0
    for name, check in CHECKS:
        findings = list(check())
        print(f"{name}: {'ok' if not findings else ''}".rstrip())
        for what, advice in findings:
            status = 1
            print(f"  problem: {what}\n  advice:  {advice}")
    return status
