"""Errors that the chapters quote, chapter by chapter, with and without `debug`.

A row is a class, the quoted text ("…" stands for anything) and a program whose `run` makes the
mistake. Other files hold the errors that belong to what they test; `test_frontend_errors.py` the
front end's.
"""

import dataclasses
from typing import Any

import pytest

import quadrants as qd
from helpers import module_at

S, T = qd.QuadrantsSyntaxError, qd.QuadrantsTypeError
I, C = qd.lang.exception.QuadrantsIndexError, qd.QuadrantsCompilationError
R, RT, A = qd.QuadrantsRuntimeError, qd.QuadrantsRuntimeTypeError, qd.QuadrantsAssertionError

HEAD = """\
import numpy as np
import quadrants as qd

vec2, vec3 = qd.types.vector(2, qd.f32), qd.types.vector(3, qd.f32)
Line = qd.types.ndarray(dtype=qd.f32, ndim=1)
line = qd.field(qd.f32, 4)
plane = qd.field(qd.i32, (4, 4))

@qd.func
def needs3(v: vec3):
    return v

@qd.dataclass
class Ball:
    centre: vec3
    radius: qd.f32
"""
PLACES = """
wide = qd.field(qd.i64, ())
wide2 = qd.types.vector(2, qd.i64)
Wide = qd.types.struct(x=qd.i64)

"""


def body(statements, head="k()"):
    """A kernel of these statements, as a program."""
    lines = "".join(f"    {line}\n" for line in statements.split("\n"))
    return f"@qd.kernel\ndef {head}:\n{lines}run = k\n"


def call(head, arguments, statements="pass"):
    """A kernel that is called with these arguments, as a program."""
    return body(statements, head) + f"def run():\n    k({arguments})\n"


def host(statements):
    """Ordinary Python, as a program."""
    return "def run():\n" + "".join(f"    {line}\n" for line in statements.split("\n"))


