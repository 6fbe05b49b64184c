"""Whether what looks only really does: helpers over objects that note each hook that Python calls.

    effects.py [--seconds S] [--seed N] [--random COUNT]

Every hook of every kind of class × every use of a value × every way to reach it: a helper that
`may_change` takes to look only is called, and must have run no hook that notes, nor changed a list, an iterator or
an array. Prints the helpers that did; exits with 1 if there are any.
"""

import argparse
import importlib.util
import itertools
import pathlib
import random
import sys
import tempfile
import time
import warnings

HOOKS = {
    # What a hook is called with beside self, and what it gives.
    **dict.fromkeys("add sub mul truediv floordiv mod pow matmul lshift rshift and or xor".split(), ("o", "1")),
    **dict.fromkeys("radd rsub rmul rtruediv rfloordiv rmod rpow rmatmul rlshift rrshift rand ror rxor".split(), ("o", "1")),
    **dict.fromkeys("iadd isub imul".split(), ("o", "self")),
    **dict.fromkeys("lt le gt ge eq ne contains".split(), ("o", "True")),
    **dict.fromkeys("neg pos abs invert int index length_hint trunc floor ceil len".split(), ("", "2")),
    **dict.fromkeys("float complex".split(), ("", "2.0")),
    "hash": ("", "7"), "bool": ("", "True"), "round": ("n=0", "2"), "divmod": ("o", "(1, 1)"), "rdivmod": ("o", "(1, 1)"),
    "iter": ("", "iter([1, 2])"), "next": ("", "1"), "reversed": ("", "iter([2, 1])"),
    "getitem": ("k", "[1, 2][k] if type(k) is int else 1"), "missing": ("k", "1"),
    "str": ("", "'s'"), "repr": ("", "'r'"), "format": ("how", "'f'"), "bytes": ("", "b'b'"), "fspath": ("", "'p'"),
    "call": ("*a, **k", "1"), "getattr": ("name", "1"), "getattribute": ("name", "object.__getattribute__(self, name)"),
    "get": ("o, k", "1"), "enter": ("", "self"), "exit": ("*a", "None"), "array": ("*a, **k", "np.zeros(2)"),
    "array_ufunc": ("*a, **k", "1"), "array_function": ("*a, **k", "1"), "instancecheck": ("o", "True"),
    "subclasscheck": ("o", "True"), "sizeof": ("", "8"), "dir": ("", "[]"), "copy": ("", "self"), "deepcopy": ("m", "self"),
    "init": ("*a, **k", "None"), "post_init": ("", "None"), "setattr": ("n, v", "None"), "del": ("", "None"),
    "setitem": ("k, v", "None"), "class_getitem": ("", "1"), "reduce": ("", "(int, ())"), "array_interface_": ("", "1"),
    "array_finalize": ("o", "None"), "array_wrap": ("*a", "self"), "new": ("*a, **k", "None"), "class": ("", "int"), "bases": ("", "(int,)"),
}  # fmt: skip
PROPERTIES = ("class", "bases", "array_interface_")
METHODS = "value name _value_ keys values items get dtype shape sum count index hook item tolist replace all mean astype x".split()
BASES = {
    "object": ("", ""), "int": ("int", "3"), "float": ("float", "2.5"), "str": ("str", "'ab'"), "list": ("list", "[1, 2]"),
    "tuple": ("tuple", "(1, 2)"), "dict": ("dict", "{0: 1}"), "set": ("set", "{1}"), "namedtuple": ("P0", "1, 2"),
    "dataclass": ("", "1, 2"), "frozen": ("", "1, 2"), "slots": ("", "1, 2"), "exception": ("ValueError", "1"), "array": ("np.ndarray", "2"),
    "defaultdict": ("collections.defaultdict", "int, {0: 1}"), "deque": ("collections.deque", "[1, 2]"),
    "userlist": ("collections.UserList", "[1, 2]"), "mapping": ("collections.abc.Mapping", ""), "meta": ("type", ""),
    "enum": ("enum.Enum", ""), "intenum": ("enum.IntEnum", ""), "inner": ("Base", ""), "exec": ("", "1, 2"), "exectuple": ("P0", "1, 2"), "module": ("types.ModuleType", "'m'"),
    "date": ("datetime.date", "2020, 1, 2"), "delta": ("datetime.timedelta", "2"), "fraction": ("fractions.Fraction", "3, 2"),
    "property": ("property", "lambda self: 1"), "str_enum": ("str, enum.Enum", ""), "flag": ("enum.Flag", ""),
}  # fmt: skip
PRELUDE = '''
import abc, bisect, collections, collections.abc, dataclasses, datetime, enum, fractions, functools, itertools, math, operator, os, random, types, typing, weakref
import numpy as np
LOG = []
class P0(collections.namedtuple("P0", "x y")): pass
class Base:
    x = 3
    def hook(self): return self.x
@dataclasses.dataclass
class Plain: x: object = 1
class Point(collections.namedtuple("Point", "x y")): pass
@dataclasses.dataclass
class Lists:
    x: list = dataclasses.field(default_factory=list)
def pure(x, y=1): return x
def both(x, y=1): return x if x else y
def adds(x, y=1): return x + y
@functools.lru_cache
def cached(x, y=1): return 3
@functools.lru_cache
def kept(x, y=1): return x
LIST, DICT, SET = [3, 1, 2], {0: 1, "a": 2}, {1, 2}
NESTED, TABLES = [[1], [2]], {0: [1], "a": [2]}
DEQUE, DEFAULT, COUNTER = collections.deque([1, 2], 2), collections.defaultdict(list, {0: 1}), collections.Counter("ab")
ORDERED, ARRAY, BYTES = collections.OrderedDict(a=1, b=2), np.arange(3), bytearray(b"ab")
OBJECTS = np.array([1, 2], dtype=object)
FLOATS, VIEW = np.linspace(0, 1, 4), memoryview(bytearray(b"ab"))
ITERATOR, GENERATOR, COUNT = iter([1, 2, 3]), (x for x in (1, 2)), itertools.count()
MAP, ZIP, FILE = map(abs, [1, 2]), zip([1], [2]), None
RANDOM, NPRANDOM = random.Random(1), np.random.default_rng(1)
NAMESPACE, PARTIAL = types.SimpleNamespace(x=[1]), functools.partial(LIST.append, 1)
class Holds:
    def __init__(self): self.x, self.n = [1], 1
    def push(self): self.n += 1; return self.n
    def hook(self): return self.x
    @property
    def item(self): self.n += 1; return 1
    @functools.cached_property
    def count(self): return self.x
HOLDS = Holds()
INDEX, SPEC, ONE_DAY, ZERO, ZEROS = 0, "x", datetime.timedelta(1), np.float64(0), np.zeros(2)
def quietly(make, *a):
    try: return make(*a)
    except Exception: return None
MUTABLE = """LIST DICT SET NESTED TABLES DEQUE DEFAULT COUNTER ORDERED ARRAY OBJECTS BYTES FLOATS ITERATOR GENERATOR COUNT MAP ZIP RANDOM
NPRANDOM NAMESPACE PARTIAL HOLDS""".split()
def state():
    hint = operator.length_hint
    views = LIST, DICT, SET, NESTED, TABLES, DEQUE, DEFAULT, COUNTER, ORDERED, ARRAY.tolist(), OBJECTS.tolist(), BYTES, FLOATS.tolist()
    moving = bytes(VIEW), hint(ITERATOR, 9), GENERATOR.gi_frame is None or GENERATOR.gi_frame.f_lasti, repr(COUNT)
    others = hint(MAP, 9), RANDOM.getstate()[1][-1], RANDOM.getstate()[1][:2], str(NPRANDOM.bit_generator.state), NAMESPACE.x, HOLDS.x, HOLDS.n, cached.cache_info(), kept.cache_info()
    return repr((views, moving, others))
'''
ANY = "len int float bool str repr abs min max sum round tuple list dict set frozenset range type sorted any all chr ord complex bytes \
zip enumerate reversed slice callable hex bin oct ascii iter next vars dir hash id print map filter".split()
OPERATORS = "+ - * / // % ** @ << >> & | ^ == != < <= > >= in is".split()
MEMBERS = "value name y replace today fromordinal from_bytes limit_denominator numerator days year z count index get keys values items copy tobytes tolist hex decode encode startswith endswith split join lower upper replace find \
format item sum min max mean prod any all reshape ravel flatten transpose astype dot argmax argmin conj bit_length conjugate union \
intersection difference issubset append add extend insert update setdefault pop sort reverse clear push fill put remove popleft rotate \
partition resize itemset move_to_end most_common elements random __next__ __len__ __iter__ __getitem__ hook x T real flat data size n".split()
NUMPY = "sin add dot zeros ones full array asarray arange linspace eye sum prod mean max min cross where concatenate stack outer trace \
allclose argmax any all round diff sort unique transpose reshape ravel size shape float32 int32 copyto put fill_diagonal".split()
LIBRARY = (
    "math.sqrt math.floor math.ceil math.fsum math.prod math.trunc math.isclose math.gcd os.path.join os.path.exists os.getenv \
operator.add operator.neg operator.index operator.getitem operator.truth operator.contains operator.eq operator.concat operator.length_hint \
operator.iadd operator.call bisect.bisect bisect.insort functools.reduce collections.deque itertools.count dataclasses.astuple \
dataclasses.replace dataclasses.asdict dataclasses.fields types.SimpleNamespace Plain Point Lists Base pure both adds cached kept \
collections.abc.Mapping.get".split()
)


