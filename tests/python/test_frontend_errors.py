"""The class and the text of every front-end error, and the whole caret layout of some.

`TABLE` has a row for each mistake that no other file looks at: class, text, statements. They become
the body of a kernel in a file of its own, behind the helpers of `PREFIX`; sources that are more than
a body stand in `SOURCES`.
"""

import re
import sys

import numpy as np
import pytest

import quadrants as qd
from helpers import module_at

PREFIX = """\
import quadrants as qd
import quadrants.math
line, plane, vectors = {line}, {plane}, {vectors}
outside = {outside}

def raiser(x):
    raise ValueError("from the host")

Point = qd.types.struct(a=qd.f32)
pair = Point(a=1)

@qd.func
def add(a, b):
    return a + b

@qd.func
def is_none(a):
    if qd.static(a is None):
        pass

@qd.func
def needs_vec3(v: qd.types.vector(3, qd.f32)):
    return v
"""
MAKE = dict(
    line="qd.field(qd.f32, 4)",
    plane="qd.field(qd.i32, (4, 4))",
    vectors="qd.Vector.field(3, qd.f32, 4)",
    outside="qd.ndarray(qd.f32, (4,))",
)

IS_NONE = "requires a direct `qd.template()` or `qd.Tensor` kernel argument and `None`."
S, T = qd.QuadrantsSyntaxError, qd.QuadrantsTypeError
I, C = qd.lang.exception.QuadrantsIndexError, qd.QuadrantsCompilationError