LANGUAGE = [
    # results: structs of other members, whichever function returns them
    *((C, "Return (type=…) cannot be converted into required type <qd.StructType a=i32, b=f32",
       f"A = qd.types.struct(a=qd.i32, b=qd.f32)\nB = qd.types.struct({members})\n" + function
       + "\n" + body(statement, "k() -> " + result))
      for members in ("a=qd.f32, b=qd.i32", "a=qd.i32, b=qd.i32", "a=qd.i32, c=qd.f32",
                      "b=qd.f32, a=qd.i32", "a=qd.i32, b=qd.f32, c=qd.i32", "a=qd.i32",
                      "a=qd.i64, b=qd.f32", "a=qd.i32, b=qd.types.vector(1, qd.f32)",
                      "a=qd.i32, b=qd.types.struct(c=qd.f32)")
      for function, statement, result in (
          ("", "return B()", "A"),
          ("", "return 1, B()", "(qd.i32, A)"),
          ("@qd.real_func\ndef f() -> A:\n    return B()", "return f().a", "qd.i32"))),
    (C, "Return (type=…) cannot be converted into required type",
     "A = qd.types.struct(a=qd.types.struct(b=qd.i32))\n"
     + body("return qd.Struct(a=qd.Struct(b=1.5))", "k() -> A")),
    # arrays that no argument leads to
    *((T, "TypeError when calling `f`: Expected ndarray in the kernel argument for argument a, got",
       f"{made}\n@qd.real_func\ndef f(b: qd.i32, a: qd.types.ndarray()) -> qd.i32:\n"
       f"    return 1\n" + body(f"return f({given})", "k() -> qd.i32"))
      for made in ("x = qd.ndarray(qd.i32, 4)", "x = qd.tensor(qd.i32, (4,))")
      for given in ("1, x", "1, a=x", "a=x, b=1")),
    (T, "TypeError when calling `f`: Ndarray shouldn't be passed in via `qd.template()`, please",
     "x = qd.ndarray(qd.i32, 4)\n@qd.real_func\ndef f(a: qd.template()) -> qd.i32:\n"
     "    return a[0]\n" + body("return f(x)", "k() -> qd.i32")),
    *((T, "Expected ndarray in the kernel argument for argument a, got",
       f"x = {given}\n@qd.{kind}\ndef f(a: qd.types.ndarray()) -> qd.i32:\n    return 1\n"
       + body("return f(x)", "k() -> qd.i32"))
      for kind in ("func", "real_func") for given in ("3", "np.zeros(4)", "line", "[1, 2]")),
    *((C, "Ndarray <qd.ndarray> used in kernel scope but not registered as a kernel parameter",
       f"x = qd.ndarray(qd.i32, 4)\n@qd.{kind}\ndef f({parameter}) -> qd.i32:\n"
       f"    return {result}\n" + body(f"return f({given})", "k() -> qd.i32"))
      for kind, parameter, result, given in (
          ("func", "a: qd.template()", "a[0]", "x"), ("func", "a: qd.types.ndarray()", "a[0]", "x"),
          ("func", "", "x[0]", ""), ("real_func", "", "x[0]", ""),
          ("real_func", "a: qd.i32", "a", "x[0]"))),
    (IndexError, "Argument a has too few components for [Tensor (3) f32]",
     call("k(a: vec3)", "[1, 2]")),
    (RT, "cannot be converted into required type f32", call("k(a: vec3)", "3")),
    *((T, f"qd.{hint} takes", body(f"qd.{hint}({given})"))
      for hint in ("cache_read_only", "no_activate", "block_local") for given in ("3", "line, 'a'")),
    # what runs while tracing and is not there
    (C, "qd.stop_grad takes a field, got", body("qd.stop_grad(3)")),
    (S, "The format of a value must be known while compiling",
     body('n = 3\nprint(f"{1.5 + n:.{n}f}")')),
    (S, "(error code: KERNEL_ANNOTATION_ORDER)",
     host("import functools\n@functools.wraps(needs3)\ndef f(): pass\nqd.kernel(f)")),
    (S, "is expected to be a Matrix with ndim", body("needs3(qd.Matrix([[1.0, 2.0], [3.0, 4.0]]))")),
    (S, "A function with a return value must be annotated with a return type",
     "@qd.real_func\ndef f(x: qd.i32):\n    return x\n" + body("f(1)")),
    (S, "Please decorate class X with @qd.data_oriented",
     "class X:\n    @qd.kernel\n    def k(self): pass\n" + host("X().k()")),
    (S, "Invalid type annotation in `k`: ",
     host("ns = {'qd': qd}\nexec('@qd.kernel\\ndef k(a: \"qd.nope\"): pass', ns)")),
    (S, "Primary exception:", call("k(a: qd.i32)", "1, 2, b=3")),
    (RT, "Argument (0,) (type=<class 'float'>) cannot be converted into required type i32",
     call("k(a: qd.i32)", "1.5")),
    (RT, "cannot be converted into required type i32",
     call("k(a: qd.types.vector(2, qd.i32))", "[1.5, 2.5]")),
    *((RT, "cannot be converted into required type f32", call("k(a: vec2)", given))
      for given in ("[[1, 2], [3, 4]]", "np.eye(2)", "['a', 'b']", "'ab'", "[None, 1]")),
    (RT, "Argument <class …> cannot be converted into required type <qd.StructType centre=…, radius=f32",
     call("k(a: Ball)", "qd.Struct(a=1)")),
    (RT, "exception while trying to ensure compiled <function …k…>", call("k(a: Line)", "3")),
    (S, "A kernel with a return value must be annotated with a return type, e.g. def func() -> qd.f32",
     body("return 1")),
    (C, "Return (type=…) cannot be converted into required type",
     body("return qd.Vector([1, 2])", "k() -> qd.i32")),
    (S, '"In" is only supported inside `qd.static`.', call("k(a: qd.i32)", "1", "b = a in [1]")),
    (S, '"NotIn" is only supported inside `qd.static`.',
     call("k(a: qd.i32)", "1", "b = a not in [1]")),
    (S, "You are trying to `break` a static `for` loop, but the `break` statement is inside a "
     "non-static `if`.",
     call("k(a: qd.i32)", "1", "for i in qd.static(range(2)):\n    if a > i: break")),
    (S, "You are trying to `continue` a static `for` loop",
     call("k(a: qd.i32)", "1", "for i in qd.static(range(2)):\n    if a > i: continue")),
    (S, "Cannot unpack type: ", call("k(a: qd.i32)", "1", "b, c = a")),
    (T, "`if` conditions must be an integer; found f32. Consider using `if x != 0`",
     body("if line[0]: pass")),
    (T, "`if` conditions must be an integer; found f32", body("while line[0]: pass")),
    (T, "`assert` conditions must be an integer; found f32", body("assert line[0]")),
    (S, 'Please use "qd.select" instead.', body("a = 1 if plane[0, 0] + qd.Vector([1, 0]) else 2")),
    (C, "Input to qd.static must be compile-time constants or global pointers, instead of <class ",
     call("k(a: qd.i32)", "1", "if qd.static(a > 1): pass")),
    (C, "Using non static inlined if statement as for-loop iterable is not currently supported.",
     call("k(a: qd.i32)", "1", "for i in range(2) if a else range(3): pass")),
    (T, "Integer literal 4294967295 exceeded the range of default_ip: i32, please specify the dtype "
     "via e.g. `qd.u64(4294967295)` or set a different `default_ip`", body("a = 4294967295")),
    *((T, "Integer literal 4294967295 exceeded the range of default_ip: i32", PLACES + program)
      for program in (
          body("a: qd.u32 = 4294967295"),
          body("wide[None] = 4294967295"),
          body("wide[None] += 4294967295"),
          body("qd.atomic_add(wide[None], 4294967295)"),
          body("a = qd.cast(4294967295, qd.i64)"),
          body("a = qd.Vector([4294967295, 1], qd.i64)"),
          body("a = wide2(4294967295, 1)"),
          body("a = Wide(4294967295)"),
          body("a = Wide(1)\na.x = 4294967295"),
          body("a = 1.5\na *= 4294967295"),
          body("a = plane[4294967295, 0]"),
          body("return 4294967295", "k() -> qd.i64"))),
    (T, "exceeded the range of specified dtype: u16", body("a = qd.u16(65536)")),
    *((T, "Invalid constant scalar data type: <class ", body(f"print({thing})"))
      for thing in ("line", "needs3", "{'a': 1}", "None", "Ball(1.0, 2.0)")),
    *((C, "AssertionError: " + name + " cannot be called in Quadrants-scope", body(program))
      for name, program in (
          ("to_numpy", "a = line.to_numpy()"),
          ("from_numpy", "line.from_numpy(np.zeros(4, np.float32))"),
          ("copy_from", "line.copy_from(line)"),
          ("field", "a = qd.field(qd.i32, 3)"),
          ("field", "a = qd.Vector.field(2, qd.i32, 3)"),
          ("ndarray", "a = qd.ndarray(qd.i32, 3)"))),
    (S, "Expected 0 positional argument(s), but received 1 instead", body("print('{k}'.format(1))")),
    (S, "", body("print('{0[1]}'.format(1))")),
    (S, "", body("print('{0.x}'.format(1))")),
    (C, 'IndexError: Number of struct-for indices does not match loop variable dimensionality (1 != 2). '
     'Maybe you wanted to use "for I in qd.grouped(x)" to group all indices into a single vector I?',
     body("for i in plane: pass")),
    (C, "dimensionality (1 != 0)", body("for i in qd.root: pass")),
    (T, "takes integral inputs only", "v = qd.Vector([1.0, 2.0])\n" + body("a = not v")),
    (T, "Only 0-dimensional numpy array can be used to initialize a scalar expression",
     "ones = np.ones(3)\n" + body("a = ones")),
    (S, "cannot decorate an expression with a compound type.", body("a = qd.f32(qd.Vector([1, 2]))")),
    (S, "A primitive type can only decorate a single expression.", body("a = qd.f32(1.0, 2.0)")),
    (S, "Ndrange for loop with number of the loop variables not equal to the dimension of the ndrange",
     body("for i in qd.ndrange(2, 3): pass")),
    (C, "Number of struct-for indices does not match loop variable dimensionality (1 != 2).",
     body("for i in plane: pass")),
    (C, "Cannot loop over the object <class 'list'> in Quadrants scope.",
     body("for i in [1, 2]: pass")),
    (S, "Variable 'i' is already declared in the outer scope and cannot be used as loop variable",
     body("i = 1\nfor i in range(3): pass")),
    (S, "Group for should have 1 loop target, found 2", body("for i, j in qd.grouped(plane): pass")),
    (T, "'.2d' doesn't match 'f32'.", body("print(f'{line[0]:.2d}')")),
    (T, "doesn't match 'u32'.", body("print(f'{qd.u32(1) + 1:d}')")),
    (OSError, "Cannot find source code for Object: ",
     host("ns = {'qd': qd}\nexec('@qd.kernel\\ndef k(): pass', ns)\nns['k']()")),
    (S, "Kernels cannot call other kernels", "@qd.kernel\ndef inner(): pass\n" + body("inner()")),
    (S, "checkpoints", host("@qd.kernel(checkpoints=True)\ndef k(): pass")),
    (T, "Static assert with non-static condition",
     call("k(a: qd.i32)", "1", "qd.static_assert(a > 1)")),
    (S, "Static assign cannot have type overloading", body("a: qd.i32 = 1\na: qd.f32 = 2")),
    (R, "Negative exponent in pow(int, int) is not allowed.",
     call("k(a: qd.i32)", "1", "b = a ** -1")),
    (C, "Quadrants does not support variables in slice now",
     call("k(a: qd.i32)", "1", "b = qd.Vector([1, 2, 3])[0:a]")),
]  # fmt: skip

