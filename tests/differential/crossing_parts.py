"""What `crossing.py` crosses: sources of a value, uses of it, and places in a kernel.

A part is a few lines of text. A source says how a value of dtype `t` is written (`{I}` is the place's
index) and what that needs: parameters of the kernel, lines before the use or at the kernel's start,
funcs. A use turns the value's text into statements, a place puts statements somewhere. Values are
small and positive, so that any of them may be an index or a bound and float sums are exact in any
order. Within a parallel loop only `{O}`, unique to the iteration, is stored to; shared cells are
updated atomically.
"""

from dataclasses import dataclass, field

from dtypes import FLOATS, INTS

N = 12  # cells of sources; places' indices stay below


@dataclass
class Param:
    """A parameter of a kernel and how funcs take it."""

    name: str
    kernel: str
    func: str = ""
    real: str | None = None  # None: real_funcs cannot take it


ARRAY = "qd.types.ndarray()"
TEMPLATE = "qd.template()"
CLAMPED = 'qd.types.ndarray(boundary="clamp")'


def annotated(name, note):
    return f"{name}: {note}" if note else name


@dataclass
class Source:
    name: str
    expr: str
    near: list = field(default_factory=list)
    top: list = field(default_factory=list)
    params: list = field(default_factory=list)
    helpers: list = field(default_factory=list)
    static: str = ""  # the compile-time number, where it is one
    writable: bool = False
    passed: Param | None = None  # a kernel-level local that funcs are given


def array(name):
    return Param(name, ARRAY, ARRAY, ARRAY)


def number(t, text):
    """A Python number as a value of `t`: a bare name where its default type is `t`."""
    return text if t in ("i32", "f32", "u1") else f"qd.cast({text}, qd.{t})"


def literal(t):
    if t == "u1":
        return "True"
    text = "2.5" if t in FLOATS else "3"
    return text if t in ("i32", "f32") else f"qd.{t}({text})"


# Kinds of parts: what the compiler should treat alike. A sample covers pairs of kinds and every part.
SOURCE_KINDS = {
    "constant": [
        "constant",
        "captured",
        "captured enum",
        "captured vector",
        "template number",
        "object's number",
    ],
    "argument": [
        "argument",
        "vector argument",
        "struct argument",
        "array shape",
        "dataclass number",
    ],
    "invariant": ["0-D field", "fixed field element", "0-D array", "template field"],
    "element": [
        "field element",
        "array element",
        "object's field",
        "object's array",
        "dataclass array",
    ],
    "layout": [
        "three-dimensional array",
        "clamped array",
        "buffer view",
        "tensor with layout",
        "blocked field",
        "field of blocks",
        "permuted field",
        "field with offset",
        "separate components",
        "nested struct member",
    ],
    "component": ["struct member", "vector component", "matrix component"],
    "local": ["local", "local struct's member", "run-time component", "atomic's old value"],
    "kernel-level local": ["kernel-level local"],
    "index": ["loop index"],
    "result": ["func result", "real_func result"],
}
PLACE_KINDS = {
    "top": ["top", "branch at top", "else at top", "while at top", "static loop at top"],
    "func at top": ["func at top", "real_func at top"],
    "loop": ["parallel loop", "loop with run-time bounds", "loop bounded by a field", "second loop", "kernel of object", "serialized loop"],
    "branch": ["branch", "else", "branch in branch", "static branch", "after continue"],
    "inner": ["inner loop", "outer index in inner loop", "while in loop", "ndrange in loop", "static loop in loop"],
    "left": ["after continue in inner loop", "after break", "after break of while"],
    "func": ["func in loop", "func in loop, local passed", "func in inner loop", "func of func", "func of object"],
    "real_func": ["real_func in loop"],
    "elements": ["loop over field", "loop over array", "ndrange", "ndrange in another order", "grouped ndrange", "grouped field"],
}  # fmt: skip


def use_kind(use):
    """Reductions by where they go, other uses as they are listed, sixteen to a kind."""
    if " into " in use.name:
        return use.name.partition(" into ")[2]
    rest = [name for name in uses() if " into " not in name]
    return f"use {rest.index(use.name) // 16}"


