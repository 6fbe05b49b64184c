"""Writes quadrants/lang/_ops/elementary.py from the op table: `elementary.py OPS.INC MODULE`.

Each row of a function of one operand that has a documentation becomes a Python function. Prints their
names. `rows` serves tests, too.
"""

import re
import sys
from pathlib import Path

ROW = re.compile(r"^ELEMENTARY\((\w+), 1, \w+(.*?)\)(?:  //.*)?$", re.M | re.S)
FACT = re.compile(r'\.(\w+) = ((?:\s*"[^"]*")+|\{[^}]*\}|[\w.]+)')

MODULE = '''"""Functions of one real number, component by component of vectors and matrices.

Written by cmake/elementary.py from the rows of src/ir/ops.inc.
"""

from typing import Any

from quadrants._lazy import LazyNumpy
from quadrants.lang._ops.operation import elementwise, rounding

__all__ = {names}
np: Any = LazyNumpy(globals())
'''
FUNCTION = '''

@{decorator}
def {name}({parameters}) -> Any:
    """{doc}

    Args:
        {arguments}
    """
    return {numpy}
'''
REFUSES = """

    Raises:
        QuadrantsTypeError: x is an integer (in kernels)."""


def value(text: str) -> object:
    if text[:1] == "{":
        return tuple(map(float, text[1:-1].split(",")))
    return "".join(re.findall(r'"([^"]*)"', text)) if '"' in text else text == "true"


def rows(table: str) -> dict[str, dict]:
    """Name -> facts of each function of one operand."""
    return {
        name: {fact: value(text) for fact, text in FACT.findall(facts)}
        for name, facts in ROW.findall(table)
    }


def function(name: str, row: dict) -> str:
    parameters, decorator = "x: Any", "elementwise"
    arguments = "x: float, vector or matrix; the result has its shape and type."
    if row.get("promotes"):
        arguments = "x: number, vector or matrix; integers become the default float."
    if row.get("whole"):
        parameters, decorator = "x: Any, dtype: Any = None", "rounding"
        arguments = (
            "x: float, vector or matrix.\n"
            "        dtype: type of the result, that of x if None; `int` and `float` mean the defaults."
        )
    if not row.get("promotes"):
        arguments += REFUSES
    return FUNCTION.format(
        name=name,
        decorator=decorator,
        parameters=parameters,
        doc=row["doc"],
        arguments=arguments,
        numpy=row.get("numpy") or f"np.{name}(x)",
    )


def main() -> None:
    found = rows(Path(sys.argv[1]).read_text())
    text = MODULE.format(names=sorted(found)) + "".join(
        function(name, row) for name, row in found.items()
    )
    module = Path(sys.argv[2])
    if not module.exists() or module.read_text() != text:
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(text)
    print(*found)


if __name__ == "__main__":
    main()