DATA = [
    # what is no dtype
    *((C, "Invalid data type " + shown, body(f"x = {called.format(given)}"))
      for given, shown in (("'f32'", "f32"), ("3", "3"), ("np.float32", "<class 'numpy.float32'>"))
      for called in ("qd.cast(1, {})", "qd.bit_cast(1, {})", "qd.random({})", "qd.floor(1.5, {})",
                     "qd.Vector([1, 2], {})", "qd.Vector([1, 2]).cast({})", "qd.Matrix.zero({}, 2)",
                     "qd.Matrix.identity({}, 2)", "qd.Vector.unit(2, 0, {})")),
    *((C, "Invalid data type " + given, body(f"x: {given} = 1")) for given in ("3", "None")),
    *((TypeError, "an element type such as qd.f32 is expected", host(f"qd.types.is_{kind}({given})"))
      for kind in ("signed", "integral", "real", "tensor") for given in ("3", "vec3", "float")),
    (TypeError, "", host("qd.is_extension_enabled('sparse')")),
    # gradients without storage
    *((C, f"RuntimeError: Gradient .{which} has not been placed, check whether `needs_grad=True`",
       f"x = {made}\n" + body(statement.format(which)))
      for which in ("grad", "dual")
      for made in ("qd.field(qd.f32, 4)", "qd.Vector.field(2, qd.f32, 4)")
      for statement in ("x.{}[0] = 1", "y = x.{}[0]", "for i in x.{}: pass",
                        "for I in qd.grouped(x.{}): pass", "x.{}[0] += 1")),
    *((R, "i32 is not supported for field with `needs_grad=True` or `needs_dual=True`.",
       host(f"{made}(shape=4, {which}=True)"))
      for which in ("needs_grad", "needs_dual")
      for made in ("qd.types.vector(2, qd.i32).field", "qd.types.struct(a=qd.f32, b=qd.i32).field",
                   "qd.types.struct(a=qd.types.struct(b=qd.types.vector(2, qd.i32))).field")),
    *((C, "IndexError: Number of struct-for indices does not match loop variable dimensionality",
       f"x = {made}\n" + body(f"for i, j in {over}: pass"))
      for made in ("qd.field(qd.i32, 4)", "qd.Vector.field(2, qd.i32, 4)",
                   "qd.types.struct(a=qd.i32).field(shape=4)")
      for over in ("x",)),
    (S, "Invalid axis x", host("qd.field(qd.f32, (2, 3), order='ix')")),
    (S, "The dimensionality of shape and order must be the same",
     host("qd.field(qd.f32, (2, 3), order='i')")),
    (S, "The axes in order must be different", host("qd.field(qd.f32, (2, 3), order='ii')")),
    (S, "shape cannot be None when offset is set", host("qd.field(qd.f32, offset=(1,))")),
    (R, "i32 is not supported for field with `needs_grad=True` or `needs_dual=True`.",
     host("qd.field(qd.i32, 3, needs_grad=True)")),
    (RuntimeError, "Too many dimensions. The maximum dimensionality is 12",
     host("qd.field(qd.f32, (1,) * 13)")),
    (RuntimeError, "These field(s) are not placed:",
     "x = qd.field(qd.f32)\n" + body("x[0] = 1") + "run2 = run\n"
     "def run():\n    try:\n        run2()\n    finally:\n        qd.root.place(x)\n"),
    (R, "Member fields of a matrix field must have the same compute type",
     host("qd.Vector.field(2, [qd.f32, qd.i32], 3)")),
    (R, "Field builder … is not finalized",
     "fb = qd.FieldsBuilder()\nfb.dense(qd.i, 3).place(qd.field(qd.f32))\n" + body("line[0] = 1")
     + "run2 = run\ndef run():\n    try:\n        run2()\n    finally:\n        fb.finalize()\n"),
    (R, "FieldsBuilder finalized",
     host("fb = qd.FieldsBuilder()\nfb.dense(qd.i, 3).place(qd.field(qd.f32))\nfb.finalize()\n"
          "fb.dense(qd.i, 3)")),
    (RuntimeError, "This variable has been placed.",
     host("x = qd.field(qd.f32)\nqd.root.place(x)\nqd.root.place(x)")),
    (TypeError, "Detected illegal element of type: <class 'slice'>. Please be aware that slicing a "
     "qd.field is not supported so far.", host("line[0:2]")),
    (AssertionError, "Slicing is not supported on qd.field", host("plane[0]")),
    (I, "2d ndarray indexed with 1d indices", host("qd.ndarray(qd.f32, (2, 3))[0]")),
    (ValueError, "required element type: VectorType[2, i32], but … is provided",
     call("k(a: qd.types.ndarray(dtype=qd.types.vector(2, qd.i32), ndim=1))",
          "qd.Vector.ndarray(3, qd.i32, 4)")),
    (ValueError, "required ndim=1, but 2d ndarray with shape (2, 3) is provided",
     call("k(a: Line)", "qd.ndarray(qd.f32, (2, 3))")),
    (TypeError, "Expect element type f32 for argument a, but get i32",
     call("k(a: Line)", "qd.ndarray(qd.i32, 3)")),
    (ValueError, "Invalid value for argument a - required array has dtype=f32, array with dtype=f64 "
     "is provided", call("k(a: Line)", "np.zeros(3)")),
    (ValueError, "Non contiguous numpy arrays are not supported",
     call("k(a: Line)", "np.zeros(6, np.float32)[::2]")),
    (R, "Do not exceed 512",
     call("k(" + ", ".join(f"a{n}: qd.i32" for n in range(513)) + ")", "*range(513)",
          "x = " + " + ".join(f"a{n}" for n in range(513)))),
    (C, "", call("k(a: Line)", "np.zeros(3, np.float32)", "b = a.grad[0]")),
    (ValueError, "not 1048576; give more axes", host("qd.Vector.field(2**20, qd.f32, 3)")),
    (ValueError, "components, not 0", host("qd.Vector.ndarray(0, qd.f32, 3)")),
    (ValueError, "components, not 300 x 300", host("qd.types.matrix(300, 300, qd.f32)")),
    (T, "at most 65535 components", body("m = qd.Matrix.zero(qd.f32, 300, 300)")),
    (T, "at most 65535 components", body("m = qd.Vector.zero(qd.f32, 1000000)")),
    (RuntimeError, "emory", host("qd.field(qd.f64, (2**31 - 1, 2**20))[0, 0]")),
    (RuntimeError, "emory", host("qd.ndarray(qd.f64, (2**31 - 1, 2**31 - 1))")),
    (TypeError, "1.5", host("qd.field(qd.f32, 1.5)")),
]  # fmt: skip

