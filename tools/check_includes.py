#!/usr/bin/env python3
"""Checks that the rooms of src/ lean on each other as the table below says.

A file includes headers of its own room, and of the rooms in its row those that they show; the row is
all there is: what a room's rooms may use, it may not. Folders of a room have such rows of their own.
Each room defines what it declares: its files open its namespace alone (others' for forward
declarations of types). LLVM's and CPython's headers are allowed in the named rooms only. Prints `file:line: reason`, exits 1 if any.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple


class Room(NamedTuple):
    uses: str  # rooms, directly
    shows: str  # headers that others may include


ROOMS = {
    "support": Room(
        "",
        "abi arena bytes clock doing error format_table half io no_derivative own_thread program stack",
    ),
    "type": Room("support", "type"),
    "ir": Room(
        "support type",
        "edit elementwise fold interpreter ir locks ops.inc options partials random target",
    ),
    "layout": Room("support type ir", "tree"),
    "pass": Room("support ir", "listing names pass"),
    "autodiff": Room("support ir pass", "autodiff"),
    "codegen": Room("support ir pass", "llvm/codegen"),
    "cache": Room("support", "kernel_folder part_folder store"),
    "runtime": Room(
        "support type cache",
        "compile_queue compiler cpu/float_mode cpu/kernel cpu/pool cpu/print cpu/tape crash cuda/assembler cuda/code cuda/driver device first_code"
        " fork progress stage tape_limit trace_file",
    ),
    "linalg": Room("", ""),
    "cpython": Room("support", "cpython entry names numpy_scalar"),
    "session": Room("support ir cache runtime cpython", "session stored_code target"),
    "data": Room("support type ir layout runtime cpython session", "external objects storage"),
    "frontend": Room(
        "support ir cpython data",
        "diag frontend specialise facts/annotations facts/contents facts/facts facts/places source/ast source/stack values/structs values/values",
    ),
    "launcher": Room(
        "support ir pass autodiff cache runtime cpython session data frontend",
        "compile_report kept_trees kernel profile",
    ),
    "python": Room("support ir pass cache runtime cpython session data frontend launcher", ""),
    "compiler": Room("support ir pass autodiff codegen", ""),
}
# Folders of a room and those that they use. What lies beside the folders is everybody's; its sources
# use all.
FOLDERS = {
    "frontend": {
        "source": "",
        "values": "source",
        "facts": "source values",
        "calls": "source values facts body",  # a call lowers a body,
        "body": "source values facts calls",  # in which there are calls
    }
}
# Of a room, where it is not its name alone; the compiler completes opaque types of the C ABI.
NAMESPACES = {"support": {"support", "abi"}, "compiler": {"compiler", "abi"}}
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
OPENS = re.compile(r"^(?:inline )?namespace qd::(\w+)")
DEFINES = re.compile(r"^[^\s/#}].*?\bqd::(\w+)::\w+(?:::\w+)*\s*(?:=|\(|\{)")
FORWARD = re.compile(r"^(?:class|struct) \w+;.*$|^$")


def folder_of(path: Path) -> str:
    """Of a file below src/: the folder of its room, "" if it lies beside those."""
    return path.parts[1] if len(path.parts) > 2 else ""


def reason_against(path: Path, target: str, quoted: bool, source_root: Path) -> str | None:
    """Why the file `path` (below src/) may not include `target`, or None."""
    room = path.parts[0]
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
    other, _, header = target.partition("/")
    if other == room:
        here, there = folder_of(path), folder_of(Path(target))
        allowed = FOLDERS.get(room, {}).get(here)
        if allowed is None or there in ("", here, *allowed.split()):
            return None
        return f"{room}/{here} may not include {room}/{there}"
    if other in ROOMS:
        if other not in ROOMS[room].uses.split():
            return f"room {room} may not include room {other}"
        if header.removesuffix(".h") not in ROOMS[other].shows.split():
            return f"{target} is private to room {other}"
        return None
    if (source_root / room / target).exists():
        return f'write "{room}/{target}": include paths are relative to src/'
    return None


def reason_against_definition(room: str, lines: list[str], number: int) -> str | None:
    """Why this line may not define something, or open a namespace, in `room`."""
    own = NAMESPACES.get(room, {room})
    line = lines[number]
    if opened := OPENS.match(line):
        if opened[1] in own:
            return None
        for inside in lines[number + 1 :]:
            if inside.startswith("}"):
                return None
            if not FORWARD.match(inside):
                return f"room {room} may declare types of qd::{opened[1]}, no more"
    if (defined := DEFINES.match(line)) and not line.endswith(",") and defined[1] not in own:
        return f"room {room} may not define what is of qd::{defined[1]}"
    return None


def main() -> int:
    source_root = Path(__file__).resolve().parent.parent / "src"
    failures = []
    for path in sorted(source_root.rglob("*")):
        if path.suffix not in {".h", ".cpp", ".inc", ".def"}:
            continue
        where = path.relative_to(source_root.parent)
        below = path.relative_to(source_root)
        room = below.parts[0]
        if room not in ROOMS:
            failures.append(f"{where}:1: {room} is no room of the design")
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            reason = reason_against_definition(room, lines, number)
            if match := INCLUDE.match(line):
                reason = reason_against(below, match[2], match[1] == '"', source_root)
            if reason:
                failures.append(f"{where}:{number + 1}: {reason}")
    print("\n".join(failures) or "include rules: fine", file=sys.stderr if failures else sys.stdout)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
