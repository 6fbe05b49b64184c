"""Writes functions of quadrants/lang/_ops from rows of the op table: `op_functions.py OPS.INC FOLDER`.

Each row with a Python name and a documentation, stated or an operator's, becomes a function: in
elementary.py what `quadrants.math` has, too, in arithmetic.py the rest. Prints the names that the package
has at its top. `rows` serves tests, too.
"""

import re
import sys
from pathlib import Path
from typing import Any

Row = dict[str, Any]

ROW = re.compile(r"^(OP|ELEMENTARY)\((\w+), (.*?)\)(?:  //[^\n]*)?$", re.M | re.S)
COLUMNS = ("operands", "rule", "effect", "kind", "takes", "slope", "python")
ONE = r'(?:(?:"[^"]*"\s*)+|[\w:.+-]+)'
FACT = re.compile(rf"\.(\w+) = (\{{\s*{ONE}(?:,\s*{ONE})*\}}|{ONE})")

MODULE = '''"""{title}.

Written by cmake/op_functions.py from the rows of src/ir/ops.inc.
"""

import builtins  # noqa: F401
from typing import Any

from quadrants._lazy import LazyNumpy
{imports}
__all__ = {names}
np: Any = LazyNumpy(globals())
'''
MODULES = {
    "elementary": "Functions of numbers, component by component of vectors and matrices",
    "arithmetic": "Operators by name, atomics and what `quadrants.math` lacks",
}
FUNCTION = '''

@{decorator}
def {name}({parameters}) -> Any:
    """{doc}"""{body}
'''
PLACE = "element of a field, an array or a shared array, or a local variable."


def value(text: str) -> Any:
    """A column's value: a number, a text, whether it is true, a name, or a tuple of these."""
    if text[:1] == "{":
        return tuple(value(item) for item in re.findall(ONE, text[1:-1]))
    if '"' in text:
        return "".join(re.findall(r'"([^"]*)"', text))
    if text in ("true", "false"):
        return text == "true"
    return float(text) if re.fullmatch(r"[-+.\de]+", text) else text


def rows(table: str) -> dict[str, Row]:
    """Name -> columns and facts of each row."""
    found = {}
    for macro, name, rest in ROW.findall(table):
        row = {"name": name, "tested": (-8.0, 8.0), "against": (-8.0, 8.0), "ulp": 0.0}
        count = 2 if macro == "ELEMENTARY" else len(COLUMNS)
        texts = rest.split(",", count)[:count]
        stated = dict(zip(("operands", "slope") if count == 2 else COLUMNS, map(str.strip, texts)))
        if count == 2:
            stated |= {"kind": "elementwise", "takes": "floats", "rule": "same0", "python": name}
            row |= {"elementary": True, "at": "qd math"}
        row |= stated | {"operands": int(stated["operands"]), "python": stated["python"].strip('"')}
        row |= {fact: value(text) for fact, text in FACT.findall(rest)}
        row.setdefault("names", ("x",) if row["operands"] == 1 else ("a", "b"))
        if row["kind"] == "atomic" and row["python"]:
            row = {"at": "qd", "face": "atomic", **row}
            row["names"] = ("x", "y") if row["names"] == ("a", "b") else row["names"]
        found[name] = row
    return found


def is_operator(row: Row) -> bool:
    return "method" in row


def sentence(row: Row, step: Row | None) -> str:
    """The first one of the documentation."""
    if row["kind"] == "atomic":
        doc = row.get("doc") or step and f"Stores x {step['symbol']} y in x"
        vectors = "; vectors component by component" if row["operands"] == 2 else ""
        return f"{doc}, as one indivisible step{vectors}."
    if not is_operator(row) or "doc" in row:
        return row["doc"]
    a, *b = row["names"]
    expression = f"{a} {row['symbol']} {b[0]}" if b else row["symbol"] + a
    of_ints = ", for integers" if row["takes"] == "ints" else ""
    promotes = "; integers become the default float" if row.get("promotes") else ""
    return f"{expression}, element-wise{of_ints}{promotes}."


def arguments(row: Row) -> dict[str, str]:
    """What documentation says of each parameter; nothing where an operator says it all."""
    if "given" in row:
        return dict(zip(row["names"], row["given"]))
    if is_operator(row):
        return {}
    if row["kind"] == "atomic":
        number = "integer" if row["takes"] == "ints" else "number"
        return {"x": PLACE, "y": f"{number}, cast to the type of x."}
    if row.get("face") == "folded":
        return {
            "*args": "one or more numbers, vectors or matrices; one alone is returned as it is."
        }
    if row["operands"] > 1:
        numbers = "integer, vector or matrix of integers." if refuses(row) == "floats" else None
        numbers = numbers or "number, vector or matrix."
        return dict.fromkeys(row["names"], numbers)
    x = {"x": "number, vector or matrix; the result has its shape and type."}
    if row["takes"] == "floats":
        x["x"] = "float, vector or matrix; the result has its shape and type."
        if row.get("promotes"):
            x["x"] = "number, vector or matrix; integers become the default float."
    if row.get("whole"):
        x["x"] = "float, vector or matrix."
        x["dtype"] = "type of the result, that of x if None; `int` and `float` mean the defaults."
    return x