MATH = [
    (AssertionError, "cannot be called in Python-scope", host("qd.Matrix.zero(qd.f32, 2)")),
    (AssertionError, "bit_shr cannot be called in Python-scope", host("qd.bit_shr(1, 1)")),
    (C, "only dimension < 4 is supported, got shape",
     body("a = qd.Vector([1, 2, 3, 4]).cross(qd.Vector([1, 2, 3, 4]))")),
    (C, "only dimension < 5 is supported", body("a = qd.Matrix.identity(qd.f32, 5).determinant()")),
    (C, "only dimension < 13", body("a = qd.Matrix.identity(qd.f32, 13).inverse()")),
    (C, "expected a square matrix, got shape (3, 2)",
     body("a = qd.Matrix([[1, 2], [3, 4], [5, 6]]).trace()")),
    (C, "a.outer_product(b)", body("a = qd.Vector([1, 2]).transpose()")),
    (C, "Return matrix ndim mismatch",
     body("return qd.Matrix([[1.0, 2.0], [3.0, 4.0]])", "k() -> vec2")),
    (S, "expected to be a Matrix with n 3, but got 4", body("needs3(qd.Vector([1, 2, 3, 4]))")),
    (C, "SVD only supports 2×2 and 3×3 matrices.",
     body("U, S, V = qd.svd(qd.Matrix.identity(qd.f32, 4))")),
    (C, "Polar decomposition only supports", body("U, P = qd.polar_decompose(qd.Matrix.identity(qd.f32, 4))")),
    (C, "Eigen solver only supports 2×2 matrices.", body("a, b = qd.eig(qd.Matrix.identity(qd.f32, 3))")),
    (C, "up to 6×6.", body("a, b = qd.sym_eig(qd.Matrix.identity(qd.f32, 7))")),
    (C, "Only square matrix is supported",
     body("a = qd.solve(qd.Matrix([[1.0, 2.0]]), qd.Vector([1.0, 2.0]))")),
    (C, "Only 2×2 and 3×3", body("a = qd.solve(qd.Matrix.identity(qd.f32, 4), qd.Vector([1.0] * 4))")),
    (S, "need to be created with an initial value", body("a = vec3()")),
    (I, "Expected 2 indices, got 1", body("a = qd.Matrix([[1, 2], [3, 4]])[0]")),
    (R, "value len does not match the swizzle pattern=xy", host("qd.Vector([1, 2]).xy = [1, 2, 3]")),
    (T, "cannot assign", body("v = qd.Vector([1, 2])\nv.xy = [1, 2, 3]")),
]  # fmt: skip

