#!/usr/bin/env python3
"""Runs a Python command on the objects that `make sanitize-python` builds, and shows what was found.

    tools/sanitized.py pytest -n 2 tests/python            # python -m pytest ...
    tools/sanitized.py --threads program.py                # on those of `make sanitize-threads`

The command's status is 1 if a sanitizer wrote a report in any process, tests' children included.
Only our own sources are instrumented: LLVM's archives and CPython are as their packages ship them.
"""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys

from package_links import link_package

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The compiler's containment owns these signals, on stacks of its own: a crash in there is an
# exception, one outside a signal. A report ends the process (exitcode), but not by SIGABRT.
CONTAINED = {
    "handle_segv": 0, "handle_sigbus": 0, "handle_abort": 0, "handle_sigill": 0, "handle_sigfpe": 0,
    "use_sigaltstack": 0, "abort_on_error": 0, "exitcode": 99,
    # Requests that no machine can meet are answered by null, as by malloc: tests want the MemoryError.
    "allocator_may_return_null": 1,
}  # fmt: skip
ASAN = CONTAINED | {
    # CPython keeps what it interned until the process ends, and threads of the compile queue live on.
    "detect_leaks": 0,
    # Vectors cross into LLVM's archives, which do not tell where a container's end is.
    "detect_container_overflow": 0,
    # Both objects have their own hidden copy of the rooms that both need.
    "detect_odr_violation": 0,
    # Freed blocks wait this long (MiB) before they are handed out again.
    "quarantine_size_mb": 64,
}
UBSAN = {"print_stacktrace": 1, "halt_on_error": 0}
TSAN = CONTAINED | {
    # A child of several threads is let live (it fails where it starts threads; see DESELECTED).
    "die_after_fork": 0,
    # CPython's handlers of signals write to a pipe and keep errno themselves.
    "report_signal_unsafe": 0,
    "halt_on_error": 0,
    "second_deadlock_stack": 1,
    "suppressions": ROOT / "tools" / "tsan_suppressions.txt",
}


# Beside the address sanitizer, gcc's other runtime reads no log_path: every process says it at start.
STARTUP = """\
import ctypes
ctypes.CDLL({library!r}).__sanitizer_set_report_path({path!r})
"""


@dataclasses.dataclass(frozen=True)
class Kind:
    build: pathlib.Path
    libraries: tuple  # loaded before Python, which is not linked with them
    options: dict  # by environment variable
    findings: tuple  # a report file may hold mere warnings, of a request that was too large
    # What a sanitizer's own cost or its signals change, with the reason; for pytest's --deselect.
    deselected: dict


MEMORY = Kind(
    build=ROOT / "build-sanitize",
    libraries=("libasan.so", "libubsan.so", "libstdc++.so"),
    options={"ASAN_OPTIONS": ASAN, "UBSAN_OPTIONS": UBSAN},
    findings=("ERROR: AddressSanitizer", "runtime error:"),
    deselected={
        "tests/python/test_compiler_failures.py": "faults put into the compiler, memory limits",
    },
)
THREADS = Kind(
    build=ROOT / "build-sanitize-threads",
    libraries=("libtsan.so", "libstdc++.so"),
    options={"TSAN_OPTIONS": TSAN},
    findings=("WARNING: ThreadSanitizer", "FATAL: ThreadSanitizer"),
    deselected={
        # "dup thread with used id": its books in a child still have the parent's threads.
        "tests/python/test_threads.py::test_a_child_forked_during_the_first_compilation_of_all": "a"
        " child of several threads that starts threads",
    },
)


def library(name):
    found = subprocess.run(
        ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return os.path.realpath(found.stdout.strip())


def environment(kind, found):
    path = [str(kind.build), *filter(None, [os.environ.get("PYTHONPATH")])]
    out = dict(
        os.environ,
        PYTHONPATH=os.pathsep.join(path),
        LD_PRELOAD=":".join(map(library, kind.libraries)),
        PYTHONMALLOC="malloc",  # else one freed object lies in an arena that stays valid
    )
    for variable, table in kind.options.items():
        table = table | {"log_path": found / variable.split("_")[0].lower()}
        out[variable] = ":".join(f"{k}={v}" for k, v in table.items())
    return out


def main():
    command = sys.argv[1:]
    kind = THREADS if command[0] == "--threads" else MEMORY
    command = command[command[0] == "--threads" :]
    found = kind.build / "found"
    link_package(kind.build)
    shutil.rmtree(found, ignore_errors=True)
    found.mkdir()
    startup = STARTUP.format(library=library("libubsan.so"), path=os.fsencode(found / "ubsan"))
    (kind.build / "sitecustomize.py").write_text(startup if kind is MEMORY else "")
    if command[0] == "pytest":
        deselected = [f"--deselect={test}" for test in kind.deselected]
        command = ["-m", "pytest", *deselected, *command[1:]]
    environ = environment(kind, found)
    status = subprocess.run([sys.executable, *command], env=environ).returncode
    reports = {f.name: f.read_text(errors="replace") for f in sorted(found.iterdir())}
    reports = {n: text for n, text in reports.items() if any(f in text for f in kind.findings)}
    for name, text in reports.items():
        print(f"--- {name}\n{text[:6000]}")
    print(f"sanitized: {len(reports)} processes with reports")
    return 1 if reports else status


if __name__ == "__main__":
    sys.exit(main())