TABLE = {
    "statements": [
        (S, 'Unsupported node "Import"', "import os"),
        (S, 'Unsupported node "Global"', "global raiser"),
        (S, 'Unsupported node "SetComp"', "z = {k for k in [1]}"),
        (S, '"NotIn" is only supported inside `qd.static`.', "z = i not in [1]"),
        (S, 'Kernel argument "i" is immutable in the kernel.', "i: qd.i32 = 3"),
        (S, 'Kernel argument "i" is immutable in the kernel.', "i, z = 3, 4"),
        (S, 'Kernel argument "i" is immutable in the kernel.', "(i := 3)"),
        (C, "", "for k in range(3): k = 4"),
        (C, "from the host", "raiser(i)"),
        (T, "`hash` does not take a Quadrants Expression", "z = hash(i)"),
        (T, "`id` does not take a Quadrants Expression", "z = id(i)"),
        (T, "`__add__` does not take a Quadrants Expression", "z = (3).__add__(i)"),
        (S, "Return inside non-static if/for is not supported",
         "for k in range(i):\n    if k > 1: return"),
        (S, "cannot use a non-writable target", "z = i\nqd.atomic_add(z + 1, 1)"),
        (C, "", "z = len(i)"),
        (T, "got an unexpected keyword argument 'foo'", "qd.loop_config(foo=1)"),
    ],
    "arguments of library functions and methods": [
        (S, "Too many arguments. Expected (x", "z = qd.math.popcnt(1, 2)"),
        (S, "Too many arguments. Expected (x", "z = qd.math.clz(5, i, 3)"),
        (S, "Too many arguments. Expected (x", "z = qd.math.ffs(i, 2)"),
        (S, "Too many arguments. Expected (x", "z = qd.math.mix(1, 2, 3, 4)"),
        (S, "Too many arguments.", "z = vectors[0].sum(1)"),
        (S, "Too many arguments.", "z = vectors[0].max(1)"),
        (S, "Too many arguments.", "z = vectors[0].norm(1, 2)"),
        (S, "Too many arguments.", "z = vectors[0].normalized(1, 2)"),
        (S, "Too many arguments.", "z = vectors[0].dot(vectors[1], x)"),
        (S, "Too many arguments.", "z = vectors[0]\nz.fill(1, 2)"),
        (S, "Unexpected argument 'z'.", "z = vectors[0].norm(eps=1, z=2)"),
        (S, "Unexpected argument 'z'.", "z = qd.math.ffs(z=i)"),
        (S, "Multiple values for argument 'eps'.", "z = vectors[0].norm(1, eps=2)"),
        (S, "Missing argument 'dtype'.", "z = vectors[0].cast()"),
        (S, "Missing argument 'val'.", "z = vectors[0]\nz.fill()"),
        (T, "", "z = qd.sin(x, 1)"),
        (T, "", "z = qd.floor(x, int, 3)"),
        (T, "", "z = qd.cast(x)"),
    ],
    "indices": [
        (I, "Field with dim 2 accessed with indices of dim 1", "plane[i] = 1"),
        (I, "Array with dim 2 accessed with indices of dim 1", "a[i] = 1"),
        (S, "Negative indices are not supported in Quadrants kernels.", "a[-1, 0] = 1"),
        (T, "indices must be integers, however 'f32' is provided as index 0", "line[x] = 1"),
        (I, "Expected 2 indices, got 1", "v = qd.Matrix([[1, 2], [3, 4]]); z = v.x"),
        (S, "", "z = x[0:1]"),
        (C, "used in kernel scope but not registered as a kernel parameter", "outside[0] = 1"),
        (T, "Cannot loop over the object", "for k in 3: pass"),
        (C, "Number of struct-for indices does not match loop variable dimensionality",
         "for k in plane: pass"),
    ],
    "loops": [
        (S, "Every argument of ndrange should be a scalar or a tuple/list like (begin, end)",
         "for k in qd.ndrange((1, 2, 3)): pass"),
        (T, "Every argument of ndrange should be an integer scalar",
         "for k in qd.ndrange(1.5): pass"),
        (S, "qd.ndrange takes at most 12 dimensions, found 13",
         "for k in qd.grouped(qd.ndrange(*[2] * 13)): pass"),
        (S, "qd.ndrange(axes=(0, 0)) is not a permutation of range(2)",
         "for k, l in qd.ndrange(2, 3, axes=(0, 0)): pass"),
        (S, "has 3 entries but ndrange was called with 2 dimension",
         "for k, l in qd.ndrange(2, 3, axes=(0, 1, 2)): pass"),
        (C, "Using non static inlined if statement",
         "for k in range(3) if i else range(4): pass"),
    ],
    "static": [
        (C, "'qd.static' cannot be nested", "for k in qd.static(qd.static(range(3))): pass"),
        (S, "Only 'qd.ndrange' is allowed in 'qd.static(qd.grouped(...))'",
         "for k in qd.static(qd.grouped(plane)): pass"),
        (S, "cannot be assigned", "z = qd.static(3); z = 4"),
        (S, "Static assign cannot be used on elements in arrays", "line[0] = qd.static(3)"),
        (S, IS_NONE, "z = 1\nif qd.static(z is None): pass"),
        (S, IS_NONE, "if qd.static(i is None): pass"),
        (S, IS_NONE, "if qd.static(None is i): pass"),
        (S, IS_NONE, "is_none(i)"),
    ],
    "values": [
        (T, "Invalid constant scalar data type", "z = line"),
        (S, "cannot be assigned. Maybe it is not a Quadrants object?", "z = [1, 2]; z = [3, 4]"),
        (T, "takes integral inputs only, however 'f32' is provided", "z = 1 if x else 2"),
        (T, "unsupported operand type(s) for '&': 'i32' and 'f32'", "z = i & x"),
        (T, "unsupported operand type(s) for '&&'", "z = x and i"),
        (T, "unsupported operand type(s) for '||': 'f32' and 'i32'", "z = 0.5 or i"),
        (T, "unsupported operand type(s) for '&&': 'f32' and 'i32'", "z = 0.5 and i"),
        (T, "unsupported operand type(s) for '&&': 'i32' and 'f32'", "z = 7 and x"),
        (T, "unsupported operand type(s) for '||': 'u1' and 'f32'", "z = True or x"),
        (T, "unsupported operand type(s) for '&&': 'u1' and 'f32'", "z = False and x"),
        (T, "unsupported operand type(s) for '||'", "z = 1 or qd.Vector([x, x])"),
        (T, "Invalid constant scalar data type: <class 'NoneType'>", "z = i + None"),
        (T, "Invalid constant scalar data type: <class 'str'>", "z = 'a' * x"),
        (T, "Only dict or Struct can be assigned to a Struct", "z = qd.Struct(a=1); z = 3"),
        (T, "Member mismatch between structs ['a'], ['b']",
         "z = qd.Struct(a=1); z = qd.Struct(b=1)"),
        (T, "", "add(i, add)"),
        (T, "", "add(i, raiser)"),
        (T, "", "add(i, 'a')"),
        (T, "takes integral inputs only", "z = qd.math.popcnt(x)"),
        (T, "'raw_mod' takes integral inputs only", "z = qd.raw_mod(x, 2.0)"),
        (T, "'floor' takes real inputs only, however 'i32' is provided.", "z = qd.floor(i)"),
        (T, "'d' doesn't match 'f32'.", "print(f'{1.5:d}')"),
        (T, "'.2f' doesn't match 'i32'.", "print('{:.2f}'.format(1))"),
        (T, "", "print(f'{1:s}')"),
        (T, "", "print(f'{\"a\":d}')"),
        (T, "bit_cast needs types of equal width, got f32 and f64", "z = qd.bit_cast(x, qd.f64)"),
        (T, "a number is expected for a member of type f32", "z = Point(a=pair)"),
        (T, "a number is expected for a member of type f32", "z = Point(a={'b': 1})"),
        (T, "`select` conditions must be an integer; found f32", "z = qd.select(x, 1, 2)"),
        (T, "Cannot broadcast tensor to tensor",
         "z = qd.select(qd.Vector([1, 0]), qd.Vector([1, 2, 3]), 0)"),
        (T, "Cannot broadcast tensor to tensor",
         "z = qd.Vector([1, 2]) if i else qd.Vector([1, 2, 3])"),
        (T, "Integer literals must be annotated with a integer type. For type casting, use `qd.cast`.",
         "z = qd.f64(3)"),
    ],
    "matrices": [
        (C, "lhs for dot is not a vector", "v = qd.Matrix([[1, 2], [3, 4]]); z = v.dot(v)"),
        (C, "cols/rows required when using list of vectors",
         "v = qd.Vector([i, 2]); z = qd.Matrix([v, v])"),
        (C, "required shapes to be the same", "z = qd.Matrix.rows([[1, 2], [1, 2, 3]])"),
        (T, "the length must be known while compiling", "v = qd.Vector([0.0] * i)"),
        (T, "the length must be known while compiling", "v = qd.Vector((0,) * i + (1,))"),
        (T, "the length must be known while compiling", "v = qd.Matrix([[0, 1]] * i)"),
        (T, "", "z = qd.math.vec3(1, 2)"),
        (T, "unsupported operand type(s) for '*': '[Tensor (2) f32]' and '[Tensor (3) f32]'",
         "z = qd.Vector([1.0, x]).dot(qd.Vector([1.0, 2.0, x]))"),
        (C, "Matrices with more than one columns cannot be unpacked",
         "z, y = qd.Matrix([[1, 2], [3, i]])"),
    ],
    "atomics": [
        (S, "cannot use a non-writable target as the first operand of 'atomic_add'",
         "qd.atomic_add(x + 1, 1)"),
        (S, "cannot use a non-writable target as the first operand of 'atomic_add'",
         "qd.atomic_add([1], 1)"),
        (S, "cannot use a non-writable target as the first operand of 'atomic_add'",
         "for k, l in qd.ndrange(2, 3): qd.atomic_add(k, 1)"),
        (S, "index it first", "qd.atomic_cas(line, 1, 1)"),
        (T, "'atomic_bit_and' requires integer operands, got", "qd.atomic_and(line[0], 1)"),
        (T, "requires integer operands", "qd.atomic_cas(line[0], 1, 1)"),
        (T, "tensor (vector / matrix) destinations is not supported",
         "qd.atomic_cas(vectors[0], 1, 1)"),
        (S, "requires an lvalue", "z = qd.volatile_load(x + 1)"),
        (S, "cannot pass a Field directly", "z = qd.volatile_load(line)"),
        (T, "local array", "v = qd.Vector([1, 2]); z = qd.volatile_load(v)"),
    ],
    "calls": [
        (S, "Unexpected argument 'c'.", "add(i, 1, c=2)"),
        (T, "Ndarray argument a needs a qd.types.ndarray() or qd.template()", "add(a, 1)"),
        (S, "Multiple values for argument 'a'.", "add(i, 1, a=2)"),
        (S, "Too many arguments. Expected (", "add(i, 1, 2)"),
        (S, "* args can only be present as the last argument of a function (error code: STARNOTLAST)",
         "z = [1]; add(*z, 1)"),
    ],
    "printing": [
        (S, "Keyword 'k' not used.", "print('{}'.format(i, k=1))"),
        (T, "'.2f' doesn't match 'i32'.", "v = qd.Vector([i, 1]); print(f'{v:.2f}')"),
        (T, "", "z = qd.Struct(a=1); print(z)"),
        (T, "", "print(a)"),
        (C, "unexpected keyword argument 'file'", "print(i, file=3)"),
    ],
}  # fmt: skip


