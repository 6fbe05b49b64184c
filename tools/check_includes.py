#!/usr/bin/env python3
"""Checks that each room of src/ includes only what the design lets it include.

A room may include itself, the rooms of its row, and whatever those may include. LLVM's and
CPython's headers are allowed in the named rooms only. Prints `file:line: reason`, exits 1 if any.
"""

import re
import sys
from pathlib import Path

ROOMS = {
    "support": [],
    "type": ["support"],
    "ir": ["type"],
    "layout": ["type", "ir"],
    "frontend": ["ir", "layout", "cpython", "data"],
    "pass": ["ir"],
    "autodiff": ["ir", "pass"],
    "codegen": ["ir", "layout", "pass"],
    "cache": ["support"],
    "runtime": ["type", "support", "cache"],
    "cpython": ["support", "frontend"],
    "session": ["ir", "cache", "runtime", "cpython", "launcher"],
    "data": ["layout", "runtime", "cpython", "session", "frontend", "python"],
    "launcher": ["frontend", "pass", "cache", "runtime", "data", "session", "python"],
    "python": ["launcher"],
    "compiler": ["pass", "autodiff", "codegen"],
}
FOREIGN = [
    (re.compile(r"^(llvm|llvm-c|lld)/"), {"codegen", "compiler"}, "LLVM"),
    (
        re.compile(r"^(Python\.h|structmember\.h|frameobject\.h)"),
        {"cpython", "session", "data", "frontend", "launcher", "python"},
        "CPython",
    ),
    (re.compile(r"^(spirv|vulkan)"), {"codegen", "runtime"}, "SPIR-V or Vulkan"),
]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def closure(room: str) -> set[str]:
    """The room, its row, and the rows of that."""
    seen: set[str] = set()
    todo = [room]
    while todo:
        current = todo.pop()
        if current not in seen:
            seen.add(current)
            todo += ROOMS[current]
    return seen


def reason_against(room: str, target: str, quoted: bool, source_root: Path) -> str | None:
    """Why `room` may not include `target`, or None."""
    for pattern, allowed, what in FOREIGN:
        if pattern.match(target):
            return (
                None
                if room in allowed
                else f"{what} headers belong in {', '.join(sorted(allowed))}"
            )
    if not quoted:
        return None
    if target.startswith("."):
        return "include paths are relative to src/"
    other = target.split("/")[0]
    if other in ROOMS:
        return None if other in closure(room) else f"room {room} may not include room {other}"
    if (source_root / room / target).exists():
        return f'write "{room}/{target}": include paths are relative to src/'
    return None


def main() -> int:
    source_root = Path(__file__).resolve().parent.parent / "src"
    failures = []
    for path in sorted(source_root.rglob("*")):
        if path.suffix not in {".h", ".cpp", ".inc", ".def"}:
            continue
        where = path.relative_to(source_root.parent)
        room = path.relative_to(source_root).parts[0]
        if room not in ROOMS:
            failures.append(f"{where}:1: {room} is no room of the design")
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                reason = reason_against(room, match[2], match[1] == '"', source_root)
                if reason:
                    failures.append(f"{where}:{number}: {reason}")
    print("\n".join(failures) or "include rules: fine", file=sys.stderr if failures else sys.stdout)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