INIT = [
    (KeyError, "one_such…other", host("qd.init(one_such=1, other=2)")),
    (KeyError, "default_ip", host("qd.init(default_up=qd.u32)")),
    (TypeError, "debug", host("qd.init(debug=1)")),
    (TypeError, "opt_level", host("qd.init(opt_level=2.0)")),
    (AssertionError, "", host("qd.init(default_fp=qd.i32)")),
    (RuntimeError, "Arch=…is not supported", host("qd.init(arch=qd.arm64, enable_fallback=False)")),
    (Exception, "version mismatch. Required version >= …, installed version =",
     host("qd.init(require_version='99.1')")),
    (Exception, "major.minor.patch", host("qd.init(require_version='no')")),
    (RuntimeError, "critical", host("qd.set_logging_level('loud')")),
    (R, "_prog attribute not initialized. Maybe you forgot to call `qd.init()` first?",
     host("qd.reset()\nqd.ndarray(qd.f32, 3)")),
    (ValueError, "", host("import os\nos.environ['QD_DEBUG'] = 'yes'\n"
                          "try: qd.init()\nfinally: del os.environ['QD_DEBUG']")),
    (AttributeError, "module 'quadrants' has no attribute", host("qd.no_such_name")),
]  # fmt: skip


def error_of(path, source):
    """What `run` of this program raises."""
    path.write_text(HEAD + source)
    module = module_at(path)
    try:
        module.run()
    except Exception as e:
        return e
    return None


