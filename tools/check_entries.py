#!/usr/bin/env python3
"""Checks that CPython calls no function of ours but through `entry<f>` (cpython/entry.h).

A C++ exception that leaves a function that CPython called ends the process. So the functions in tables of
methods and attributes, in slots of types and in requests for a call back are all named as entries; CPython's own
need none. And nothing else binds functions: a table that this tool does not know has to be told here. Prints
`file:line: reason`, exits 1 if any.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

TABLE = re.compile(
    r"\bPy(MethodDef|GetSetDef|TypeObject|NumberMethods|SequenceMethods|MappingMethods|BufferProcs|AsyncMethods"
    r"|ModuleDef_Slot|Type_Slot)\s+[\w:]+\s*(?:\[\])?\s*=?\s*\{"
)
ENTRY = r"(?:(?:qd::)?cpython::)?entry<.+>"
FITS = re.compile(rf"nullptr|0|Py\w+|{ENTRY}(?:\.untyped\(\))?")
DATA = {
    f"tp_{name}"
    for name in (
        "name basicsize itemsize flags doc methods members getset weaklistoffset dictoffset vectorcall_offset base"
        " as_number as_sequence as_mapping as_buffer as_async"
    ).split()
} | {"ob_base"}
# Where a function is handed over: which argument it is; or what it is assigned to.
CALLS = {
    "PyCapsule_New": 2,
    "Py_AddPendingCall": 0,
    "PyCFunction_NewEx": None,
    "PyThread_start_new_thread": 0,
}
CALL = re.compile(r"\b(" + "|".join(CALLS) + r")\s*\(")
VECTORCALL = re.compile(r"\bvectorcall = ([^;]+);")
# Is called without an interpreter to tell anything; must throw nothing.
AT_EXIT = re.compile(r"\bPy_AtExit\(([^)]*)\)")
THROW_NOTHING = {"runtime::stop_optimisations"}


def blank(source: str) -> str:
    """The source, with comments and the inside of texts as blanks: places stay."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
    return pattern.sub(
        lambda m: (
            '"' + " " * (len(m[0]) - 2) + '"' if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0])
        ),
        source,
    )


def parts(source: str, at: int) -> Iterator[tuple[int, str]]:
    """What stands between the commas behind an opening bracket, with its place."""
    depth, begin = 0, at
    for k in range(at, len(source)):
        c = source[k]
        if depth == 0 and c in ",)}":
            if source[begin:k].strip():
                yield (
                    begin + len(source[begin:k]) - len(source[begin:k].lstrip()),
                    source[begin:k].strip(),
                )
            begin = k + 1
            if c != ",":
                return
        depth += (c in "({[<") - (c in ")}]>" and source[k - 1] != "-")


def functions(kind: str, source: str, at: int) -> Iterator[tuple[int, str]]:
    """The functions that a table names."""
    items = list(parts(source, at))
    if kind in ("MethodDef", "GetSetDef"):
        rows = [
            list(parts(source, place + 1)) for place, item in items if item.startswith("{")
        ] or [items]
        for row in rows:
            yield from row[1 : 2 if kind == "MethodDef" else 3]
    elif kind in ("ModuleDef_Slot", "Type_Slot"):
        for place, _ in items:
            yield from list(parts(source, place + 1))[1:2]
    else:
        for place, item in items:
            slot = re.match(r"\.(\w+) = ", item)
            if slot is None and not item.startswith("{{"):
                yield place, item
            elif slot and slot[1] not in DATA:
                yield place + len(slot[0]), item[len(slot[0]) :]


def bound(source: str) -> Iterator[tuple[int, str]]:
    """All functions that a source hands to CPython."""
    for table in TABLE.finditer(source):
        yield from functions(table[1], source, table.end())
    for call in CALL.finditer(source):
        which = CALLS[call[1]]
        if which is None:
            yield call.start(), call[1]
        else:
            yield from list(parts(source, call.end()))[which : which + 1]
    for assigned in VECTORCALL.finditer(source):
        yield assigned.start(), assigned[1]
    for registered in AT_EXIT.finditer(source):
        if registered[1] not in THROW_NOTHING:
            yield registered.start(), registered[1]


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "src"
    wrong = count = 0
    for path in sorted([*root.rglob("*.cpp"), *root.rglob("*.h")]):
        source = blank(path.read_text())
        for place, function in bound(source):
            count += 1
            if not FITS.fullmatch(function):
                line = source.count("\n", 0, place) + 1
                print(f"src/{path.relative_to(root)}:{line}: {function}: write entry<{function}>")
                wrong += 1
    if count < 100:
        print(f"only {count} functions were found: this tool no longer sees the tables")
    return 1 if wrong or count < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