def uses():
    """Texts of statements over {x}."""
    e = ["-{x}", "+{x}", "~{x}", "not {x}", "1 if {x} else 0", "{x} and 1", "{x} or 1", "{x}[0]", "{x}[1:2]", "{x}['a']", "{x}[0, 1]",
         "{x}[[0]]", "f'{{{x}}}'", "f'{{{x}!r}}'", "f'{{{x}:>3}}'", "f'{{1:{{{x}}}}}'", "f'{{{x}:x}}'", "f'{{{x}:{{SPEC}}}}'", "format({x}, 'x')", "format({x}, SPEC)", "'%s' % {x}", "'%s' % ({x},)", "'%d' % {x}", "'%(a)s' % {x}",
         "'{{}}'.format({x})", "'{{0.x}}'.format({x})", "[1, 2][{x}]", "'ab'[{x}]", "(1, 2)[{x}:]", "{{0: 1}}[{x}]", "{{{x}: 1}}", "{{{x}}}", "{{{x}, 1}}",
         "{{0: {x}}}[0]", "[{x}][0]", "({x}, 1)[0]", "1 < {x} < 3", "{x} == {x}", "[{x}] == [1]", "({x},) == (1,)", "[{x}] < [1]", "{x} in [1]",
         "1 in {x}", "1 in ({x},)", "{x} is None", "isinstance({x}, int)", "isinstance({x}, (int, Base))", "isinstance(1, {x})", "issubclass(int, {x})",
         "issubclass({x}, int)", "issubclass({x}, (str, int))", "issubclass({x}, {x})", "isinstance({x}, {x})", "{x} + ONE_DAY", "ONE_DAY + {x}", "{x} * 2", "operator.getitem({x}, 1)",
         "np.asarray({x})", "np.asarray([{x}])", "getattr({x}, 'x')", "getattr({x}, 'y', 1)", "getattr({x}, 'value', 1)", "{x}[INDEX % 1]", "[{x}][INDEX % 1].item()", "[{x}][INDEX % 1].x", "{x} / ZERO", "np.divide({x}, ZERO)",
         "sorted([{x}, {x}])", "min({x}, {x})", "{x} < {x}", "[y.x for y in [{x}] * 12]", "sum(y.item() for y in MANY)", "[y.x for y in MANY]", "[y.hook() for y in MANY]", "[len(y) for y in MANY]", "[f'{{y:x}}' for y in MANY]",
         "[y[0] for y in MANY]", "[y + 1 for y in MANY]", "[1 for y in MANY if y]", "[isinstance(y, int) for y in MANY]", "[1 for y in MANY if y == 1]", "[z for y in MANY for z in y]", "sorted(MANY, key=pure)", "[adds(y) for y in MANY]", "[y() for y in MANY]",
         "[1 for y in MANY if y in DICT]", "[getattr(y, 'x', 1) for y in MANY]", "[y.x for y in KINDS]", "[y.x.x for y in HOLDERS]", "[y.x.hook() for y in HOLDERS]", "[y[0].x for y in ROWS]", "[y[0].hook() for y in ROWS]", "[z.x for y in ROWS for z in y]",
         "[y == [1] for y in ROWS]", "[len(y[0]) for y in ROWS]", "sorted(ROWS)", "[y + y for y in ROWS]", "max(MANY)", "MANY.index(1)", "[z.x for y, z in PAIRS]", "list(MANY)[0].x", "sorted(MANY, key=type)", "[y.pure(2) for y in HOLDERS]", "getattr({x}, 'x', 0)", "hasattr({x}, 'x')", "getattr({x}, 'hook')", "getattr(Base, {x}, 0)", "[y for y in {x}]",
         "[y for y in [{x}]]", "[1 for y in (1, 2) if {x}]", "{{y for y in {x}}}", "{{y: 1 for y in {x}}}", "sum(y for y in {x})", "list(y for y in {x})",
         "sorted([{x}, 1])", "sorted([2, 1], key={x})", "sorted([{x}], key=pure)", "max({x}, 1)", "max([{x}, 1])", "max([1], default={x})", "max([1, 2], key={x})",
         "sum([{x}])", "sum([1], {x})", "sum([[1]], {x})", "any([{x}])", "all([{x}])", "any(y for y in [{x}])", "dict(a={x})", "dict([({x}, 1)])", "dict([{x}])", "set([{x}])",
         "frozenset([{x}])", "','.join({x})", "','.join([{x}])", "'a'.replace('a', {x})", "'a'.startswith({x})", "'a'.encode({x})", "round({x}, 1)", "round(1.5, {x})",
         "pow(2, {x})", "pow(2, 1, {x})", "divmod({x}, 2)", "divmod(7, {x})", "range(1, {x})", "slice({x})", "[1, 2][slice({x})]", "zip({x}, [1])", "enumerate([1], {x})",
         "int('1', {x})", "str(b'a', {x})", "format(1, {x})", "format({x}, '')", "{x}()", "{x}(1)", "{x}.x", "{x}.x[0]", "{x}.x.x", "type({x})()", "type({x}).x", "list(zip([{x}], [1]))",
         "cached(1, {x})", "pure(y={x})", "functools.partial(pure, {x})()", "functools.partial({x}, 1)()", "(lambda: {x})()", "(lambda y={x}: y)()",
         "LIST[{x}]", "DICT[{x}]", "DICT.get({x})", "SET | {x}", "{x} in SET", "{x} in DICT", "TABLES.get({x}, 0)", "DEFAULT[{x}]", "COUNTER[{x}]", "ARRAY[{x}]", "ARRAY + {x}", "ARRAY.sum({x})",
         "ARRAY.astype({x})", "ARRAY.dot({x})", "ARRAY.reshape({x})", "np.add({x}, 1)", "np.add(1, {x})", "np.add(1, 2, {x})", "np.add(1, 1, out={x})", "np.sum([{x}, 1])",
         "np.array([{x}])", "np.array([[{x}]])", "np.zeros(2, {x})", "np.zeros(2, dtype={x})", "np.where({x}, 1, 2)", "np.where([True], {x}, 2)", "np.concatenate([{x}, {x}])", "np.full(2, {x})",
         "np.sum(ARRAY, axis={x})", "np.dot(ARRAY, ARRAY, {x})", "np.float32({x})", "np.float64([{x}])", "math.hypot(1, {x})", "os.path.join('a', {x})", "operator.itemgetter(0)({x})",
         "operator.itemgetter({x})(LIST)", "operator.attrgetter('x')({x})", "operator.methodcaller('hook')({x})", "operator.add(1, {x})", "Plain({x}).x", "Plain({x}) == Plain(1)",
         "Point({x}, 1).x", "Point({x}, 1)[0]", "Point({x}, 1) == (1, 1)", "hash(Point({x}, 1))", "str(Plain({x}))", "f'{{Point({x}, 1)}}'", "list(Point({x}, 1))", "list(map(pure, [{x}]))",
         "Plain({x}).x.x", "Plain({x}).x[0]", "types.SimpleNamespace(x={x}).x", "Lists({x}).x", "super(Base, {x})", "HOLDS.push()", "bool([{x}])", "len([{x}])", "{x} if 1 else 2"]  # fmt: skip
    e += [f"{f}({{x}})" for f in [*ANY, *(f"np.{n}" for n in NUMPY), *LIBRARY]]
    e += [
        f"{f}({{x}}, 1)"
        for f in ("np.dot", "np.where", "np.full", "np.cross", "np.linspace", *LIBRARY)
    ]
    e += [
        f"{f}(1, {{x}})"
        for f in ("np.dot", "np.where", "np.full", "np.cross", "np.linspace", *LIBRARY)
    ]
    e += [f"{{x}} {op} {o}" for op in OPERATORS for o in ("1", "'a'", "[1]", "None", "ARRAY")]
    e += [
        f"{o} {op} {{x}}"
        for op in OPERATORS
        for o in ("1", "2.5", "'a'", "[1]", "(1,)", "{1}", "None", "ARRAY", "np.float32(2)")
    ]
    e += (
        [f"{{x}}.{m}" for m in MEMBERS]
        + [f"{{x}}.{m}()" for m in MEMBERS]
        + [f"{{x}}.{m}(1)" for m in MEMBERS]
    )
    e += [f"{{x}}.{m}(0, 1)" for m in MEMBERS]
    e += [f"NESTED[0].{m}({{x}})" for m in ("append", "count", "index", "copy")]
    e += [f"[1].{m}({{x}})" for m in ("append", "count", "index", "extend", "remove")] + [
        "{{1: 2}}.get({x})",
        "{{1}}.union({x})",
        "{{1: 2}}.update({x})",
    ]
    s = [f"return {text}" for text in e]
    s += ["for y in {x}: pass", "for y in {x}: y += 1", "for y in [{x}]: return y + 1", "y, z = {x}", "y, *z = {x}", "(y, z), w = {x}, 1", "y, z = {x}, {x}\n    return y + z",
          "y = {x}\n    y += 1\n    return y", "y = 1\n    y += {x}\n    return y", "y = [1]\n    y += {x}", "y = [1]\n    y[{x}] = 1", "y = {{}}\n    y[{x}] = 1", "y = {{}}\n    y[0] = {x}\n    return y[0] + 1",
          "y = []\n    y.append({x})\n    return y[0] + 1", "y = [{x}]\n    y[0] += 1", "y = [{x}]\n    y.sort()", "y = [{x}]\n    return y[0][0]", "y = ({x}, 1)\n    for z in y: z.append(1)",
          "y = {{0: {x}}}\n    y[0].append(1)", "assert {x}", "assert 1, {x}", "assert not {x}, {x}", "raise ValueError({x})", "while {x}: return 1", "while not {x}: return 1", "if {x}: return 1",
          "if {x} == 1: return 1\n    elif {x}: return 2", "with {x}: pass", "del {x}", "y = {x}\n    for z in (1, 2): y = y + 1\n    return y", "for i, y in enumerate([{x}]): y.append(i)",
          "for y in zip([{x}], [1]): y[0].append(1)", "for y in ({x}, 1): y + 1", "y = {x} or []\n    y.append(1)", "y = {x} if 0 else []\n    y.append(1)", "y = pure({x})\n    return y + 1",
          "y = []\n    for z in [{x}]: y.append(z)\n    return y[0].append(1)", "y = {x}.copy()\n    y.append(1)", "y = [z for z in [{x}]]\n    y[0].append(1)", "y = list([{x}])\n    return y[0] + 1",
          "y = {x}[:]\n    y.append(1)\n    y.sort()", "y = {x}[0]\n    y.append(1)", "y = list({x})\n    y[0].append(1)", "y = {x}.copy()\n    y[0].append(1)", "y = sorted({x})\n    y.append(1)",
          "y = [{x}, [0]]\n    for z in y: z += [1]", "y = dict({x})\n    y[5] = 1", "y = {x}.get(0)\n    y.append(1)", "y = {x}.x\n    y.append(1)", "y = {x}\n    y[0] = 5", "y = {x}\n    y.x = 5", "{x}.x += 1", "{x}[0] += 1",
          "y = [0]\n    y[0] = {x}\n    y[0][0] = 7", "for z in ([1], {x}): z.append(1)", "for z in [[1], [2]] + [{x}]: z.append(1)", "y = max({x}, [1])\n    y.append(1)", "y = ([1], {x})[1]\n    y.append(2)",
          "y = np.asarray({x})\n    y[0] = 9", "y = {x}.reshape(-1)\n    y[0] = 9", "y = {x}.T\n    y += 1", "y = {x}.ravel()\n    y += 1", "y = {x}[:]\n    y += 1", "y = {x}[1:]\n    y[0] = 9", "y = abs({x})\n    y.append(1)"]  # fmt: skip
    # What flow of control leaves behind.
    s += ["y = []\n    for z in (1, 2):\n        if z: y = {x}\n        break\n    y.append(1)", "y = []\n    for z in (1, 2):\n        if z == 1:\n            y = {x}\n            break\n        y = []\n    y.append(1)",
          "y = []\n    for z in (1, 2):\n        if z == 1:\n            y = {x}\n            continue\n        y.append(1)\n        y = []", "y = []\n    for z in (): pass\n    else: y = {x}\n    y.append(1)",
          "y = []\n    try:\n        y = {x}\n        y.nothing\n        y = []\n    except Exception: y.append(1)", "try: {x}.x\n    except Exception as y: return y.args[0]\n    finally: {x}.append(1)",
          "try: return {x}\n    finally: y = {x}\n    y.append(1)", "y = []\n    while True:\n        y = {x}\n        break\n    y.append(1)", "def g(): return {x}\n    g().append(1)", "y = [[1]]\n    def g(): return y\n    y = {x}\n    g().append(1)",
          "y = lambda: {x}\n    return y()", "f = lambda z: z.append(1)\n    f({x})", "y = sorted([1, 2], key=lambda z: {x})\n    return y", "y = max([{x}], key=lambda z: z.append(1))", "return [z for z in [1] if {x}.append(1)]",
          "return adds(*{x})", "return adds(*[{x}])", "return adds(**{x})", "return pure(**{{'y': {x}}})", "z = ({x},)\n    return adds(*z)"]  # fmt: skip
    return s