def holds(text, quoted):
    """Whether the parts of the quotation stand in the text in their order."""
    at = 0
    for part in quoted.split("…"):
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


@pytest.mark.oracle_differs(
    "the established package crashes, or words some of them otherwise", run=False
)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("chapter", [LANGUAGE, DATA, MATH, INIT], ids=["10", "20", "30", "50"])
def test_quoted(backend, tmp_path, chapter, debug):
    wrong = []
    for n, (cls, quoted, source) in enumerate(chapter):
        if n == 0 or chapter is INIT:
            backend.init(debug=debug)
        e = error_of(tmp_path / f"row{n}.py", source)
        if not isinstance(e, cls) or not holds(str(e), quoted):
            wrong.append(f"{quoted!r} {source!r}: {type(e).__name__} {str(e)[-400:]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("annotation", [str, list, object, None, Any, complex, print, 0])
def test_members_of_dataclasses_have_types_of_arguments(backend, annotation):
    """Whether the kernel reads them or not."""

    @dataclasses.dataclass
    class D:
        a: qd.i32
        n: annotation

    @qd.kernel
    def k(d: D) -> qd.i32:
        return d.a

    with pytest.raises(qd.QuadrantsCompilationError, match="Invalid data type .*member n of data"):
        k(D(3, 4))


@pytest.mark.parametrize(
    "value", [object(), dataclasses, int, b"a", 1j, slice(3), ..., "a", {"a": 1}, {1}]
)
def test_what_is_no_constant_is_not_static(backend, value):
    @qd.kernel
    def k():
        x = qd.static(value)  # noqa: F841

    with pytest.raises(qd.QuadrantsCompilationError, match="Input to qd.static must be compile-ti"):
        k()


def test_nested_targets_are_refused(backend):
    @qd.kernel
    def k():
        (a, (b, c)) = 1, (2, 3)  # noqa: F841

    with pytest.raises(qd.QuadrantsSyntaxError, match="Nested assignment targets"):
        k()


@pytest.mark.oracle_differs("is not checked there")
def test_views_stay_within_their_arrays(backend):
    x = qd.ndarray(qd.f32, 10)
    v = qd.BufferView(x, 2, 3)

    @qd.kernel
    def k(v: qd.BufferView[qd.f32]):
        for i in range(v.size):
            v[i] = i + 1

    for name, value in (("offset", 10**9), ("offset", -1), ("offset", 8), ("size", 9)):
        with pytest.raises(ValueError, match="BufferView out of range"):
            setattr(v, name, value)
    k(v)
    v.offset, v.size = 6, 4
    assert v.shape == (4,)
    k(v)
    assert x.to_numpy().tolist() == [0, 0, 1, 2, 3, 0, 1, 2, 3, 4]
