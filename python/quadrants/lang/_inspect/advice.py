"""What to do about a mistake: the line below a compile error's message.

`ADVICE` is read top down, the first pattern found in the message wins; `{1}` stands for the
pattern's first group. Messages whose place in the compiler knows more bring their own line and never
come here. Imported on failure only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import FunctionType
from typing import Any

_VALUES = "only numbers, vectors, matrices and structs can be values"
_ONE_NAME_PER_AXIS = "write one name for each axis, or `for I in qd.grouped(...)` and I[0], I[1]"
_OUTSIDE = "define it outside"

ADVICE = [
    # statements
    (r'node "(Global|Nonlocal)"',
     "Python's variables are constants in kernels; keep what changes in a field or an array"),
    (r'node "(Import|ImportFrom)"', "import at the top of the file; kernels see its names"),
    (r'node "(Try|TryStar|Raise)"',
     "kernels have no exceptions; use `if`, or `assert` with qd.init(debug=True)"),
    (r'node "Delete"', "drop the statement; names end with the block they were made in"),
    (r'node "ClassDef"', _OUTSIDE + ", with @qd.dataclass or @qd.data_oriented"),
    (r'node "Lambda"', _OUTSIDE + ", with def and @qd.func"),
    (r'node "GeneratorExp"', "use a loop, or a list comprehension over compile-time values"),
    (r'node "(Set|SetComp)"', "use a list, a tuple or a dict"),
    (r'node "Match"', "use if, elif and else"),
    (r'node "(Yield|YieldFrom|Await|Async\w+)"',
     "a kernel runs from start to end; use ordinary def, for and with"),
    (r'node "TypeAlias"', _OUTSIDE),
    (r"Function definition is not allowed", _OUTSIDE + ", with @qd.func"),
    (r"'else' clause for", "set a variable in the loop and test it after the loop"),
    (r"'with' in Quadrants|'with \.\.\. as", "other `with` blocks belong around the kernel's call"),
    (r"Return inside non-static",
     "assign to a variable and return that at the end, or use @qd.real_func"),
    (r"has a return type but does not have a return", "add `return value`, or drop `-> type`"),
    (r"Cannot break in the outermost",
     "its iterations run in parallel; put qd.loop_config(serialize=True) in front of a range loop"),
    (r"statement is inside a non-static", "make the condition qd.static(...), or loop at run time"),
    (r"'(break|continue)' outside", "it belongs in a loop of the same function"),
    (r"assert info must be", 'write assert condition, f"text {{value}}"'),
    (r"Kernels cannot call other", "make the inner one a @qd.func, or call both from Python"),
    # names and targets
    (r"Maybe it is not a Quadrants object",
     "Python's objects are constants in kernels; keep what changes in a variable, a field or an array"),
    (r"Loop variable '(\w+)' cannot be assigned", "copy it first: x = {1}"),
    (r"already declared in the outer scope", "give the loop variable another name"),
    (r"Recreating variables", "choose a new name for what qd.static(...) gives"),
    (r"cannot have type overloading", "leave the annotation out; a variable keeps its type"),
    (r"Static assign cannot", "write name = qd.static(value), or leave qd.static out"),
    (r"Starred assignment|Unsupported assignment target", "write one plain name for each value"),
    (r"number of targets is not equal", "write one target for each value"),
    (r"Cannot unpack type", "only sequences and vectors can be unpacked; take the parts by name"),
    (r"annotation without a value", "give it a value: name: qd.f32 = 0"),
    (r"stands for a value or a kernel argument|non-writable target",
     "the target must be a variable, or an element of a field or an array"),
    # loops
    (r"Range should have", "loop over range(n) and compute begin + i * step inside"),
    (r"Loop bounds must be scalars", "for the extent of an axis write x.shape[0]"),
    (r"Group for should have", "write `for I in qd.grouped(...)` and use I[0], I[1]"),
    (r"Number of struct-for indices|Ndrange for loop with number", _ONE_NAME_PER_AXIS),
    (r"is not a permutation|entries but ndrange was called with", "name every axis once, outermost first"),
    (r"Only 'qd\.ndrange' is allowed", "write qd.static(qd.grouped(qd.ndrange(...)))"),
    (r"Every argument of ndrange", "write qd.ndrange(n, (begin, end))"),
    (r"Using non static inlined if", "use if and else with a loop in each, or qd.static(condition)"),
    (r"TypeError when calling `range`",
     "a length known at run time needs an ordinary loop: for i in range(n)"),
    (r"Struct for is only available", "loop over the field itself: for i in x"),
    # compile-time values
    (r"Input to qd\.static must be",
     "a run-time value cannot decide what is compiled; leave qd.static out, or pass the value "
     "through a qd.template() parameter"),
    (r"Static assert with non-static", "use assert for run-time values"),
    (r'Operator "is', "compare values with ==; `x is None` is for template parameters in qd.static"),
    (r'"(?:Not)?In" is only supported', "write a == b or a == c, or put it in qd.static(...)"),
    (r"KeyError: <Quadrants Expression",
     "keys are compile-time values; keep a table that is read at run time in a field or an array"),
    (r"only integers, slices", "NumPy arrays take compile-time indices; pass the array as an argument"),
    (r"Only 0-dimensional numpy", "use qd.Vector or qd.Matrix, or pass the array as an argument"),
    (r"has no len\(\)", "for the extent of an axis write x.shape[0]"),
    (r"data type: <class 'str'>", "strings live in print, assert, qd.static and template arguments"),
    (r"data type: <class '[\w.]*Field'>", "index the field: x[i]"),
    (r"data type: ", _VALUES + "; keep other objects in qd.static(...)"),
    # operators and indices
    (r"unsupported operand type\(s\) for '(&&|\|\|)'", "compare first: x != 0"),
    (r"unsupported operand type\(s\) for .*\[Tensor",
     "shapes must be equal, or one side a number"),
    (r"unsupported operand type\(s\) for '(&|\||\^|<<|>>)'", "only integers have bits; qd.cast(x, qd.i32)"),
    (r"unsupported operand type\(s\) for .*(Field|ndarray)", "index it: x[i]"),
    (r"Unsupported operator @=", "write a = a @ b"),
    (r"`select` conditions must", "compare first: x != 0"),
    (r"takes integral inputs only", "compare first (x != 0), or convert with qd.cast(x, qd.i32)"),
    (r"takes real inputs only", "convert with qd.cast(x, qd.f32)"),
    (r"Negative indices", "count from the front: x[x.shape[0] - 1], v[v.n - 1]"),
    (r"however 'f\d+' is provided as index", "divide with //, or convert with qd.cast(i, qd.i32)"),
    (r"is provided as index", "an index is an integer or a vector of integers"),
    (r"(?:Field|Array) with dim (\d+) accessed", "the number of indices must be {1}"),
    (r"Expected (\d) indices, got", "the number of indices must be {1}"),
    (r"index of slice type|scalar cannot be sliced", "loop over the elements"),
    (r"is a scalar and cannot be indexed", "leave the index out"),
    (r"Out of bound access to a \[(\d+)\] matrix", "indices go from 0 to {1} - 1"),
    (r"Out of bound access to a \[(\d+), (\d+)\] matrix",
     "indices go from 0, 0 to {1} - 1, {2} - 1"),
    (r"cannot assign '\[Tensor|cannot assign '.*' to '\[Tensor",
     "shapes must be equal; a variable keeps the type of its first value"),
    (r"Cannot broadcast tensor", "shapes must be equal, or one side a number"),
    (r"dimension mismatch between", "columns of the left side must equal rows of the right"),
    (r"for dot is not a vector", "take a row: qd.Vector([m[i, 0], m[i, 1]]), or use @"),
    (r"expected a square", "rows must equal columns"),
    (r"only dimension < (\d+)", "the size must be below {1}"),
    (r"it needs (\d+) components", "give {1} numbers, or one for all"),
    (r"need to be created with an initial", "one number fills all components: vec3(0.0)"),
    (r"expected to be a Matrix", "pass a value of the annotated shape"),
    (r"'atomic_\w+' requires integer", "the target must be an integer, like i32 or u32"),
    (r"required shapes to be the same", "give rows or columns of equal length"),
    (r"volatile_load", "read an element of a field or an array: qd.volatile_load(x[i])"),
    (r"rows of a matrix must have", "write rows of equal length"),
    (r"cannot decorate an expression with a compound", "write qd.cast(v, qd.f32)"),
    (r"can only decorate a single", "write qd.f32(x)"),
    (r"an ndarray has no attribute", "kernels see its shape, its grad and its elements, x[i]"),
    (r"Return (matrix|\(type=)|number of returned values", "return a value of the annotated type"),
    (r"'qd\.static' cannot be nested", "drop the inner one"),
    (r"Member mismatch", "both sides must have the same members"),
    (r"Negative exponent", "use a real base: 2.0 ** -1"),
    (r"exceeded the range of specified", "choose a wider type"),
    # calls
    (r"TypeError when calling `(?:np|numpy|math)\.(float|int|uint|bool)(\d*)_?`",
     "write qd.cast(x, qd.f32), with the type that you want"),
    (r"TypeError when calling `(?:np|numpy|math)\.(\w+)`", "use qd.{1}, or qd.math, in kernels"),
    (r"Maybe a Quadrants Expression was passed",
     "make the function a @qd.func, or call it in qd.static with compile-time values"),
    (r"STARNOTLAST", "write the arguments one by one"),
    (r"nested more than|recursion at run time", "use a loop, or a @qd.real_func"),
    (r"(Unexpected|Multiple values for|Missing) argument|Too many arguments",
     "compare the call with the parameters of the function"),
    (r"^Ndarray argument .* needs a", "annotate the parameter of the func that takes it"),
    (r"unexpected keyword argument", "see its help for the keywords that it takes"),
    (r"takes \d+ arguments? but \d+ were given|missing a required argument",
     "see its help for the arguments that it takes"),
    (r"Custom structs need", "write qd.Struct(name=value)"),
    # printing
    (r"'[^']*' doesn't match '[iu]\d+'", "specs follow printf: d for signed, u o x for unsigned integers"),
    (r"'[^']*' doesn't match 'f\d+'", "specs follow printf: f, e, g or a for reals, as in .3f"),
    (r"doesn't match", "specs follow printf; strings take none"),
    (r"Expected \d+ positional|Keyword '\w+' not", "give one value for each pair of braces"),
    # signatures
    (r"must be type annotated|Invalid type annotation",
     "annotate with a dtype (x: qd.f32), a vector, matrix or struct type, qd.types.ndarray(), "
     "qd.Tensor, qd.template() or a dataclass"),
]  # fmt: skip


def for_message(message: str) -> str:
    """The advice about a message, or an empty string."""
    for pattern, advice in ADVICE:
        if found := re.search(pattern, message):
            return advice.format(message, *found.groups())
    return ""


def similar(word: str, names: Iterable[Any]) -> str:
    """A guess at what a misspelt name should be, or an empty string."""
    import difflib

    private = word.startswith("_")
    known = [n for n in names if isinstance(n, str) and (private or not n.startswith("_"))]
    close = difflib.get_close_matches(word, known, 1)
    return f"did you mean '{close[0]}'?" if close else ""


def for_name(name: str, function: FunctionType, *scopes: Iterable[Any]) -> str:
    """About a name that is not defined in `function`, which sees the names of `scopes`."""
    if name in function.__code__.co_varnames:
        return "a name made in a branch or a loop ends with it; give it a value in front of that"
    if name in function.__code__.co_freevars:
        return "the function around it gives it a value only later; give it one before the call"
    return similar(name, {n for scope in scopes for n in scope} - {name})


def for_exception(error: BaseException) -> str:
    """About an exception that ordinary Python code raised while a kernel was compiled."""
    if isinstance(error, AttributeError) and error.name is not None and error.obj is not None:
        return similar(error.name, dir(error.obj))
    return for_message(f"{type(error).__name__}: {error}")