def sources(t):
    T, cast = f"qd.{t}", number
    o = Param("o", TEMPLATE, TEMPLATE, TEMPLATE)
    d = Param("d", "D", "D")
    out = [
        Source("constant", literal(t), static={"u1": "True"}.get(t, "3" if t not in FLOATS else "")),
        Source("captured", cast(t, "G"), static="G" if t not in FLOATS else ""),
        Source("captured enum", "E.two" if t == "i32" else f"qd.cast(E.two, {T})", static="E.two"),
        Source("captured vector", cast(t, "GV[1]") if t != "u1" else "qd.cast(GV[1], qd.u1)"),
        Source("argument", "s", params=[Param("s", T, "", T)]),
        Source("vector argument", "va[1]", params=[Param("va", f"qd.types.vector(3, {T})", "", f"qd.types.vector(3, {T})")]),
        Source("struct argument", "sa.a", params=[Param("sa", "S", "", "S")]),
        Source("0-D field", "z[None]"),
        Source("field element", "x[{I}]"),
        Source("fixed field element", "x[2]"),
        Source("array element", "a[{I}]", params=[array("a")]),
        Source("0-D array", "a0[None]", params=[array("a0")]),
        Source("array shape", f"qd.cast(b.shape[0], {T})" if t != "i32" else "b.shape[0]", params=[array("b")]),
        Source("struct member", "ss[{I}].a"),
        Source("local struct's member", "ls.a", near=["ls = ss[{I}]"], writable=True),
        Source("vector component", "vs[{I}][1]"),
        Source("matrix component", "ms[{I}][1, 0]"),
        Source("run-time component", "lv[({I}) % 3]", near=["lv = vs[{I}]"], writable=True),
        Source("local", "lo", near=["lo = z[None]", "lo = lo + x[{I}]"], writable=True),
        Source("kernel-level local", "tl", top=["tl = x[3]", "tl += z[None]"], passed=Param("tl", "", "", T)),
        Source("loop index", f"qd.cast({{I}}, {T})" if t != "i32" else "{I}"),
        Source("func result", "fr({I})", helpers=["@qd.func", "def fr(k):", "    return x[k]"]),
        Source("real_func result", "rr({I})", helpers=["@qd.real_func", f"def rr(k: qd.i32) -> {T}:", "    if k > 2:", "        return x[k]", "    return z[None]"]),
        Source("template number", cast(t, "tn"), params=[Param("tn", TEMPLATE, TEMPLATE, TEMPLATE)], static="tn" if t not in FLOATS else ""),
        Source("template field", "tf[None]", params=[Param("tf", TEMPLATE, TEMPLATE, TEMPLATE)]),
        Source("object's number", cast(t, "{o}.k"), params=[o], static="{o}.k" if t not in FLOATS else ""),
        Source("object's field", "{o}.f[{I}]", params=[o]),
        Source("object's array", "{o}.nd[{I}]", params=[o]),
        Source("dataclass number", "d.k", params=[d]),
        Source("dataclass array", "d.arr[{I}]", params=[d]),
        Source("clamped array", "ac[({I}) + 20]", params=[Param("ac", CLAMPED, CLAMPED, CLAMPED)]),
        Source("three-dimensional array", "a3[1, ({I}) % 2, 1]", params=[array("a3")]),
        Source("buffer view", "bv[{I}]", params=[Param("bv", "qd.BufferView", "qd.BufferView")]),
        Source("tensor with layout", "tt[({I}) % 3, 1]", params=[Param("tt", "qd.Tensor", "qd.Tensor")]),
        Source("blocked field", "xb[{I}]"),
        Source("field of blocks", "xbb[({I}) % 4, 1]"),
        Source("permuted field", "xp[({I}) % 3, 1]"),
        Source("field with offset", "xo[({I}) - 4]"),
        Source("separate components", "vsoa[{I}][2]"),
        Source("nested struct member", "sn[{I}].s.a"),
        Source("atomic's old value", "old", near=["old = qd.atomic_max(most[{O}], x[2])"], writable=True),
    ]  # fmt: skip
    return {s.name: s for s in out}


# --- uses ------------------------------------------------------------------------------------------

INTEGRAL = [*INTS, "u1"]
EVERY = [*INTS, "u1", *FLOATS]
NUMERIC = [*INTS, *FLOATS]


class Use:
    """`lines(v, c)`: statements. `v.e` is the value's text, `v.i` the same as an integer, `v.c` as a condition."""

    def __init__(self, name, lines, types=EVERY, helpers=(), static=False, needs=""):
        self.name, self.types, self.static, self.needs = name, types, static, needs
        self.lines = (
            lines if callable(lines) else (lambda v, c: [text.format(v=v, c=c) for text in lines])
        )
        self.helpers = helpers


