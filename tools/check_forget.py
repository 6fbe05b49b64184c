#!/usr/bin/env python3
"""Checks that Python exceptions are forgotten in one place.

A failure that stands for an answer is forgotten by `cpython::forget_error`, which keeps what is no
answer: an interrupt, an exit, what a signal handler raised. CPython's own ways lose those. And that no
reference is a static object: it would be given back when the interpreter is gone. Prints
`file:line: reason`, exits 1 if any.
"""

import re
import sys
from pathlib import Path

ONE_PLACE = "cpython/kept_error.cpp"
FORGETS = {
    "PyErr_Clear": "use cpython::forget_error",
    "PyErr_WriteUnraisable": "let it be raised, or use cpython::forget_error",
    "PyErr_Print": "let it be raised",
    "PyObject_HasAttr": "it swallows every exception; use cpython::has_attribute",
    "PyObject_HasAttrString": "it swallows every exception; use cpython::has_attribute",
    "PyMapping_HasKey": "it swallows every exception",
    "PyMapping_HasKeyString": "it swallows every exception",
}
STATIC = re.compile(r"\bstatic (const )?Ref \w+( =|;|\{)")
CALL = re.compile(r"\b(" + "|".join(FORGETS) + r")\s*\(")


def main() -> int:
    root = Path(__file__).parents[1] / "src"
    wrong = 0
    for path in sorted([*root.rglob("*.cpp"), *root.rglob("*.h")]):
        name = path.relative_to(root).as_posix()
        if name == ONE_PLACE:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if STATIC.search(line):
                print(f"src/{name}:{number}: a static Ref: release it, and keep the pointer")
                wrong += 1
            if call := CALL.search(line.split("//")[0]):
                print(f"src/{name}:{number}: {call[1]}: {FORGETS[call[1]]}")
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