def hooks_of_class(name, base, hook):
    parent, how = BASES[base]
    params, result = HOOKS.get(hook, ("*a, **k", "1"))
    dunder = f"__{hook}__" if hook in HOOKS else hook
    head, body = (
        "",
        f"    def {dunder}(self{', ' if params else ''}{params}):\n        LOG.append({hook!r})\n        return {result}\n",
    )
    if hook in PROPERTIES:
        body = body.replace("    def", "    @property\n    def", 1)
    if hook == "array_interface_":
        body = body.replace("interface_(", "interface(").replace(
            "array_interface___", "array_interface__"
        )
    if hook == "new":
        body = "    def __new__(cls, *a, **k):\n        LOG.append('new')\n        return super().__new__(cls, *a)\n"
    if base.startswith("exec"):
        text = body.replace("    def", "def", 1).replace("        ", "    ")
        body = f"    space = {{'LOG': LOG, 'np': np}}\n    exec({text!r}, space)\n    {dunder} = space.get({dunder!r})\n"
    if hook not in HOOKS:
        body += f"    {hook} = property({hook})\n" if len(hook) % 2 else ""
    if hook == "class_getitem":
        body = "    def __class_getitem__(cls, k):\n        LOG.append('class_getitem')\n        return 1\n"
    if base in ("dataclass", "frozen", "slots", "exec"):
        head = {
            "exec": "@dataclasses.dataclass\n",
            "dataclass": "@dataclasses.dataclass\n",
            "frozen": "@dataclasses.dataclass(frozen=True, eq=False)\n",
            "slots": "@dataclasses.dataclass(slots=True)\n",
        }[base]
        body = "    x: object = 1\n    y: int = 2\n" + body
    if base in ("enum", "intenum", "flag"):
        body = "    A = 1\n    B = 2\n" + body
    if base == "str_enum":
        body = "    A = 'a'\n    B = 'b'\n" + body
    if base == "mapping":
        body = (
            "    def __len__(self): return 1\n    def __iter__(self): return iter([0])\n    def __getitem__(self, k): return 1\n"
            + body
        )
    if base == "meta":
        return f"class M_{name}(type):\n{body}class {name}(metaclass=M_{name}):\n    x = 3\n{name[0].lower()}_{name} = {name}\n"
    made = f"{name}.A" if is_enum(base) else f"{name}({how})"
    return f"{head}class {name}({parent}):\n{body}{name[0].lower()}_{name} = {made}\n"


