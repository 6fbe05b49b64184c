#!/usr/bin/env python3
"""Says which tests the change at hand touches, for `make quick`.

    tools/quick.py python [PATH...]     files of tests/python
    tools/quick.py cpp [PATH...]        C++ test programs, a command a line

PATH: what was changed; by default what differs from main, uncommitted work included, or where nothing
does the last commit. Of the rows below the longest that a path begins with counts; a changed test
file stands for itself. All else is for `make test`.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Row(NamedTuple):
    python: str  # NAMEs of tests/python/test_NAME.py; "quick": all but the SLOW ones
    cpp: str = ""  # of CPP


SMOKE = "face_names kernels small_programs"
# More than two seconds of one core; what is in no row here is for `make test`.
SLOW = (
    "arithmetic cache_files code_parts command compile_report compile_threads compiler_failures crossing "
    "debug_mode differential ends every_target face_library frontend_warm guards interrupts kept_trees "
    "kernel_coverage misuse ndarray_host op_table progress_line robustness same_bits same_order source_slices "
    "stack_use stale targets_bits threads trace_file turns warm_observations warm_start"
)
TABLE = {
    "CMakeLists.txt": Row("quick"),
    "README.md": Row("docs"),
    "benchmarks": Row("benchmark_programs"),
    "cmake": Row("quick"),
    "docs": Row("docs options"),
    "examples": Row("every_target"),
    "pyproject.toml": Row("docs"),
    "python/quadrants": Row("quick"),
    "python/quadrants/_command": Row("command"),
    "python/quadrants/_library": Row("quick face_library"),
    "python/quadrants/lang/_data": Row("quick ndarray_host"),
    "python/quadrants/lang/_kernel_coverage.py": Row("kernel_coverage"),
    "python/quadrants/lang/_ndarray.py": Row("quick ndarray_host"),
    "python/quadrants/math": Row("quick face_library"),
    "src/autodiff": Row("gradients tape custom_gradients", "rooms"),
    "src/cache": Row("quick cache_files", "rooms"),
    "src/codegen": Row("quick arithmetic op_table", "codegen"),
    "src/compiler": Row("quick compiler_failures", "codegen"),
    "src/cpython": Row("quick guards"),
    "src/data": Row("quick ndarray_host ends"),
    "src/frontend": Row("quick guards"),
    "src/frontend/facts": Row("quick guards warm_observations frontend_warm"),
    "src/frontend/source": Row("quick source_slices kept_trees"),
    "src/ir": Row("quick arithmetic op_table", "rooms codegen"),
    "src/launcher": Row("quick warm_observations warm_start compile_report"),
    "src/layout": Row("quick", "rooms"),
    "src/linalg": Row("linalg", ""),
    "src/pass": Row("quick arithmetic", "rooms codegen"),
    "src/python": Row("quick ends"),
    "src/runtime": Row("quick threads", "rooms protocols"),
    "src/session": Row("quick ends turns", "protocols"),
    "src/support": Row("quick", "rooms codegen"),
    "src/type": Row("quick arithmetic", "rooms"),
    "tests/cpp": Row("", "rooms protocols"),
    "tests/cpp/codegen": Row("", "codegen"),
    "tests/cpp/ir": Row("", "rooms"),
    "tests/differential": Row("differential"),
    "tests/python": Row(""),
    "tools": Row("quick_tests options docs"),
}

# Protocols between threads run under every interleaving: much time for little code.
EXPLORED = "tickets.*:fork.*:turn.*:pool.*:queue.*:door.*:explorer.*"
CPP = {
    "rooms": [f"qd_tests --gtest_filter=-{EXPLORED}"],
    "protocols": [f"qd_tests --gtest_filter={EXPLORED}"] * 2,  # a process each, with its half
    "codegen": ["qd_codegen_tests"] * 2,
}


def row_of(path: str) -> Row:
    """What tests a path: the row of the longest part of it that has one."""
    parts = path.split("/")
    for count in range(len(parts), 0, -1):
        if row := TABLE.get("/".join(parts[:count])):
            return row
    return Row("")


def python_tests(paths: list[str]) -> list[str]:
    """Files of tests/python, below the root."""
    folder = ROOT / "tests" / "python"
    every = [file.stem.removeprefix("test_") for file in sorted(folder.glob("test_*.py"))]
    words = {word for path in paths for word in row_of(path).python.split()} | {*SMOKE.split()}
    words |= {Path(path).stem.removeprefix("test_") for path in paths if "tests/python/" in path}
    if "quick" in words:
        words |= {*every} - {*SLOW.split()}
    return [f"tests/python/test_{name}.py" for name in every if name in words]


def cpp_tests(paths: list[str]) -> list[str]:
    """Commands, to be run in the build folder."""
    words = {word for path in paths for word in row_of(path).cpp.split()}
    lines = []
    for word in sorted(words):
        shards = CPP[word]
        for number, command in enumerate(shards):
            lines.append(
                f"GTEST_TOTAL_SHARDS={len(shards)} GTEST_SHARD_INDEX={number} "
                f"./{command} --gtest_brief=1"
            )
    return lines


def changed() -> list[str]:
    """Paths that differ from main, or those of the last commit."""

    def lines(*command: str) -> list[str]:
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.split("\n")[:-1]

    new = lines("ls-files", "--others", "--exclude-standard")
    base = lines("merge-base", "HEAD", os.environ.get("QUICK_BASE", "main"))
    paths = new + lines("diff", "--name-only", *(base or ["HEAD"]))
    return paths or lines("diff", "--name-only", "HEAD~1")


if __name__ == "__main__":
    what = {"python": python_tests, "cpp": cpp_tests}[sys.argv[1]]
    print("\n".join(what(sys.argv[2:] or changed())))