def reductions():
    cells = {
        "0-D field": "acc[None]", "shared element": "el[0]", "array element": "out[0]", "local": "loc",
        "own element": "own[{c.o}]", "struct member": "so[0].a", "component": "vo[0][1]",
    }  # fmt: skip
    plain = {"add": "+=", "sub": "-=", "and": "&=", "or": "|=", "xor": "^="}
    out = []
    for op in ("add", "sub", "min", "max", "and", "or", "xor"):
        for cell, text in cells.items():
            if op not in ("add", "min") and cell in ("struct member", "component", "own element"):
                continue
            # A parallel loop's plain local: only += and its kin are reductions there, min by the call.
            line = (
                f"{text} {plain[op]} {{v.e}}" if op in plain else f"qd.atomic_{op}({text}, {{v.e}})"
            )
            types = EVERY if op in ("add", "sub", "min", "max") else INTEGRAL
            out.append(
                Use(f"{op} into {cell}", [line], types, needs="local" if cell == "local" else "")
            )
    return out


def uses():
    U = Use
    out = reductions() + [
        U("multiply own element", ["own[{c.o}] *= {v.e}"], NUMERIC),
        U("product of two", ["acc[None] += {v.e} * x[{c.i}]"], NUMERIC),
        U("store element", ["own[{c.o}] = {v.e}"]),
        U("store array element", ["out[{c.o}] = {v.e}"]),
        U("store component", ["vo[{c.o}][1] = {v.e}"]),
        U("store struct member", ["so[{c.o}].a = {v.e}"]),
        U("store local", ["p = {v.e}", "p = {v.e}", "own[{c.o}] = p"]),
        U("store narrow", ["num[{c.o}] = {v.e}", "wide[{c.o}] = {v.e}"]),
        U("augmented divisions", ["own[{c.o}] //= {v.e} + 1", "own[{c.o}] %= {v.e} + 1"], NUMERIC),
        U("augmented quotient", ["own[{c.o}] /= {v.e} + 1"], NUMERIC),
        U("augmented power", ["own[{c.o}] **= {v.i}"], NUMERIC),
        U("augmented shifts", ["own[{c.o}] <<= {v.e}", "own[{c.o}] >>= {v.e} + 1"], INTS),
        U("index of load", ["own[{c.o}] = x[{v.i}]"]),
        U("index of update", ["num[{v.i}] += 1"]),
        U("index of vector", ["w6 = qd.Vector([1, 2, 3, 4, 5, 6, 7, 8])", "num[{c.o}] = w6[{v.i}]", "w6[{v.i}] = 9", "num[{c.o}] += w6[3]"]),
        U("index of matrix", ["num[{c.o}] += qd.Matrix([[1, 2], [3, 4]])[{v.i} % 2, 1]"]),
        U("nested index", ["own[{c.o}] = x[perm[{v.i}]]", "num[perm[perm[{v.i}]]] += 1"]),
        U("index and value", ["el[{v.i}] += {v.e}"]),
        U("loop bound", ["for q in range({v.i}):", "    num[{c.o}] += q + 1"]),
        U("loop begin", ["for q in range({v.i}, 7):", "    num[{c.o}] += q"]),
        U("loop bound and reduction", ["for q in range({v.i}):", "    acc[None] += {v.e}"]),
        U("bounds of ndrange", ["for q, r in qd.ndrange({v.i}, (1, {v.i})):", "    num[{c.o}] += q * 3 + r"]),
        U("bound from a shape", ["for q in range(out.shape[0] - {v.i}):", "    num[{c.o}] += q"]),
        U("condition of if", ["if {v.c}:", "    num[{c.o}] += 1", "elif {v.e} == 0:", "    num[{c.o}] += 5", "else:", "    num[{c.o}] += 2"]),
        U("condition and value", ["if {v.c}:", "    acc[None] += {v.e}", "else:", "    own[{c.o}] = {v.e}"]),
        U("condition of while", ["k9 = 0", "while k9 < {v.e}:", "    k9 += 1", "num[{c.o}] = k9"]),
        U("condition of expression", ["own[{c.o}] = {v.e} if {v.c} else own[{c.o}]"]),
        U("condition of select", ["own[{c.o}] = qd.select({v.e} > 2, {v.e}, own[{c.o}])"]),
        U("condition of assert", ["assert {v.e} >= 0", "num[{c.o}] = 1"]),
        U("not", ["num[{c.o}] = not {v.c}"]),
        U("and or", ["num[{c.o}] = {v.c} and 2", "num[{c.o}] += {v.c} or 4", "if {v.c} and x[{c.i}] > 1:", "    num[{c.o}] += 8"]),
        U("comparisons", ["num[{c.o}] = (1 < {v.e}) * 1 + ({v.e} <= 3) * 2 + ({v.e} == 2) * 4 + ({v.e} != 3) * 8"]),
        U("chain of comparisons", ["if 1 < {v.e} <= 3 < 5:", "    num[{c.o}] += 3"]),
        U("break", ["for q in range(0, 5):", "    if q >= {v.e}:", "        break", "    num[{c.o}] += 1"], needs="inner"),
        U("continue", ["for q in range(5):", "    if q >= {v.e}:", "        continue", "    num[{c.o}] += q"]),
        U("arithmetic", ["own[{c.o}] = {v.e} + {v.e} * {v.e} - {v.e}"]),
        U("division", ["wide[{c.o}] = {v.e} / 2 + {v.e} // 2 + {v.e} % 2"], NUMERIC),
        U("unary", ["wide[{c.o}] = -{v.e}", "own[{c.o}] = abs({v.e})"], NUMERIC),
        U("invert", ["own[{c.o}] = ~{v.e}"], INTS),
        U("bits", ["own[{c.o}] = ({v.e} & 2) | ({v.e} ^ 1)"], INTS),
        U("shift", ["own[{c.o}] = ({v.e} << 2) + ({v.e} >> 1) + (1 << {v.i})"], INTS),
        U("power", ["own[{c.o}] = {v.e} ** 2 + {v.e} ** {v.i}"], NUMERIC),
        U("minimum", ["own[{c.o}] = min({v.e}, 2) + max({v.e}, x[{c.i}], own[{c.o}])"]),
        U("rounding", ["own[{c.o}] = qd.floor({v.e}) + qd.ceil({v.e} + 0.5) + qd.round({v.e})"], FLOATS),
        U("square root", ["own[{c.o}] = qd.sqrt({v.e} * {v.e})"], FLOATS),
        U("conversions", ["num[{c.o}] = int({v.e}) + bool({v.e})", "wide[{c.o}] = float({v.e})"]),
        U("casts", lambda v, c: [line for t in EVERY for line in (f"wide[{c.o}] += qd.cast(qd.cast({v.e}, qd.{t}), qd.f64)",)]),
        U("bit cast", lambda v, c: [f"num[{c.o}] += qd.cast(qd.bit_cast({v.e}, qd.u{c.t[1:]}) >> 1, qd.i32)"], NUMERIC),
        U("argument of func", ["own[{c.o}] = fv({v.e})"], helpers=["@qd.func", "def fv(p):", "    p = p + p", "    return p"]),
        U("argument of annotated func", ["wide[{c.o}] = fa({v.e}, {v.e})"],
          helpers=["@qd.func", "def fa(p: qd.i32, q: qd.f64):", "    return p + q"]),
        U("argument by template", ["own[{c.o}] = ft({v.e})"], helpers=["@qd.func", "def ft(p: qd.template()):", "    return p + p"]),
        U("argument by reference", ["p = {v.e}", "fb(p, {v.e})", "own[{c.o}] = p"],
          helpers=["@qd.func", "def fb(p: qd.template(), by):", "    p += by"]),
        U("cell by reference", ["fc(own[{c.o}], {v.e})"], helpers=["@qd.func", "def fc(p: qd.template(), by):", "    p += by"]),
        U("argument of real_func", ["own[{c.o}] = fd({v.e})"],
          helpers=["@qd.real_func", "def fd(p: qd.{t}) -> qd.{t}:", "    if p > 2:", "        return p + p", "    return p"]),
        U("reference of real_func", ["p = {v.e}", "fe(p, {v.e})", "own[{c.o}] = p"],
          helpers=["@qd.real_func", "def fe(p: qd.ref(qd.{t}), by: qd.{t}):", "    p += by"]),
        U("depth of recursion", ["num[{c.o}] = fg({v.i})"],
          helpers=["@qd.real_func", "def fg(p: qd.i32) -> qd.i32:", "    if p <= 0:", "        return 1", "    return fg(p - 1) * 2"]),
        U("two results of func", ["p, q = fh({v.e})", "own[{c.o}] = p", "num[{c.o}] = q"],
          helpers=["@qd.func", "def fh(p):", "    return p + p, 7"]),
        U("method of struct", ["ps = S(a={v.e}, b=2)", "ps.grow({v.e})", "own[{c.o}] = ps.a"]),
        U("method of struct field", ["so[{c.o}].grow({v.e})"]),
        U("return", [], needs="return"),
        U("print", ["print({v.e}, 'of', {v.i})"], needs="print"),
        U("static if", ["if qd.static({v.s} > 1):", "    own[{c.o}] = {v.e}", "else:", "    num[{c.o}] = 4"], static=True),
        U("static loop", ["for q in qd.static(range({v.s})):", "    num[{c.o}] += q + 1"], static=True),
        U("vector constructor", ["w = qd.Vector([{v.e}, x[{c.i}], {v.e}])", "own[{c.o}] = w.sum() + w[1]"]),
        U("vector of dtype", ["w = qd.Vector([{v.e}, 1, {v.e}], dt=qd.f64)", "wide[{c.o}] = w.dot(w)"]),
        U("matrix constructor", ["mm = qd.Matrix([[{v.e}, x[{c.i}]], [x[{c.i}], {v.e}]])", "own[{c.o}] = (mm @ mm)[0, 1]"], NUMERIC),
        U("scale a vector", ["vo[{c.o}] = vs[{c.i}].xy * {v.e} + {v.e}"], NUMERIC),
        U("reduce vectors", ["va2[None] += qd.Vector([{v.e}, {v.e}])"]),
        U("struct constructor", ["so[{c.o}] = S(a={v.e}, b={v.i})"]),
        U("whole struct", ["ps = S(a={v.e}, b=1)", "so[{c.o}] = ps", "num[{c.o}] += so[{c.o}].b"]),
        U("list", ["li = [{v.e}, {v.e}]", "own[{c.o}] = li[0] + li[1]"]),
        U("swap", ["p, q = {v.e}, x[{c.i}]", "p, q = q, p", "own[{c.o}] = p", "out[{c.o}] = q"]),
        U("walrus", ["own[{c.o}] = (p := {v.e})", "out[{c.o}] = p"]),
        U("atomic's operand and old value", ["old2 = qd.atomic_add(own[{c.o}], {v.e})", "out[{c.o}] = old2"]),
        U("write the source", ["{v.e} += 1", "{v.e} = {v.e} + {v.e}", "own[{c.o}] = {v.e}"], NUMERIC, needs="writable"),
        U("local carried through a loop", ["p = {v.e}", "for q in range(0, 3):", "    p = p + {v.e}", "own[{c.o}] = p"], needs="inner"),
        U("local through branches", ["p = {v.e}", "if {v.e} > 2:", "    p = x[{c.i}]", "elif {v.e} > 1:", "    p += {v.e}", "own[{c.o}] = p"]),
        U("local from loops and branches", ["p = {v.e}", "k9 = 0", "while k9 < 4:", "    k9 += 1", "    if k9 == {v.e}:", "        continue", "    if k9 > {v.e} + 1:", "        break", "    p += {v.e}", "own[{c.o}] = p", "num[{c.o}] = k9"]),
    ]  # fmt: skip
    return {u.name: u for u in [*out, *rare_uses()]}