def is_enum(base):
    return "enum" in base or base == "flag"


# Definitions of `C`, and what makes one: what a hook of a class alone does not show.
NOTES = "def noted(x=5, *a):\n    LOG.append('noted')\n    return x\n"
LATER = "    def __getattr__(self, name): return noted()\n"
SPECIALS = {
    "raising_property": ("class C:\n    @property\n    def x(self): raise AttributeError('x')\n    y = hook = x\n" + LATER, "C()"),
    "raising_lookup": ("class C:\n    def __getattribute__(self, name): raise AttributeError(name)\n" + LATER, "C()"),
    "raising_descriptor": ("class D:\n    def __get__(self, o, k): raise AttributeError('x')\nclass C:\n    x = y = hook = D()\n" + LATER, "C()"),
    "raising_inherited": ("class B:\n    @property\n    def x(self): raise AttributeError('x')\nclass C(B):\n    def hook(self): return super(C, self).x\n" + LATER, "C()"),
    "missing_slot": ("class C:\n    __slots__ = ('x', 'y')\n" + LATER, "C()"),
    "format_by_spec": ("class C:\n    def __format__(self, spec): return {'': str, 'x': noted}[spec]('ab')\n", "C()"),
    "subclass": ("class M(type):\n    def __instancecheck__(cls, o): return True\n    def __subclasscheck__(cls, c): return noted()\nclass C(metaclass=M): x = 1\n", "C"),
    "compared": ("K = functools.cmp_to_key(lambda a, b: noted(0))\ndef C(): return K(1)\n", "C()"),
    "class_member": ("class D:\n    def __get__(self, o, k): return noted() if o is None else 1\nclass C:\n    x = y = hook = item = D()\n", "C"),
    "enum_member": ("class D:\n    def __get__(self, o, k): return noted()\nclass C(enum.Enum):\n    A = 1\n    x = D()\n    y = x\n", "C"),
    "property_kind": ("class p(property): pass\nclass C:\n    @p\n    def x(self): return noted()\n    y = hook = x\n", "C()"),
    "abstract_property": ("class C:\n    @abc.abstractproperty\n    def x(self): return noted()\n    y = hook = x\n", "C()"),
    "class_property": ("class C:\n    @classmethod\n    @property\n    def x(self): return noted()\n    y = hook = item = x\n", "C()"),
    "meta_property": ("class M(type):\n    @property\n    def x(cls): return noted()\n    def __getattr__(cls, n): return noted()\nclass C(metaclass=M): pass\n", "C"),
    "enum_kind": ("class M(enum.EnumMeta):\n    def __getattr__(cls, n): return noted()\n    def __getitem__(cls, n): return noted()\n    def __len__(cls): return noted()\n    def __iter__(cls): return iter([noted()])\nclass C(enum.Enum, metaclass=M): A = 1\n", "C"),
    "module_getattr": ("class C(types.ModuleType): pass\n", "set_later(C('m'))"),
    "module_plain": ("C = types.ModuleType\n", "set_later(C('m'))"),
    "fraction_of": ("class I(int):\n    def __mul__(self, o): return noted()\n    __add__ = __rmul__ = __mul__\ndef C():\n    f = fractions.Fraction(3, 2)\n    f._numerator = I(3)\n    return f\n", "C()"),
    "holds_key": ("K = functools.cmp_to_key(lambda a, b: noted(0))\n@dataclasses.dataclass(order=True)\nclass C:\n    x: object = K(1)\n", "C()"),
    "cached": ("class C:\n    n = 0\n    @functools.lru_cache(maxsize=1)\n    def hook(self): return noted()\n    item = x = y = hook\n", "C()"),
    "nothing": ("class C:\n    x = 1\n    def hook(self): return noted()\n    @property\n    def y(self): return noted()\n", "C()"),
}  # fmt: skip
SET_LATER = "def set_later(m):\n    m.__getattr__ = lambda n: noted()\n    return m\n"


