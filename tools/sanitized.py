#!/usr/bin/env python3
"""Runs a Python command on the objects that `make sanitize-python` builds, and shows what was found.

    tools/sanitized.py pytest -n 2 tests/python        # python -m pytest ...
    tools/sanitized.py program.py

The command's status is 1 if a sanitizer wrote a report in any process, tests' children included.
Only our own sources are instrumented: LLVM's archives and CPython are as their packages ship them.
"""

import os
import pathlib
import shutil
import subprocess
import sys

from package_links import link_package

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-sanitize"
FOUND = BUILD / "found"

ASAN = {
    # CPython keeps what it interned until the process ends, and threads of the compile queue live on.
    "detect_leaks": 0,
    # Vectors cross into LLVM's archives, which do not tell where a container's end is.
    "detect_container_overflow": 0,
    # Both objects have their own hidden copy of the rooms that both need.
    "detect_odr_violation": 0,
    # The compiler's containment owns these: a crash in there is an exception, one outside a signal.
    "handle_segv": 0, "handle_sigbus": 0, "handle_abort": 0, "handle_sigill": 0, "handle_sigfpe": 0,
    # Containment lends its threads a stack for signals and gives back the one that it found.
    "use_sigaltstack": 0,
    # Requests that no machine can meet are answered by null, as by malloc: tests want the MemoryError.
    "allocator_may_return_null": 1,
    # A report ends the process, so that the test fails; not by SIGABRT, which containment takes.
    "abort_on_error": 0, "exitcode": 99,
    # Freed blocks wait this long (MiB) before they are handed out again.
    "quarantine_size_mb": 64,
}  # fmt: skip
UBSAN = {"print_stacktrace": 1, "halt_on_error": 0}

# A report file may hold mere warnings, of a request that was too large.
FINDINGS = ["ERROR: AddressSanitizer", "runtime error:"]

# Beside the address sanitizer, gcc's other runtime reads no log_path: every process says it at start.
STARTUP = """\
import ctypes
ctypes.CDLL({library!r}).__sanitizer_set_report_path({path!r})
"""

# What a sanitizer's own cost or its signals change, with the reason; passed to pytest as --deselect.
DESELECTED = {
    "tests/python/test_compiler_failures.py": "faults put into the compiler, memory limits",
    "tests/python/test_robustness.py::test_too_deep_for_a_small_stack": "frames are larger here",
}


def library(name):
    return subprocess.run(
        ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()


def options(table):
    return ":".join(f"{k}={v}" for k, v in table.items())


def environment():
    preload = [library(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
    path = [str(BUILD), *filter(None, [os.environ.get("PYTHONPATH")])]
    return dict(
        os.environ,
        PYTHONPATH=os.pathsep.join(path),
        LD_PRELOAD=":".join(map(os.path.realpath, preload)),
        PYTHONMALLOC="malloc",  # else one freed object lies in an arena that stays valid
        ASAN_OPTIONS=options(ASAN | {"log_path": FOUND / "asan"}),
        UBSAN_OPTIONS=options(UBSAN),
    )


def main():
    link_package(BUILD)
    shutil.rmtree(FOUND, ignore_errors=True)
    FOUND.mkdir()
    startup = STARTUP.format(library=library("libubsan.so"), path=os.fsencode(FOUND / "ubsan"))
    (BUILD / "sitecustomize.py").write_text(startup)
    command = sys.argv[1:]
    if command[0] == "pytest":
        deselected = [f"--deselect={test}" for test in DESELECTED]
        command = ["-m", "pytest", *deselected, *command[1:]]
    status = subprocess.run([sys.executable, *command], env=environment()).returncode
    reports = {f.name: f.read_text(errors="replace") for f in sorted(FOUND.iterdir())}
    reports = {name: text for name, text in reports.items() if any(f in text for f in FINDINGS)}
    for name, text in reports.items():
        print(f"--- {name}\n{text[:6000]}")
    print(f"sanitized: {len(reports)} processes with reports")
    return 1 if reports else status


if __name__ == "__main__":
    sys.exit(main())