def rare_uses():
    """Constructs that no pass knows by name: each reaches lines that nothing above does."""
    U = Use
    return [
        U("truncated division", ["wide[{c.o}] = qd.raw_div({v.e}, 2) + qd.raw_mod({v.e}, 2)"], INTS),
        U("truncated quotient", ["wide[{c.o}] = qd.raw_div({v.e}, 2)"], FLOATS),
        U("reciprocal root", ["own[{c.o}] = qd.rsqrt({v.e} * {v.e})"], FLOATS),
        U("exchange", ["out[{c.o}] = qd.atomic_exchange(own[{c.o}], {v.e})"]),
        U("compare and swap", ["out[{c.o}] = qd.atomic_cas(own[{c.o}], x[{c.i}], {v.e})"], ["i32", "u32", "i64", "u64"]),
        U("swap of a local", ["p = {v.e}", "q = qd.atomic_exchange(p, x[{c.i}])", "own[{c.o}] = p + q"]),
        U("random", ["num[{c.o}] = (0 <= qd.random(qd.f32) < 1) and {v.c}", "num[{c.o}] += (qd.random(qd.f64) < 1) * 1 + (qd.randn(qd.f32) < 1e9) * 1"]),
        U("product of large matrices", ["m9 = qd.Matrix([[{v.e} for _ in range(9)] for _ in range(9)])", "own[{c.o}] = (m9 @ m9)[8, 0]"], NUMERIC),
        U("vector through real_func", ["w = fw(qd.Vector([{v.e}, x[{c.i}], {v.e}]))", "own[{c.o}] = w[0] + w[1]"],
          helpers=["@qd.real_func", "def fw(p: qd.types.vector(3, qd.{t})) -> qd.types.vector(3, qd.{t}):", "    if p[0] > 2:", "        return p + p", "    return p"]),
        U("struct through real_func", ["ps = fs(S(a={v.e}, b=2))", "own[{c.o}] = ps.a", "num[{c.o}] = ps.b"],
          helpers=["@qd.real_func", "def fs(p: S) -> S:", "    q = p", "    if p.a > 2:", "        q.b = 5", "    return q"]),
        U("two results of real_func", ["p, q = fq({v.e})", "own[{c.o}] = p", "num[{c.o}] = q"],
          helpers=["@qd.real_func", "def fq(p: qd.{t}) -> (qd.{t}, qd.i32):", "    if p > 2:", "        return p, 1", "    return p + p, 2"]),
        U("matrix through real_func", ["m4 = fm(qd.Matrix([[{v.e} for _ in range(4)] for _ in range(4)]))", "own[{c.o}] = m4[3, 1]"],
          helpers=["@qd.real_func", "def fm(p: qd.types.matrix(4, 4, qd.{t})) -> qd.types.matrix(4, 4, qd.{t}):", "    if p[0, 1] > 2:", "        return p + p", "    return p"]),
        U("compare and swap of a local", ["p = {v.e}", "q = qd.atomic_cas(p, x[{c.i}], {v.e})", "own[{c.o}] = p + q"], ["i32", "u32", "i64", "u64"]),
        U("long sum", ["p = {v.e}", "for q in range({v.i}, 44):", "    p += x[q % 12]", "own[{c.o}] = p"], NUMERIC, needs="inner"),
        U("long minimum", ["p = {v.e}", "for q in range({v.i}, 44):", "    p = min(p, x[q % 12])", "own[{c.o}] = p"], NUMERIC, needs="inner"),
        U("clock", ["num[{c.o}] = (qd.clock_counter() >= 0) and {v.c}"]),
        U("address", ["num[{c.o}] = qd.cast(qd.get_addr(x, [{v.i} + 1]) - qd.get_addr(x, [{v.i}]), qd.i32)"]),
        U("thread", ["num[{c.o}] = (qd.global_thread_idx() >= 0) and {v.c}"]),
        U("formats", lambda v, c: [f'print(f"<{{{v.e}}}> {{{v.i}:5d}}|", "{{1}} {{0}}".format({v.e}, "s"), sep="-", end="!\\n")'],
          ["i8", "i16", "i32", "i64"], needs="print"),
        U("formats of floats", lambda v, c: [f'print(f"{{{v.e}:.2f}} {{{v.e} = :8.3e}}", [{v.e}, 1], qd.Vector([{v.e}, 2.0]))'], FLOATS, needs="print"),
        U("assert with text", ["assert {v.e} >= 0, f'{{ {v.e} }}'", "num[{c.o}] = 1"]),
        U("comprehensions", ["li = [{v.e} * k5 for k5 in qd.static(range(3)) if k5 != 1]", "own[{c.o}] = li[1]"], NUMERIC),
        U("dictionary", ["di = {{'p': {v.e}, 'q': x[{c.i}]}}", "own[{c.o}] = di['p'] + di['q']"]),
        U("list and tuple", ["li = [{v.e}, (x[{c.i}], 2)]", "li[0] = li[1][0]", "own[{c.o}] = li[0] + len(li)"]),
        U("determinants", ["mm = qd.Matrix([[{v.e}, 1, 0], [x[{c.i}], {v.e}, 1], [0, 2, {v.e}]])", "own[{c.o}] = mm.determinant() + mm.trace() + mm.transpose()[0, 1]"], NUMERIC),
        U("inverse", ["m4 = qd.Matrix([[{v.e}, 0, 0, 0], [0, 2.0, 0, 0], [0, 0, {v.e}, 0], [0, 0, 0, 4.0]])", "own[{c.o}] = m4.inverse()[1, 1] * m4.determinant()"], ["f32", "f64"]),
        U("methods of vectors", ["w = qd.Vector([{v.e}, x[{c.i}], {v.e}])", "u = w.cross(qd.Vector([1, 2, 0]))", "own[{c.o}] = u[2] + w.max() + w.min() + w.outer_product(w)[1, 2] + w.dot(u)"], NUMERIC),
        U("norms", ["w = qd.Vector([{v.e}, x[{c.i}]])", "own[{c.o}] = w.norm_sqr() + w.norm() + w.normalized()[0] + w.norm_inv()"], ["f32", "f64"]),
        U("quantifiers", ["w = qd.Vector([{v.e}, x[{c.i}]])", "num[{c.o}] = any(w == {v.e}) * 1 + all(w > 1) * 2 + len(w) * 4"]),
        U("zero and one", ["own[{c.o}] = qd.zero({v.e}) + qd.one({v.e}) + {v.e}"]),
        U("filled", ["w = qd.Vector.zero(qd.{c.t}, 3)", "w.fill({v.e})", "own[{c.o}] = w[1] + qd.Vector.one(qd.{c.t}, 2)[0] + qd.Vector.unit(3, 1, qd.{c.t})[1]"]),
        U("frexp", ["p, q = qd.frexp({v.e})", "own[{c.o}] = p", "num[{c.o}] = q"], ["f32", "f64"]),
        U("struct without type", ["ps = qd.Struct(a={v.e}, b=x[{c.i}])", "own[{c.o}] = ps.a + ps.b"]),
        U("keywords and defaults", ["wide[{c.o}] = fk(q={v.e}, p={v.e}) + fk({v.e})"],
          helpers=["@qd.func", "def fk(p, q=1):", "    return p + q"], types=NUMERIC),
        U("starred arguments", ["own[{c.o}] = f_two(*[{v.e}, x[{c.i}]])"], helpers=["@qd.func", "def f_two(p, q):", "    return p + q"]),
        U("volatile load", ["own[{c.o}] = qd.volatile_load(x[{v.i}]) + {v.e}"]),
        U("assumed range", ["own[{c.o}] = x[qd.assume_in_range({v.i}, {v.i}, 0, 1)]"], INTS),
        U("alias", ["al = qd.static(x)", "own[{c.o}] = al[{v.i}]"]),
        U("static expression", ["own[{c.o}] = ({v.e} if qd.static({v.s} > 1) else x[{c.i}])", "qd.static_assert({v.s} >= 0)", "if qd.static({v.s} in [1, 3]):", "    num[{c.o}] = 1", "elif qd.static(not {v.s}):", "    num[{c.o}] = 2"], static=True),
        U("func in a condition", ["if {v.c} and f_twice({v.e}) > 1:", "    num[{c.o}] = 1"], helpers=["@qd.func", "def f_twice(p):", "    return p + p"], types=NUMERIC),
        U("index by vector and tuple", ["own[{c.o}] = x23[qd.Vector([{v.i} % 2, 1])] + x23[(1, {v.i} % 3)]"]),
        U("slices", ["w = qd.Vector([{v.e}, x[{c.i}], {v.e}, 1])", "u = w[1:3]", "own[{c.o}] = u[0] + u[1] + w.wzyx[3]"]),
        U("component by name", ["vo[{c.o}].x += {v.e}", "vo[{c.o}].yx = vs[{c.i}].zy"]),
        U("write a component at run time", ["w = vs[{c.i}] + 1", "w[{v.i} % 3] = x[{c.i}]", "own[{c.o}] = w[0] + w[1] + w[2]"], NUMERIC),
        U("read a component at run time", ["own[{c.o}] = (vs[{c.i}] + {v.e})[{v.i} % 3]"], NUMERIC),
        U("fill in a kernel", ["va2[None] = {v.e}"]),
        U("shape and dtype", ["own[{c.o}] = qd.cast({v.i} + x.shape[0] + vs.n + ms.m, x.dtype)"], NUMERIC),
    ]  # fmt: skip


