#!/usr/bin/env python3
"""Checks where the front end lets Python evaluate something.

What Python answers while a kernel is traced must be a fact that a later process can compare, so
evaluations of the user's objects go through `recorder.cpp`, as the function that it runs. Each file
that calls CPython's evaluating functions has a row: how many such calls there are, and why they need
no record of their own. A new call fails here until somebody has said why. Prints `file: reason`,
exits 1 if any.
"""

import re
import sys
from pathlib import Path

EVALUATES = re.compile(
    r"\b(PyObject_(?:Call\w*|Vectorcall|IsTrue|Not|Str|Repr|ASCII|Format|GetItem|SetItem|Size|Length|GetIter"
    r"|RichCompare|RichCompareBool|IsInstance|IsSubclass|Hash|HasAttr|HasAttrString|GetAttr|GetAttrString)"
    r"|PyNumber_[A-Z]\w+|PySequence_(?:List|Tuple|Contains|GetItem)|PyIter_Next)\b"
)

OURS = "reads objects of this package and of CPython's own (definitions, annotations, trees, code)"
SETTLED = "operands are constants, vectors or lists whose facts were recorded before the call"
RUNS = "the function that the recorder runs, or what it runs over"
FACTS = "says or compares facts, or walks a recorded path"
MESSAGES = "texts of errors and warnings"

ROWS = {
    "annotations.cpp": (9, OURS),
    "assign.cpp": (1, SETTLED),
    "ast.cpp": (11, OURS),
    "builtins.cpp": (2, OURS + "; " + MESSAGES),
    "builtins_math.cpp": (9, SETTLED),
    "builtins_misc.cpp": (6, SETTLED),
    "builtins_tensor.cpp": (6, SETTLED + "; nodes of the tree; types of ours"),
    "call_bind.cpp": (5, OURS),
    "call_func.cpp": (2, OURS),
    "call_python.cpp": (4, OURS + "; NumPy's operators, whose array was consumed"),
    "callables.cpp": (1, OURS),
    "contents.cpp": (16, FACTS),
    "diag.cpp": (15, MESSAGES),
    "expr.cpp": (1, OURS),
    "guards.cpp": (30, FACTS),
    "hooks.cpp": (12, OURS),
    "plain_code.cpp": (4, OURS),
    "lower_call.cpp": (3, OURS),
    "lower_condition.cpp": (3, RUNS),
    "lower_expr.cpp": (4, RUNS),
    "lower_format.cpp": (5, RUNS),
    "lower_sparse.cpp": (5, OURS + "; gradients of fields, which are guarded"),
    "lower_mesh.cpp": (3, OURS + "; of a mesh that the kernel did not find itself"),
    "lower_loop.cpp": (10, RUNS + "; which target it is"),
    "lower_name.cpp": (
        21,
        RUNS + "; annotations of dataclasses; whether a template argument has a hash",
    ),
    "lower_stmt.cpp": (3, RUNS),
    "ops.cpp": (29, RUNS),
    "places.cpp": (3, FACTS),
    "provenance.cpp": (6, FACTS),
    "purity.cpp": (3, OURS),
    "real_func.cpp": (3, OURS),
    "recorder.cpp": (2, RUNS),
    "signature.cpp": (4, OURS),
    "source.cpp": (17, OURS),
    "specialise.cpp": (10, OURS),
    "structs.cpp": (14, OURS),
    "subscript.cpp": (7, RUNS),
    "tensor.cpp": (2, SETTLED),
    "tile.cpp": (3, OURS),
}


def main() -> int:
    folder = Path(__file__).parents[1] / "src" / "frontend"
    wrong = 0
    for path in sorted(folder.rglob("*.cpp")):
        lines = (line.split("//")[0] for line in path.read_text().splitlines())
        count = sum(len(EVALUATES.findall(line)) for line in lines)
        known, why = ROWS.get(path.name, (0, "it has no row"))
        if count > known:
            print(f"{path.name}: lets Python evaluate in {count} places, {known} are known ({why}); go through "
                  "recorder.cpp, or say in tools/check_recorder.py why the new one needs no record")  # fmt: skip
        wrong += count > known
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