def load(path, source, prefix=PREFIX):
    """The module of `source`, written to `path` because kernels are traced from their files."""
    path.write_text(prefix.format(**MAKE) + source)
    return module_at(path)


def advises(text):
    """Whether a line below the message, or the message, says what to do."""
    return re.search(
        r"\n  \S[^\n]*\s*$|Consider|lease|Maybe|did you mean|use [`q]|index it first|write |Traceback",
        text,
    )


def mistakes(rows, kernels, established):
    """What is wrong with the errors of the kernels, a line each."""
    for (cls, text, body), kernel in zip(rows, kernels):
        try:
            kernel(1, 1.0, np.zeros((2, 2), np.float32))
        except Exception as e:
            if not isinstance(e, cls) or text not in str(e):
                yield f"{body!r}: {type(e).__name__} {str(e)[-300:]}"
            elif not established and not ("^" in str(e) and advises(str(e))):
                yield f"{body!r}: no caret or no advice: {str(e)[-300:]}"
        else:
            yield f"{body!r}: no error"


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("group", TABLE)
def test_table(backend, tmp_path, group, established):
    def kernel(n, body):
        head = f"\n@qd.kernel\ndef k{n}(i: qd.i32, x: qd.f32, a: qd.types.ndarray(qd.f32, 2)):\n"
        return head + "".join(f"    {line}\n" for line in body.split("\n"))

    rows = TABLE[group]
    module = load(tmp_path / "table.py", "".join(kernel(n, r[2]) for n, r in enumerate(rows)))
    kernels = [getattr(module, f"k{n}") for n in range(len(rows))]
    assert not list(mistakes(rows, kernels, established))