def sources(rng):
    """(definitions, expression) of what notes."""
    for name, (text, made) in SPECIALS.items():
        yield NOTES + SET_LATER + f"{text}c_C = {made}\n", "C", f"special {made}"
    for base, hook in itertools.product(BASES, [*HOOKS, *METHODS]):
        name = f"C_{base}_{hook}"
        yield hooks_of_class(name, base, hook), name, base


def made_of(cls, base):
    if base.startswith("special"):
        return base.split(" ", 1)[1]
    return (
        f"{cls}.A"
        if is_enum(base)
        else f"c_{cls}"
        if base == "meta"
        else f"{cls}({BASES[base][1]})"
    )


def module(texts, folder, number, count=[0]):
    count[0] += 1
    path = folder / f"m{count[0]}.py"
    path.write_text("\n".join(texts))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    m = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(m)
    return m


def try_all(m, functions, may_change, found):
    from quadrants.lang._inspect import effects

    looks = 0
    effects.WAYS = random.choice(
        [(False, True), (True,)]
    )  # many objects at once, also where they are few
    state = m.state()
    for name, text in functions:
        f = getattr(m, name)
        if may_change(f, []):
            continue
        looks += 1
        before = len(m.LOG)
        for _ in range(2):
            try:
                f()
            except Exception:
                pass
        if len(m.LOG) > before or m.state() != state:
            found.append((text, m.LOG[before:][:3]))
            state = m.state()
    return looks


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the rows, drawn")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    from quadrants._lib import core
    from quadrants.lang._inspect.effects import may_change as may_change_closely

    def may_change(f, operands):
        return not core.looks_plainly(f, operands) and may_change_closely(f, operands)

    rng, begin = random.Random(args.seed), time.monotonic()
    random.seed(args.seed)
    all_uses = uses()
    found, tried, looked, bad = [], 0, 0, 0
    ways = (
        "{g}",
        "[{g}]",
        "({g}, 1)",
        "{{0: {g}}}",
        "{{{g}: 1}}",
        "HELD.x",
        "HELD.x[0]",
        "MADE",
        "NESTING",
    )
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows = list(sources(rng))
        rng.shuffle(rows)
        rows = [("", "MUTABLES", "mutable"), ("", "ERRORS", "mutable"), *rows]
        for definition, cls, base in rows:
            if time.monotonic() - begin > args.seconds:
                break
            g = f"c_{cls}"
            texts = [PRELUDE, definition]
            if base == "mutable":
                expressions = PRELUDE.split('MUTABLE = """')[1].split('"""')[0].split() + [
                    "ZERO",
                    "ZEROS",
                    "NESTED[0]",
                    "TABLES[0]",
                    "NAMESPACE.x",
                    "HOLDS.x",
                    "[LIST]",
                    "(LIST, LIST)",
                    "{{0: LIST}}",
                ]
            else:
                texts.append(f"MANY, ROWS = [{g}] * 12, [[{g}], [{g}]] * 8\nPAIRS, HOLDERS = [(1, {g})] * 12, [Plain({g}) for _ in range(12)]\nMANY = quietly(lambda: [{made_of(cls, base)} for _ in range(12)]) or MANY\n"
                             f"class CLASS:\n    x = y = {g}\nOF_CLASS = CLASS()\nOWN = Base()\nOWN.x = {g}\nPROXY, VIEWED = quietly(weakref.proxy, {g}), quietly(types.MappingProxyType, {g})\nKINDS = [CLASS, CLASS(), {g}] * 4\n"
                             f"SUB = quietly(type, 'SUB', ({cls},), {{}})\nSUPER = quietly(lambda: super(SUB, SUB({BASES.get(base, ('', ''))[1]})))\nKEY = quietly(functools.cmp_to_key(lambda a, b: a + b), {g})\n"
                             f"HELD = types.SimpleNamespace(x={g})\nINSIDE, TABLE, PAIR = [{g}], {{0: {g}}}, ({g}, 1)\nPART = functools.partial(pure, {g})\n"
                             f"def gives(y={g}): return y\n")  # fmt: skip
                made = made_of(cls, base)
                expressions = [
                    g,
                    cls,
                    made.replace("{", "{{").replace("}", "}}"),
                    "INSIDE",
                    "TABLE",
                    "PAIR",
                    "INSIDE[0]",
                    "INSIDE[INDEX % 1]",
                    *"CLASS OF_CLASS OWN PROXY VIEWED SUB SUPER KEY".split(),
                    "HELD.x",
                    "HELD",
                    "PART()",
                    "gives()",
                ]
            functions, body = [], []
            for x in expressions:
                x = x.replace("{{", "{").replace("}}", "}")
                for use in all_uses:
                    if rng.random() > args.share:
                        continue
                    text = use.replace("{x}", x).replace("{{", "{").replace("}}", "}")
                    n = f"f{len(functions)}"
                    source = f"def {n}():\n    {text}\n"
                    try:
                        compile(source, "x", "exec")
                    except SyntaxError:
                        bad += 1
                        continue
                    functions.append((n, text))
                    body.append(source)
            try:
                m = module([*texts, *body], folder, 0)
            except Exception as e:
                print("cannot make", cls, type(e), str(e)[:80]) if "-v" in sys.argv else None
                continue
            tried += len(functions)
            n = len(found)
            if cls == "ERRORS":  # of NumPy call something
                m.np.seterrcall(lambda *a: m.LOG.append("error"))
            with m.np.errstate(all="call" if cls == "ERRORS" else "ignore"):
                looked += try_all(m, functions, may_change, found)
            m.np.seterrcall(None)
            for text, log in found[n:][:4]:
                print(
                    f"{cls if cls != 'C' else definition[len(NOTES + SET_LATER) :]}: {text!r} {log}",
                    flush=True,
                )
    print(
        f"{tried} helpers, {looked} taken to look only, {len(found)} of them do not; {bad} no Python"
    )
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