# --- places ------------------------------------------------------------------------------------------


class Place:
    """`before` opens blocks, one level deeper per line that ends with a colon; `after` closes at the kernel's level."""

    def __init__(
        self,
        name,
        before,
        i,
        o,
        where="kernel",
        call=None,
        method=False,
        parallel=True,
        local="kernel",
    ):
        self.name, self.before, self.i, self.o = name, before, i, o
        self.where, self.call, self.method, self.parallel, self.local = (
            where,
            call,
            method,
            parallel,
            local,
        )


def places():
    P = Place
    loop = "for i in range(6):"
    out = [
        P("top", [], "3", "5", parallel=False),
        P("branch at top", ["if n > 2:"], "3", "5", parallel=False),
        P("else at top", ["if n < 2:", "    num[3] = 1", "else:"], "3", "5", parallel=False),
        P("while at top", ["k = 0", "while k < 3:", "    k += 1"], "k", "k", parallel=False),
        P("parallel loop", [loop], "i", "i"),
        P("loop with run-time bounds", ["for i in range(1, n):"], "i", "i"),
        P("loop bounded by a field", ["for i in range(count[None]):"], "i", "i"),
        P("second loop", ["for i in range(6):", "    el[i] += x[i]", "num[7] = 3", "for i in range(6):"], "i", "i"),
        P("branch", [loop, "    if i > 2:"], "i", "i"),
        P("else", [loop, "    if i < 3:", "        num[i] += 2", "    else:"], "i", "i"),
        P("branch in branch", [loop, "    if i > 1:", "        if x[i] > 1:"], "i", "i"),
        P("inner loop", ["for i in range(3):", "    for j in range(4):"], "j", "i"),
        P("outer index in inner loop", ["for i in range(3):", "    for j in range(n - 3):"], "i", "i"),
        P("while in loop", [loop, "    k = 0", "    while k < 3:", "        k += 1"], "k", "i"),
        P("after continue", [loop, "    if i == 2:", "        continue"], "i", "i"),
        P("after continue in inner loop", ["for i in range(3):", "    for j in range(5):", "        if j == i:", "            continue"], "j", "i"),
        P("after break", ["for i in range(4):", "    for j in range(5):", "        if j > i:", "            break"], "j", "i"),
        P("after break of while", ["for i in range(4):", "    k = 0", "    while True:", "        k += 1", "        if k > i:", "            break"], "k", "i"),
        P("func at top", [], "i", "i", "func", "{f}(3, {a})", parallel=False, local="func"),
        P("func in loop", [loop], "i", "i", "func", "{f}(i, {a})", local="func"),
        P("func in loop, local passed", [loop], "i", "i", "func", "{f}(i, {a})", local="passed"),
        P("func in inner loop", ["for j in range(3):", "    for k in range(4):", "        if k != j:"], "i", "i", "func", "{f}(j, {a})", local="func"),
        P("func of func", [loop], "i", "i", "func2", "{f}(i, {a})", local="func"),
        P("real_func at top", [], "i", "i", "real", "{f}(3, {a})", parallel=False, local="func"),
        P("real_func in loop", [loop], "i", "i", "real", "{f}(i, {a})", local="func"),
        P("kernel of object", [loop], "i", "i", method=True),
        P("func of object", [loop], "i", "i", "func", "self.{f}(i, {a})", method=True, local="func"),
        P("loop over field", ["for i in x6:"], "i", "i"),
        P("loop over array", ["for i in out6:"], "i", "i"),
        P("ndrange", ["for i, j in qd.ndrange(3, (1, 4)):"], "j", "i * 4 + j"),
        P("ndrange in another order", ["for i, j in qd.ndrange(3, (1, 4), axes=(1, 0)):"], "j", "i * 4 + j"),
        P("ndrange in loop", ["for i in range(3):", "    for j, k in qd.ndrange(2, (1, 3)):"], "k", "i"),
        P("grouped ndrange", ["for g in qd.grouped(qd.ndrange(2, 3)):"], "g[1]", "g[0] * 3 + g[1]"),
        P("grouped field", ["for g in qd.grouped(x23):"], "g[1]", "g[0] * 3 + g[1]"),
        P("static loop at top", ["for i in qd.static(range(3)):"], "i", "i", parallel=False),
        P("static loop in loop", ["for i in range(4):", "    for j in qd.static(range(2)):"], "j", "i"),
        P("serialized loop", ["qd.loop_config(serialize=True)", loop], "i", "i"),
        P("static branch", [loop, "    if qd.static(G > 0):"], "i", "i"),
    ]  # fmt: skip
    return {p.name: p for p in out}