SOURCES = [
    (C, "Return matrix shape mismatch, expecting=", """
@qd.kernel
def k(n: qd.i32) -> qd.types.vector(3, qd.i32):
    return qd.Vector([1, 2])
"""),
    (C, "cannot be converted into required type", """
@qd.kernel
def k(n: qd.i32) -> qd.i32:
    return qd.Vector([1, 2])
"""),
    (T, "TypeError when calling `undecorated`", """
def undecorated():
    pass

@qd.kernel
def k(n: qd.i32):
    undecorated(n)
"""),
    (C, "recursion at run time is not supported", """
@qd.func
def again(x):
    return again(x) + 1

@qd.kernel
def k(n: qd.i32):
    again(n)
"""),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("cls,text,source", SOURCES, ids=[s[1] for s in SOURCES])
def test_sources(backend, tmp_path, cls, text, source):
    with pytest.raises(cls) as e:
        load(tmp_path / "source.py", source).k(1)
    assert text in str(e.value)


def test_warnings_about_loops(backend, tmp_path, capfd):
    """Options without effect are logged, with the line that asks for them."""
    backend.init(log_level=qd.WARN)
    source = """
@qd.kernel
def k(n: qd.i32):
    qd.loop_config(serialize=True)
    for i in line:
        line[i] = 1
    for i in range(n):
        qd.loop_config(name="inner")
        for j in range(n):
            line[j] += 1
"""
    load(tmp_path / "loops.py", source).k(2)
    logged = capfd.readouterr()
    text = logged.out + logged.err
    assert "qd.loop_config(serialize=True) does not have effect on the struct for." in text
    assert 'qd.loop_config(name="inner") has no effect on a loop nested inside' in text


LAYOUTS = {
    "a chain of calls, a wrapped line, tabs": (qd.QuadrantsNameError, """\
import quadrants as qd
@qd.func
def bar(x):
\treturn x + zz
@qd.func
def baz(x, y):
    return bar(
        x + y
    ) + 1
@qd.kernel
def k(n: qd.i32) -> qd.i32:
    a = 1
    if a > 0:
        a = baz(n, 2) + n * 3333333333 - n * n + 11111 + 1111111111111 + 11111111111111 + n * n
    return a
""", """\
File "PATH", line 14, in k:
        a = baz(n, 2) + n * 3333333333 - n * n + 11111 + 1111111111111 + 1111111
            ^^^^^^^^^
1111111 + n * n
File "PATH", line 7, in baz:
    return bar(
           ^^^^
        x + y
        ^^^^^
    ) + 1
    ^
File "PATH", line 4, in bar:
    return x + zz
               ^^
Name "zz" is not defined
"""),
    "a header over two lines": (S, """\
import quadrants as qd
@qd.kernel
def k(n: qd.i32):
    for i in range(1, 2,
        3):
        pass
""", """\
File "PATH", line 4, in k:
    for i in range(1, 2,
    ^^^^^^^^^^^^^^^^^^^^
        3):
        ^^^
Range should have 1 or 2 arguments, found 3
  loop over range(n) and compute begin + i * step inside
"""),
    "an exception of the host": (C, """\
import quadrants as qd
def raiser(x):
    raise ValueError("hi")
@qd.kernel
def k(n: qd.i32):
    raiser(n)
""", """\
File "PATH", line 6, in k:
    raiser(n)
    ^^^^^^^^^
Traceback (most recent call last):
  File "PATH", line 3, in raiser
    raise ValueError("hi")
ValueError: hi
"""),
    "a condition": (T, """\
import quadrants as qd
@qd.kernel
def k(n: qd.f32):
    if n:
        pass
""", """\
File "PATH", line 4, in k:
    if n:
    ^^^^^
`if` conditions must be an integer; found f32. \
Consider using `if x != 0` instead of `if x` for float values
"""),
    "the target of an assignment": (I, """\
import quadrants as qd
plane = qd.field(qd.f32, (2, 2))
@qd.kernel
def k(n: qd.i32):
    plane[n] = plane[n, n]
""", """\
File "PATH", line 5, in k:
    plane[n] = plane[n, n]
    ^^^^^^^^
Field with dim 2 accessed with indices of dim 1
  the number of indices must be 2
"""),
    "a header with a comment": (S, """\
import quadrants as qd
@qd.kernel
def k(n: qd.i32):
    for i in range(1, 2, 3):  # step: 3
        pass
""", """\
File "PATH", line 4, in k:
    for i in range(1, 2, 3):  # step: 3
    ^^^^^^^^^^^^^^^^^^^^^^^^
Range should have 1 or 2 arguments, found 3
  loop over range(n) and compute begin + i * step inside
"""),
    "a misspelt name": (qd.QuadrantsNameError, """\
import quadrants as qd
heights = qd.field(qd.f32, 2)
@qd.kernel
def k(n: qd.i32):
    hieghts[n] = 1
""", """\
File "PATH", line 5, in k:
    hieghts[n] = 1
    ^^^^^^^
Name "hieghts" is not defined
  did you mean 'heights'?
"""),
    "a name of a branch": (qd.QuadrantsNameError, """\
import quadrants as qd
@qd.kernel
def k(n: qd.i32) -> qd.i32:
    if n > 1:
        x = 1
    return x
""", """\
File "PATH", line 6, in k:
    return x
           ^
Name "x" is not defined
  a name made in a branch or a loop ends with it; give it a value in front of that
"""),
    "a misspelt function of the package": (C, """\
import quadrants as qd
@qd.kernel
def k(n: qd.f32) -> qd.f32:
    return qd.sinn(n)
""", """\
File "PATH", line 4, in k:
    return qd.sinn(n)
           ^^^^^^^
AttributeError: module 'quadrants' has no attribute 'sinn'
  did you mean 'sin'?
"""),
    "an undefined callee": (qd.QuadrantsNameError, """\
import quadrants as qd
@qd.kernel
def k(n: qd.f32):
    undefined_function(n)
""", """\
File "PATH", line 4, in k:
    undefined_function(n)
    ^^^^^^^^^^^^^^^^^^
Name "undefined_function" is not defined
"""),
}  # fmt: skip


@pytest.mark.oracle_differs("the established package words frames and hints otherwise")
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(backend, tmp_path, name):
    cls, source, expect = LAYOUTS[name]
    path = tmp_path / "layout.py"
    module = load(path, source, prefix="")
    with pytest.raises(cls) as e:
        module.k(1)
    head = "\nquadrants stack trace:\n===\n\nYour code:\n"
    assert str(e.value) == head + expect.replace("PATH", str(path))


def test_uncaught_errors_print_themselves_only(backend, tmp_path, capfd):
    """The interpreter's own printer shows no cause and no context."""
    module = load(tmp_path / "uncaught.py", LAYOUTS["an undefined callee"][1], prefix="")
    with pytest.raises(qd.QuadrantsNameError) as e:
        module.k(1)
    capfd.readouterr()
    sys.__excepthook__(e.type, e.value, None)
    sys.stderr.flush()
    text = capfd.readouterr().err
    assert 'Name "undefined_function" is not defined' in text
    assert "print_exception" not in text and "direct cause" not in text


def test_ir_of_a_kernel_as_text(backend, tmp_path, established):
    """`core._lower_to_text` places fields, and an error of the kernel is the kernel's."""
    if established:
        pytest.skip("a tool of this implementation")
    from quadrants._lib import core

    source = """
@qd.kernel
def k(n: qd.i32):
    for i in line:
        line[i] = n

@qd.kernel
def wrong(n: qd.i32):
    line[n, n] = 1
"""
    module = load(tmp_path / "shown.py", source)
    text = core._lower_to_text(module.k, 3)
    assert text.count("store ") == 1 and "for " in text
    with pytest.raises(I, match="Field with dim 1 accessed with indices of dim 2"):
        core._lower_to_text(module.wrong, 3)