def refuses(row: Row) -> str:
    """What operands a function does not take."""
    if row["takes"] == "ints":
        return "floats"
    if row["takes"] == "floats" and row["operands"] == 1 and not row.get("promotes"):
        return "integers"
    return ""


def errors(row: Row) -> list[str]:
    """The sentences on what is raised."""
    if "raises" in row:
        return [row["raises"]] if row["raises"] else []
    if is_operator(row):
        return []
    found = []
    if row["kind"] == "atomic":
        found.append("QuadrantsSyntaxError: x cannot be written.")
        if row["takes"] == "ints":
            found.append("QuadrantsTypeError: an operand is a float.")
        return found
    if refuses(row):
        who = "x is" if row["operands"] == 1 else "an operand is"
        what = "a float" if refuses(row) == "floats" else "an integer"
        where = "" if row.get("face") else " (in kernels)"
        found.append(f"QuadrantsTypeError: {who} {what}{where}.")
    if row.get("face") == "bit_count":
        found.append("NotImplementedError: called outside a kernel.")
    if row.get("face") == "kernel_value":
        found = ["AssertionError: called outside a kernel."]
    return found


def wrapped(text: str, indent: str, more: str) -> str:
    """Lines of at most 100 characters."""
    lines, line = [], indent
    for word in text.split():
        if len(line) + len(word) > 100:
            lines.append(line.rstrip())
            line = more
        line += word + " "
    return "\n".join([*lines, line.rstrip()])


def documentation(row: Row, step: Row | None) -> str:
    text = sentence(row, step)
    given, raised = arguments(row), errors(row)
    if len(text) + 7 > 100 or given or raised:
        text = wrapped(text, "    ", "    ").lstrip()
    section = "\n\n    {}:\n{}"
    if given:
        lines = [wrapped(f"{k}: {v}", " " * 8, " " * 12) for k, v in given.items()]
        text += section.format("Args", "\n".join(lines))
    if row["kind"] == "atomic":
        text += "\n\n    Returns:\n        The old x."
    if raised:
        text += section.format(
            "Raises", "\n".join(wrapped(line, " " * 8, " " * 12) for line in raised)
        )
    return text + "\n    " if "\n" in text else text


def computed(row: Row, step: Row | None) -> str:
    """The expression that plain Python evaluates; none where it may not call the function."""
    if row.get("face") in ("bit_count", "kernel_value"):
        return ""
    names = row["names"]
    if row.get("face") == "folded":
        return row["numpy"] + "(*args)"
    if "numpy" in row:
        return row["numpy"]
    if row["kind"] == "atomic":
        if step is None:
            return "y"
        return f"x {step['symbol']} y" if is_operator(step) else f"{step['python']}(x, y)"
    if is_operator(row):
        return f"{names[0]} {row['symbol']} {names[1]}" if names[1:] else row["symbol"] + names[0]
    return f"np.{row['python']}({', '.join(names)})"


def decorator(row: Row) -> str:
    return "rounding" if row.get("whole") else row.get("face") or "elementwise"


def function(row: Row, step: Row | None) -> str:
    parameters = ", ".join(f"{name}: Any" for name in row["names"])
    if decorator(row) == "folded":
        parameters = "*args: Any"
    if row.get("whole"):
        parameters += ", dtype: Any = None"
    body = computed(row, step)
    return FUNCTION.format(
        decorator=decorator(row),
        name=row["python"],
        parameters=parameters,
        doc=documentation(row, step),
        body=f"\n    return {body}" if body else "",
    )


def functions(found: dict[str, Row]) -> dict[str, tuple[Row, Row | None]]:
    """Rows that become functions, each with that of what an atomic does."""
    return {
        row["python"]: (row, found.get(row.get("step", "").removeprefix("Op::")))
        for row in found.values()
        if row["kind"] in ("elementwise", "atomic")
        and row["python"]
        and (is_operator(row) or row["kind"] == "atomic" or "doc" in row)
    }


def module(
    which: str, chosen: dict[str, tuple[Row, Row | None]], helpers: set[str], *imports: str
) -> str:
    """The text of a module with these functions."""
    used = sorted(helpers | {decorator(row) for row, _ in chosen.values()})
    lines = [*imports, f"from quadrants.lang._ops.operation import {', '.join(used)}"]
    head = MODULE.format(
        title=MODULES[which], imports="\n".join(lines) + "\n", names=sorted(chosen)
    )
    return head + "".join(function(*rows) for rows in chosen.values())


def main() -> None:
    found = functions(rows(Path(sys.argv[1]).read_text()))
    mathematical = {k: v for k, v in found.items() if "math" in v[0].get("at", "")}
    rest = {k: v for k, v in found.items() if k not in mathematical}
    helpers = {h for both in rest.values() for h in re.findall(r"\bc_\w+", computed(*both))}
    called = {step["python"] for _, step in rest.values() if step} & set(mathematical)
    needed = f"from quadrants.lang._ops.elementary import {', '.join(sorted(called))}"
    texts = {
        "elementary": module("elementary", mathematical, set()),
        "arithmetic": module("arithmetic", rest, helpers, needed),
    }
    for name, text in texts.items():
        path = Path(sys.argv[2]) / f"{name}.py"
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    print(*(name for name, (row, _) in found.items() if "qd" in row.get("at", "").split()))


if __name__ == "__main__":
    main()
