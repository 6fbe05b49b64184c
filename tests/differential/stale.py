"""Does a process ever get what another one's program was worth?

Draws programs of many kernels, each of which captures a value in one of the ways below and uses it in
one of the ways below. A program then lives through a row of edits: values that are no part of its text
(numbers, contents of arrays, the environment), and its text (helpers, classes, bases, decorator
arguments, comments that shift lines), but never the kernels' own. After each edit it runs with the
cache of all runs before it and without any cache; the results must agree.

    python tests/differential/stale.py --seed 0 --kernels 60 --edits 5000

An edit counts for a kernel if the result without cache differs from the one before it: so does
`changed` in the report. `lowered` says how many kernels ran the front end in warm processes.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

HEAD = """
import abc, bisect, collections, contextvars, copy, dataclasses, decimal, enum, fractions, functools
import array, ctypes, importlib, itertools, json, math, operator, os, pathlib, random, re, sys, time, types, typing, warnings
import numpy as np
import quadrants as qd
from quadrants._lib import core

cache, values, options = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
options = {k: getattr(qd, v) if isinstance(v, str) else v for k, v in options.items()}
qd.init(arch=qd.cpu, log_level=qd.ERROR, offline_cache=bool(cache), offline_cache_file_path=cache or ".", **options)
seen, warns = {}, WARNS
HERE = pathlib.Path(__file__).parent

def run(number, kernel, *args):
    before = core.counters()["lowered"]
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            result = repr(kernel(*args))
        except Exception as e:
            result = f"{type(e).__name__}: {re.sub('0x[0-9a-f]+|_c[0-9]+_[0-9]+', '', str(e))}"
    if warns:
        result += " ".join(sorted(f"{w.category.__name__} {w.lineno} {w.message}" for w in given))
    seen[number] = [result, core.counters()["lowered"] - before]
"""

TAIL = 'print("RESULT " + json.dumps(seen))\n'

# Where a value lives. `@` is the number of the case, `V` an expression for a small integer that no
# text holds, `L` a literal of the program's text outside the kernels. `name: (set-up, expression)`;
# the expression is what the kernel's own text says and stands for an integer.
SOURCES = {
    "integer": ("X@ = V", "X@"),
    "float": ("X@ = float(V)", "X@"),
    "boolean": ("X@ = V % 2 == 0", "X@"),
    "numpy_scalar": ("X@ = np.int32(V)", "X@"),
    "numpy_type": ("X@ = (np.int64 if V % 2 else np.float32)(V)", "X@"),
    "number_class": ("class N@(int): pass\nX@ = N@(V)", "X@"),
    "number_class_with_operators": (
        "class N@(int):\n    def __add__(self, o): return int(self) * L + o\n"
        "    __radd__ = __mul__ = __rmul__ = __add__\nX@ = N@(3)", "X@"),
    "string": ("X@ = 'a' * V", "len(X@)"),
    "text": ("X@ = str(V)", "int(X@)"),
    "bytes": ("X@ = bytes([V, 1])", "X@[0]"),
    "tuple": ("X@ = (1, V)", "X@[1]"),
    "list": ("X@ = [V, [1, V]]", "X@[1][1]"),
    "list_length": ("X@ = [0] * V", "len(X@)"),
    "long_list": ("X@ = [V] * 9000", "X@[77]"),
    "dict": ("X@ = {'a': V}", "X@['a']"),
    "dict_get": ("X@ = {'a': V, 'b': OBJECT}", "X@.get('a', 3)"),
    "dict_items": ("X@ = {'a': V, 'b': 2}", "sum([w for _, w in X@.items()])"),
    "dict_order": ("X@ = dict([('a', 1), ('b', 2)][:: 1 if V % 2 else -1])", "list(X@.values())[0]"),
    "set": ("X@ = {V, 100}", "min(X@)"),
    "set_in": ("X@ = {V, 3}", "(1 if qd.static(2 in X@) else 4)"),
    "frozenset": ("X@ = frozenset([V, V + 1])", "sum(X@)"),
    "deque": ("X@ = collections.deque(range(V))", "len(X@)"),
    "deque_item": ("X@ = collections.deque([V, 2])", "X@[0]"),
    "defaultdict": ("X@ = collections.defaultdict(int, a=V)", "X@['a']"),
    "counter": ("X@ = collections.Counter('a' * V)", "X@['a']"),
    "ordered_dict": ("X@ = collections.OrderedDict(a=V, b=1)", "next(iter(X@.values()))"),
    "named_tuple": ("P@ = collections.namedtuple('P@', 'a b')\nX@ = P@(V, 1)", "X@.a"),
    "typed_tuple": ("class P@(typing.NamedTuple):\n    a: int\nX@ = P@(V)", "X@[0]"),
    "enum_member": ("class E@(enum.Enum):\n    A = V\n    B = 77\nX@ = E@.A", "X@.value"),
    "int_enum": ("class E@(enum.IntEnum):\n    A = V\n    B = 77", "E@.A"),
    "enum_list": ("E@ = enum.Enum('E@', [f'm{n}' for n in range(V)])", "len(list(E@))"),
    "enum_loop": ("E@ = enum.IntEnum('E@', [f'm{n}' for n in range(V)])", "sum([int(e) for e in E@])"),
    "enum_choice": ("class E@(enum.Enum):\n    A = 1\n    B = 2\nX@ = E@.A if V % 2 else E@.B",
                    "(1 if X@ == E@.A else 5)"),
    "enum_attribute": ("class E@(enum.Enum):\n    A = 1\n    @property\n    def w(self): return L", "E@.A.w"),
    "attribute": ("class C@:\n    def __init__(self): self.a = V\nX@ = C@()", "X@.a"),
    "nested_attribute": ("X@ = types.SimpleNamespace(b=types.SimpleNamespace(a=[V]))", "X@.b.a[0]"),
    "slots": ("class C@:\n    __slots__ = ('a',)\nX@ = C@()\nX@.a = V", "X@.a"),
    "class_attribute": ("class C@:\n    a = V\nX@ = C@()", "X@.a"),
    "of_class": ("class C@:\n    a = V", "C@.a"),
    "base_attribute": ("class B@:\n    a = V\nclass C@(B@): pass\nX@ = C@()", "X@.a"),
    "base_class": ("class A@: a = 1\nclass B@: a = 2\nclass C@((A@, B@)[V % 2]): pass\nX@ = C@()", "X@.a"),
    "bases_in_text": ("class A@: a = 1\nclass B@: a = 2\nclass C@({'A@' if L % 2 else 'B@'}): pass\nX@ = C@()",
                      "X@.a"),
    "isinstance": ("class A@: pass\nclass B@: pass\nclass C@((A@, B@)[V % 2]): pass\nX@ = C@()",
                   "(1 if isinstance(X@, A@) else 4)"),
    "isinstance_of_two": ("class A@: pass\nclass B@: pass\nclass C@((A@, object)[V % 2]): pass\nX@ = C@()",
                          "(1 if isinstance(X@, (A@, B@)) else 4)"),
    "issubclass": ("class A@: pass\nclass C@((A@, object)[V % 2]): pass", "(1 if issubclass(C@, A@) else 4)"),
    "registered": ("class A@(abc.ABC): pass\nclass C@: pass\nif V % 2: A@.register(C@)\nX@ = C@()",
                   "(1 if isinstance(X@, A@) else 4)"),
    "type_attribute": ("class A@: a = 1\nclass B@: a = 6\nX@ = A@() if V % 2 else B@()", "type(X@).a"),
    "type_same_name": ("def make@(v):\n    class C: a = v\n    return C()\nX@ = make@(V)", "type(X@).a"),
    "type_name": ("X@ = [1, 1.5, 'a'][V % 3]", "len(type(X@).__name__)"),
    "hasattr": ("class C@: pass\nif V % 2: C@.a = 1\nX@ = C@()", "(1 if hasattr(X@, 'a') else 4)"),
    "hasattr_module": ("X@ = types.ModuleType('m@')\nif V % 2: X@.a = 1", "(1 if hasattr(X@, 'a') else 4)"),
    "getattr": ("class C@: a = V", "getattr(C@, 'a')"),
    "getattr_default": ("X@ = types.SimpleNamespace(**({'a': V} if V % 2 else {}))", "getattr(X@, 'a', 9)"),
    "getattr_name": ("X@ = types.SimpleNamespace(a=1, b=5)\nY@ = 'a' if V % 2 else 'b'", "getattr(X@, Y@)"),
    "module_attribute": ("X@ = types.ModuleType('m@')\nX@.a = V", "X@.a"),
    "imported": ("X@ = types.ModuleType('m@')\nX@.a = V\nsys.modules['m@'] = X@\nfrom m@ import a as Y@", "Y@"),
    "environment": ("os.environ['STALE@'] = str(V)", "int(os.environ['STALE@'])"),
    "environment_get": ("if V % 2: os.environ['STALE@'] = str(V)", "int(os.environ.get('STALE@', '7'))"),
    "getenv": ("os.environ['STALE@'] = str(V)", "int(os.getenv('STALE@'))"),
    "property": ("class C@:\n    @property\n    def a(self): return L\nX@ = C@()", "X@.a"),
    "cached_property": ("class C@:\n    @functools.cached_property\n    def a(self): return V\nX@ = C@()", "X@.a"),
    "descriptor": ("class D@:\n    def __get__(self, o, t): return V\nclass C@: a = D@()\nX@ = C@()", "X@.a"),
    "getattr_method": ("class C@:\n    def __getattr__(self, n): return V\nX@ = C@()", "X@.anything"),
    "getitem": ("class C@:\n    def __getitem__(self, k): return V + L * k\nX@ = C@()", "X@[1]"),
    "getitem_of_types": ("class C@:\n    def __getitem__(self, k): return V if k is True else 3\nX@ = C@()",
                         "(X@[1] + X@[True])"),
    "length": ("class C@:\n    def __len__(self): return V\nX@ = C@()", "len(X@)"),
    "iteration": ("class C@:\n    def __iter__(self): return iter([1, V])\nX@ = C@()", "sum([w for w in X@])"),
    "iterated": ("class C@:\n    def __iter__(self): return iter([1, V])\nX@ = C@()", "sum(X@)"),
    "generator": ("def g@():\n    yield V\n    yield 2", "sum([w for w in g@()])"),
    "membership": ("class C@:\n    def __contains__(self, k): return k < V\nX@ = C@()", "(1 if qd.static(2 in X@) else 4)"),
    "truth": ("class C@:\n    def __bool__(self): return V % 2 == 0\nX@ = C@()", "(1 if X@ else 4)"),
    "truth_of_length": ("class C@:\n    def __len__(self): return V % 2\nX@ = C@()", "(1 if X@ else 4)"),
    "truth_added": ("class C@: pass\nif V % 2: C@.__bool__ = lambda self: False\nX@ = C@()", "(1 if X@ else 4)"),
    "call": ("class C@:\n    def __call__(self, k): return V + k\nX@ = C@()", "X@(1)"),
    "operators": ("class C@:\n    def __add__(self, o): return V + o\n    def __eq__(self, o): return V == o\n"
                  "    __hash__ = None\nX@ = C@()", "((X@ + 1) + (X@ == 3))"),
    "reflected": ("class C@:\n    def __rsub__(self, o): return V\nX@ = C@()", "(1 - X@)"),
    "inplace_classes": ("class C@:\n    def __neg__(self): return L\n    def __invert__(self): return V\nX@ = C@()",
                        "(-X@ + ~X@)"),
    "conversion": ("class C@:\n    def __int__(self): return V\n    def __float__(self): return V + 0.5\nX@ = C@()",
                   "(int(X@) + float(X@))"),
    "index": ("class C@:\n    def __index__(self): return V % 3\nX@ = C@()", "[1, 5, 9][X@]"),
    "index_method": ("class C@:\n    def __index__(self): return V\nX@ = C@()", "operator.index(X@)"),
    "rounding": ("class C@:\n    def __round__(self, n=0): return V\nX@ = C@()", "round(X@)"),
    "absolute": ("class C@:\n    def __abs__(self): return V\nX@ = C@()", "abs(X@)"),
    "power": ("class C@:\n    def __pow__(self, o, m=None): return V\nX@ = C@()", "pow(X@, 2)"),
    "format": ("class C@:\n    def __format__(self, s): return 'x' * V\nX@ = C@()", "len(f'{X@}')"),
    "str": ("class C@:\n    def __str__(self): return 'x' * V\nX@ = C@()", "len(str(X@))"),
    "repr": ("class C@:\n    def __repr__(self): return 'x' * V\nX@ = C@()", "len(f'{X@!r}')"),
    "percent": ("class C@:\n    def __str__(self): return 'x' * V\nX@ = C@()", "len('%s' % X@)"),
    "format_call": ("class C@:\n    def __str__(self): return 'x' * V\nX@ = C@()", "len('{}'.format(X@))"),
    "comparison": ("@functools.total_ordering\nclass C@:\n    def __init__(self, n): self.n = n\n"
                   "    def __lt__(self, o): return self.n < o.n\nX@, Y@ = C@(V), C@(3)", "(1 if X@ < Y@ else 4)"),
    "sorting": ("X@ = [V, 3, 1]", "sorted(X@)[1]"),
    "sorting_key": ("X@ = [1, 2, 3]\ndef key@(x): return x * (-1) ** V", "sorted(X@, key=key@)[0]"),
    "reversed": ("X@ = [1, V]", "list(reversed(X@))[0]"),
    "zip": ("X@, Y@ = [1, V], (V, 2)", "sum([a * b for a, b in zip(X@, Y@)])"),
    "zip_objects": ("X@ = [types.SimpleNamespace(a=V)]\nY@ = [V + 1]", "sum([o.a * b for o, b in zip(X@, Y@)])"),
    "enumerate": ("X@ = [types.SimpleNamespace(a=V)] * 2", "sum([k * o.a for k, o in enumerate(X@)])"),
    "enumerate_from": ("X@ = [1, 2]", "sum([k * o for k, o in enumerate(X@, START@)])", "START@ = V"),
    "map": ("X@ = ['1', str(V)]", "sum(map(int, X@))"),
    "filter": ("X@ = [0, V, 2 * V]\ndef keep@(x): return x > 3", "sum(filter(keep@, X@))"),
    "any_all": ("X@ = [V % 2, 0]", "(any(X@) + 2 * all(X@))"),
    "any_of_object": ("class C@:\n    def __iter__(self): return iter([V % 2])\nX@ = C@()", "(2 if any(X@) else 1)"),
    "minimum": ("X@ = {'a': V, 'b': 3}", "max(X@.values())"),
    "divmod": ("X@ = V + 20", "divmod(X@, 7)[1]"),
    "range": ("X@ = range(V)", "len(X@)"),
    "slice": ("X@ = [1, 2, 3, 4, 5, 6, 7, 8]\nY@ = slice(0, V)", "sum(X@[Y@])"),
    "slice_bounds": ("X@ = [1, 2, 3, 4, 5, 6, 7, 8]\nY@ = V", "sum(X@[1:Y@])"),
    "slice_of_objects": ("X@ = [types.SimpleNamespace(a=k) for k in range(9)]\nY@ = slice(V, 9)", "X@[Y@][0].a"),
    "key_object": ("X@ = {'a': 1, 'b': 4}\nY@ = 'ab'[V % 2]", "X@[Y@]"),
    "negative_zero": ("X@ = 0.0 if V % 2 else -0.0", "math.copysign(2.0, X@)"),
    "nan": ("X@ = float('nan') if V % 2 else 1.5", "(2 if X@ != X@ else 1)"),
    "number_type": ("X@ = [1, 1.0, True][V % 3]", "(X@ / 2 + len(str(X@)))"),
    "big_integer": ("X@ = 10 ** 30 + V", "(X@ % 100)"),
    "complex": ("X@ = complex(V, 1)", "X@.real"),
    "fraction": ("X@ = fractions.Fraction(V, 3)", "X@.numerator"),
    "fraction_product": ("X@ = fractions.Fraction(V, 3)", "float(X@ * 3)"),
    "decimal": ("X@ = decimal.Decimal(V)", "int(X@)"),
    "array": ("X@ = np.array([V, 1])", "X@[0]"),
    "array_content": ("X@ = np.zeros(4)\nX@[2] = V", "X@[2]"),
    "array_shape": ("X@ = np.zeros(V)", "X@.shape[0]"),
    "array_sum": ("X@ = np.arange(V)", "X@.sum()"),
    "array_dtype": ("X@ = np.zeros(2, [np.int32, np.float64][V % 2])", "X@.itemsize"),
    "big_array": ("X@ = np.full(20000, V)", "X@[19999]"),
    "array_function": ("X@ = np.array([V, 2])", "int(np.max(X@))"),
    "vector": ("X@ = qd.Vector([V, 2])", "X@[0]"),
    "vector_sum": ("X@ = qd.Vector([V, 2])", "X@.sum()"),
    "matrix": ("X@ = qd.Matrix([[V, 2], [3, 4]])", "(X@ @ X@)[0, 0]"),
    "struct": ("X@ = qd.Struct(a=V, b=1)", "X@.a"),
    "dtype": ("X@ = [qd.i32, qd.f32][V % 2]", "qd.cast(2.5, X@)"),
    "vector_type": ("X@ = qd.types.vector(V, qd.i32)", "X@(1).sum()"),
    "struct_type": ("X@ = qd.types.struct(a=[qd.i32, qd.f32][V % 2])", "X@(a=2.5).a"),
    "field_shape": ("X@ = qd.field(qd.i32, V)", "X@.shape[0]"),
    "field_kind": ("X@ = qd.field([qd.i32, qd.f32][V % 2], 2)\nX@.fill(2.5 if V % 2 else 2)", "(X@[0] * 1.5)"),
    "which_field": ("A@, B@ = qd.field(qd.i32, 2), qd.field(qd.i32, 2)\nA@.fill(1)\nB@.fill(5)\n"
                    "X@ = [A@, B@][:: 1 if V % 2 else -1]", "X@[0][1]"),
    "field_attribute": ("X@ = qd.field(qd.i32, 2)\nX@.weight = V", "X@.weight"),
    "helper": ("def h@(k): return V + L * k", "h@(2)"),
    "helper_keywords": ("def h@(k, *, j=1): return V + L * k * j", "h@(2, j=3)"),
    "helper_of_helper": ("def g@(): return L\ndef h@(): return g@() + V", "h@()"),
    "helper_default": ("def h@(k=V): return k", "h@()"),
    "helper_of_object": ("X@ = types.SimpleNamespace(a=V)\ndef h@(o): return o.a", "h@(X@)"),
    "helper_of_list": ("X@ = [types.SimpleNamespace(a=V)]\ndef h@(o): return o[0].a", "h@(X@)"),
    "helper_of_display": ("X@ = types.SimpleNamespace(a=V)\ndef h@(o): return o[1].a", "h@((1, X@))"),
    "helper_makes_object": ("def h@(): return types.SimpleNamespace(a=[V])", "h@().a[0]"),
    "helper_sees_global": ("Z@ = V\ndef h@(): return Z@", "h@()"),
    "helper_answers_function": ("def g@(): return V\ndef h@(): return g@", "h@()()"),
    "closure": ("def make@(n):\n    def h(): return n\n    return h\nX@ = make@(V)", "X@()"),
    "lambda": ("X@ = lambda k: k + V", "X@(1)"),
    "partial": ("X@ = functools.partial(operator.add, V)", "X@(1)"),
    "cached_function": ("@functools.lru_cache\ndef h@(k): return V + k", "h@(1)"),
    "decorated": ("def d@(n):\n    def wrap(f):\n        @functools.wraps(f)\n        def g(): return f() + n\n"
                  "        return g\n    return wrap\n@d@(V)\ndef h@(): return L", "h@()"),
    "method": ("class C@:\n    def m(self, k): return V + L + k\nX@ = C@()", "X@.m(1)"),
    "kept_method": ("X@ = [V, 2].__getitem__", "X@(0)"),
    "static_method": ("class C@:\n    @staticmethod\n    def m(): return V", "C@.m()"),
    "class_method": ("class C@:\n    a = V\n    @classmethod\n    def m(cls): return cls.a", "C@.m()"),
    "override": ("class B@:\n    def m(self): return 1\nclass C@(B@): pass\nX@ = C@()\n"
                 "if V % 2: C@.m = lambda self: 4", "X@.m()"),
    "made": ("class C@:\n    def __init__(self, k): self.a = k + V", "C@(2).a"),
    "context_variable": ("X@ = contextvars.ContextVar('x@', default=V)", "X@.get()"),
    "chain_map": ("X@ = collections.ChainMap({}, {'a': V})", "X@['a']"),
    "mapping_proxy": ("X@ = types.MappingProxyType({'a': V})", "X@['a']"),
    "memory_view": ("X@ = memoryview(bytes([V, 1]))", "X@[0]"),
    "bytearray": ("X@ = bytearray([V, 1])", "X@[0]"),
    "operator_module": ("X@ = {'a': V}", "operator.itemgetter('a')(X@)"),
    "bisect": ("X@ = [V, 4, 5]", "bisect.bisect(X@, 3)"),
    "math_of_object": ("class C@:\n    def __float__(self): return V + 0.5\nX@ = C@()", "math.floor(X@)"),
    "callable": ("class C@: pass\nif V % 2: C@.__call__ = lambda self: 1\nX@ = C@()", "(1 if callable(X@) else 4)"),
    "vars": ("X@ = types.SimpleNamespace(a=V)", "vars(X@)['a']"),
    "instance_dict": ("X@ = types.SimpleNamespace(a=V)", "X@.__dict__['a']"),
    "globals": ("X@ = V", "globals()['X@']"),
    "evaluated": ("X@ = V", "eval('X@', {'X@': X@})"),
    "doc": ("def h@(): pass\nh@.__doc__ = 'a' * V", "len(h@.__doc__)"),
    "function_attribute": ("def h@(): pass\nh@.a = V", "h@.a"),
    "function_default": ("def h@(k=V): pass", "h@.__defaults__[0]"),
    "class_name": ("C@ = type('C' * V, (), {})", "len(C@.__name__)"),
    "metaclass": ("class M@(type):\n    @property\n    def a(cls): return V\nclass C@(metaclass=M@): pass", "C@.a"),
    "metaclass_length": ("class M@(type):\n    def __len__(cls): return V\nclass C@(metaclass=M@): pass", "len(C@)"),
    "instance_check": ("class M@(type):\n    def __instancecheck__(cls, o): return V % 2 == 0\n"
                       "class C@(metaclass=M@): pass", "(1 if isinstance(3, C@) else 4)"),
    "shadowed_builtin": ("", "len@([1, 2])", "len@ = len if V % 2 else sum"),
    "literal": ("X@ = L", "X@"),
    "kernel_self": ("", "self.n"), "kernel_self_list": ("", "self.items[1]"),
    "kernel_self_nested": ("", "self.inner.n"), "kernel_self_dict": ("", "self.table['a']"),
    "kernel_self_vector": ("", "self.vector[0]"), "kernel_self_class": ("", "self.constant"),
    "kernel_self_property": ("", "self.computed"), "kernel_self_method": ("", "self.method(2)"),
    "kernel_self_dataclass": ("", "self.data.y"),
    "iterator": ("X@ = iter([V, 2])", "next(X@)"),
    "state": ("Z@ = [0]\ndef h@():\n    Z@[0] += V\n    return Z@[0]", "h@()"),
    "state_by_keyword": ("Z@ = {'a': 0}\ndef h@(*, a):\n    Z@['a'] += a\n    return Z@['a']", "h@(a=V@)", "V@ = V"),
    "popped": ("X@ = [9, V, 2]", "X@.pop(1)"),
    "random": ("X@ = random.Random(V)", "X@.randint(1, 9)"),
    "random_array": ("X@ = np.random.RandomState(V)", "int(X@.randint(9))"),
    "file": ("(HERE / 'f@').write_text(str(V))\ndef h@(): return int((HERE / 'f@').read_text())", "h@()"),
    "file_exists": ("if V % 2: (HERE / 'e@').write_text('')\nelse: (HERE / 'e@').unlink(missing_ok=True)",
                    "(1 if os.path.exists(HERE / 'e@') else 4)"),
    "opened": ("(HERE / 'o@').write_text(str(V))\nX@ = str(HERE / 'o@')", "int(open(X@).read())"),
    "import_module": ("X@ = types.ModuleType('m@')\nX@.a = V\nsys.modules['m@'] = X@",
                      "importlib.import_module('m@').a"),
    "modules": ("X@ = types.ModuleType('m@')\nX@.a = V\nsys.modules['m@'] = X@", "sys.modules['m@'].a"),
    "module_getattr": ("X@ = types.ModuleType('m@')\nX@.__getattr__ = lambda n: V", "X@.a"),
    "getattribute": ("class C@:\n    def __getattribute__(self, n): return V\nX@ = C@()", "X@.a"),
    "class_getitem": ("class C@:\n    def __class_getitem__(cls, k): return V + k", "C@[1]"),
    "missing": ("class C@(dict):\n    def __missing__(self, k): return V\nX@ = C@()", "X@['z']"),
    "dict_class": ("class C@(dict):\n    def get(self, k): return L\nX@ = C@()", "X@.get('z')"),
    "list_class": ("class C@(list):\n    def __getitem__(self, k): return L\nX@ = C@([1])", "X@[0]"),
    "list_class_length": ("class C@(list):\n    def __len__(self): return L\nX@ = C@([1])", "len(X@)"),
    "string_class": ("class C@(str):\n    def __len__(self): return L\nX@ = C@('a')", "len(X@)"),
    "float_class": ("class C@(float): pass\nX@ = C@(V)", "X@"),
    "flag": ("class C@(enum.IntFlag):\n    A = 1\n    B = 2\nX@ = C@(V % 4)", "int(X@)"),
    "enum_operator": ("class C@(enum.Enum):\n    A = 1\n    def __add__(self, o): return L + o", "(C@.A + 1)"),
    "enum_by_value": ("class C@(enum.IntEnum):\n    A = V\n    B = 9 + V", "C@['B']"),
    "array_module": ("X@ = array.array('i', [V, 1])", "X@[0]"),
    "ctypes_value": ("X@ = ctypes.c_int(V)", "X@.value"),
    "structured_array": ("X@ = np.array([(V, 1)], dtype=[('a', 'i4'), ('b', 'i4')])", "X@['a'][0]"),
    "array_view": ("X@ = np.arange(8)[:: 1 + V % 2]", "X@[2]"),
    "array_strides": ("X@ = np.zeros((V, 3), order='FC'[V % 2])", "X@.strides[0]"),
    "array_flags": ("X@ = np.zeros(3)\nX@.flags.writeable = V % 2 == 0", "(1 if X@.flags.writeable else 4)"),
    "array_zero_d": ("X@ = np.array(V)", "X@ + 0"),
    "array_list": ("X@ = [np.array([V])]", "X@[0][0]"),
    "array_compare": ("X@ = np.array([V, 3])", "int((X@ == 3).sum())"),
    "super": ("class B@:\n    def m(self): return L\nclass C@(B@):\n    def m(self): return super().m() + V\nX@ = C@()",
              "X@.m()"),
    "dataclass_default": ("@dataclasses.dataclass\nclass C@:\n    a: int = V\nX@ = C@()", "X@.a"),
    "dataclass_fields": ("X@ = dataclasses.make_dataclass('C@', [f'm{k}' for k in range(V)])",
                         "len(dataclasses.fields(X@))"),
    "frozen_dataclass": ("@dataclasses.dataclass(frozen=True)\nclass C@:\n    a: int\nX@ = C@(V)", "X@.a"),
    "annotations": ("class C@: pass\nC@.__annotations__ = {'a': V}", "C@.__annotations__['a']"),
    "argv": ("sys.argv[4:] = [str(V)]", "int(sys.argv[4])"),
    "name": ("__name__ = 'a' * V", "len(__name__)"),
    "copy": ("X@ = [V, [1]]", "copy.deepcopy(X@)[0]"),
    "itertools": ("X@ = [V, 1]", "list(itertools.chain(X@, X@))[2]"),
    "accumulated": ("X@ = [V, 1]", "[w for w in itertools.accumulate(X@)][1]"),
    "tuple_plus": ("X@ = [types.SimpleNamespace(a=V)]", "(X@ + X@)[1].a"),
    "list_times": ("X@ = [types.SimpleNamespace(a=V)]", "(X@ * 2)[1].a"),
    "list_of_list": ("X@ = [types.SimpleNamespace(a=V)]", "list(X@)[0].a"),
    "starred_display": ("X@ = [types.SimpleNamespace(a=V)]", "[1, *X@][1].a"),
    "dict_display": ("X@ = types.SimpleNamespace(a=V)", "{'k': X@}['k'].a"),
    "dict_merge": ("X@ = {'a': V}", "{'b': 1, **X@}['a']"),
    "dict_comprehension": ("X@ = {'a': V}", "{k: w + 1 for k, w in X@.items()}['a']"),
    "comprehension_condition": ("X@ = [1, 2, 3, 4, 5]\nY@ = V", "len([w for w in X@ if w < Y@])"),
    "conditional": ("X@, Y@ = types.SimpleNamespace(a=1), types.SimpleNamespace(a=5)\nZ@ = V % 2 == 0",
                    "(X@ if qd.static(Z@) else Y@).a"),
    "and_or": ("X@ = [None, types.SimpleNamespace(a=V)][V % 2]\nY@ = types.SimpleNamespace(a=8)",
               "qd.static(X@ or Y@).a"),
    "chained_comparison": ("X@ = V", "(1 if 1 < X@ < 4 else 6)"),
    "nested_function": ("class C@:\n    @qd.func\n    def m(self): return L\n@qd.data_oriented\nclass D@(C@): pass\nX@ = D@()",
                        "X@.m()"),
    "base_func": ("class A@:\n    @qd.func\n    def m(self): return 1\nclass B@:\n    @qd.func\n    def m(self): return 5\n"
                  "@qd.data_oriented\nclass D@((A@, B@)[V % 2]): pass\nX@ = D@()", "X@.m()"),
    "func_in_table": ("@qd.func\ndef g@(): return 1\n@qd.func\ndef h@(): return L\nX@ = {'a': (g@, h@)[V % 2]}",
                      "X@['a']()"),
    "func_of_factory": ("def make@(n):\n    @qd.func\n    def h(): return n\n    return h\nX@ = make@(V)", "X@()"),
    "func_default": ("@qd.func\ndef h@(k=V): return k", "h@()"),
    "func_annotation": ("T@ = [qd.i32, qd.f32][V % 2]\n@qd.func\ndef h@(k: T@): return k", "h@(2.75)"),
    "func_returns_object": ("X@ = types.SimpleNamespace(a=V)\n@qd.func\ndef h@(): return X@", "h@().a"),
    "func_returns_list": ("X@ = [V] * 5000\n@qd.func\ndef h@(): return X@", "h@()[3]"),
    "func_of_object": ("X@ = types.SimpleNamespace(a=V)\n@qd.func\ndef h@(o: qd.template()): return o.a", "h@(X@)"),
    "func_of_list": ("X@ = [V] * 5000\n@qd.func\ndef h@(o): return o[1]", "h@(X@)"),
    "func_of_type": ("class A@: a = 1\nclass B@: a = 5\nX@ = (A@, B@)[V % 2]\n@qd.func\n"
                     "def h@(o: qd.template()): return o.a", "h@(X@)"),
    "func_isinstance": ("class A@: pass\nclass B@((A@, object)[V % 2]): pass\nX@ = B@()\n@qd.func\n"
                        "def h@(o: qd.template()): return 1 if qd.static(isinstance(o, A@)) else 4", "h@(X@)"),
    "func_zip": ("X@ = [types.SimpleNamespace(a=V)]\n@qd.func\ndef h@(o: qd.template()):\n    s = 0\n"
                 "    for k, p in qd.static(enumerate(o)): s += p.a + k\n    return s", "h@(X@)"),
    "real_func": ("Y@ = V\n@qd.real_func\ndef h@(k: qd.i32) -> qd.i32: return k + Y@", "h@(1)"),
    "unrolled_warning": ("", "sum([w for w in range(3)])"),
    # Given as arguments: `a` is the kernel's parameter.
    "argument_number": ("", "a", "A@ = V"), "argument_float": ("", "a", "A@ = -0.0 if V % 2 else 0.0"),
    "argument_text": ("", "len(a)", "A@ = 'a' * V"), "argument_tuple": ("", "a[1]", "A@ = (1, V)"),
    "argument_zeros": ("", "math.copysign(3.0, a[0])", "A@ = (-0.0 if V % 2 else 0.0,)"),
    "argument_vector": ("", "a[0]", "A@ = qd.Vector([V, 1])"),
    "argument_matrix": ("", "a[1, 0]", "A@ = qd.Matrix([[1, 2], [V, 4]])"),
    "argument_struct": ("", "a.x", "A@ = qd.Struct(x=V)"),
    "argument_enum": ("E@ = enum.Enum('E@', 'P Q')", "(1 if a == E@.P else 5)", "A@ = list(E@)[V % 2]"),
    "argument_type": ("", "qd.cast(2.5, a)", "A@ = [qd.i32, qd.f32][V % 2]"),
    "argument_function": ("@qd.func\ndef g@(): return 1\n@qd.func\ndef h@(): return L", "a()", "A@ = (g@, h@)[V % 2]"),
    "argument_frozen": ("@dataclasses.dataclass(frozen=True)\nclass C@:\n    x: int", "a.x", "A@ = C@(V)"),
    "argument_object": ("@qd.data_oriented\nclass C@:\n    def __init__(self): self.x = [V]", "a.x[0]", "A@ = C@()"),
    "argument_nested": ("@qd.data_oriented\nclass C@:\n    def __init__(self): self.x = types.SimpleNamespace(y=V)",
                        "a.x.y", "A@ = C@()"),
    "argument_members": ("@qd.data_oriented(template_primitives=False)\nclass C@:\n    def __init__(self): self.x = V",
                         "a.x", "A@ = C@()"),
    "argument_annotated": ("@dataclasses.dataclass\nclass C@:\n    x: (qd.i32, qd.f32)[V % 2]\n"
                           "@qd.data_oriented\nclass D@:\n    def __init__(self): self.c = C@(2)", "(a.c.x / 4)", "A@ = D@()"),
    "argument_field": ("", "a.shape[0]", "A@ = qd.field(qd.i32, V)"),
    "argument_layout": ("", "a[0, 1]", "A@ = qd.tensor(qd.i32, shape=(2, 3), backend=qd.Backend.NDARRAY, "
                        "layout=[None, (1, 0)][V % 2])\nA@.from_numpy(np.arange(6, dtype=np.int32).reshape(2, 3))"),
    "argument_dtype": ("", "(a[1] / 2)", "A@ = np.arange(3, dtype=[np.int32, np.float32][V % 2])"),
    "argument_rank": ("", "len(a.shape)", "A@ = np.zeros((2,) * (1 + V % 2), np.int32)"),
}  # fmt: skip

OWNER = """
@dataclasses.dataclass
class Data@:
    y: int
@qd.data_oriented
class Inner@:
    def __init__(self): self.n = V
@qd.data_oriented
class Owner@:
    constant = V
    def __init__(self):
        self.n, self.items, self.inner, self.table = V, [1, V], Inner@(), dict(a=V)
        self.vector, self.data = qd.Vector([V, 2]), Data@(V)
    @property
    def computed(self): return V + L
    def method(self, k): return V * k + L
"""

# What is done with it: the body of a kernel, where `{}` is the expression.
USES = [
    "return {}",
    "return {} + 1",
    "x = {} * 2\n    return x",
    "x = 0.0\n    x += {}\n    return x",
    "return qd.static({}) * 2",
    "return 1 if qd.static({} > 3) else 2",
    "x = 1\n    if qd.static({} == 3): x = 5\n    return x",
    "s = 0\n    for k in qd.static(range(int({}))): s += k + 1\n    return s",
    "s = 0\n    for k in range(int({})): s += k + 1\n    return s",
    "return qd.Vector([{}, 2]).sum()",
    "return [10, {}, 30][1]",
    "t = qd.static({})\n    return t * 1.5",
    "return max({}, 3) - min({}, 2)",
    "return twice@({})",
    "return constant@({})",
    "return (lambda_free@({}), 1)[0]",
    "x = qd.cast({}, qd.f64)\n    return x / 4",
    "return abs({}) + 0.5",
    "x = 0\n    while x < {}: x += 1\n    return x",
    "return {} // 2 + {} % 3",
    "return -({})",
    "return qd.select({} > 2, 7, 8)",
    "s = 0.0\n    for i in range(3): s += i * {}\n    return s",
    "x = 2.5\n    return max(x, {}) + [x, {}][1]",
    "x = 2\n    y = [x, {}]\n    return qd.Vector(y)[x - 1] + y[1]",
    "x = 1\n    if x < {} and {} < 5: x = 7\n    return x",
    "x = 3\n    assert x < {}, 'too large'\n    return x",
    "s = 0\n    for k in qd.static(range(3)): s += {}\n    return s",
    "t = ({}, 2)\n    a_, b_ = t\n    return a_ - b_",
]

FUNCS = """
@qd.func
def twice@(x): return x * 2
@qd.func
def constant@(x: qd.template()): return x + 1
@qd.func
def lambda_free@(x): return x
"""


def source_is_array(source: str) -> bool:
    return source in ("argument_layout", "argument_dtype", "argument_rank")


class Case:
    """One kernel of a program: the way in which it captures, and what it does with that."""

    def __init__(self, number: int, source: str, use: str, inside: bool) -> None:
        self.number, self.source = number, source
        setup, expression, *late = SOURCES[source]
        self.setup, self.late = setup, "".join(late)
        body = use.format(*[expression] * use.count("{}"))
        self.body = body.replace(" @ ", " \0 ").replace("@", str(number)).replace("\0", "@")
        self.owned, self.inside = source.startswith("kernel_self"), inside
        self.argument = source.startswith("argument_")
        self.expression = expression

    def text(self, literal: int) -> str:
        n = str(self.number)
        setup = "\n".join(filter(None, [OWNER if self.owned else "", self.setup, self.late, FUNCS]))
        if "{'" in setup and "L % 2 else" in setup:
            setup = setup.replace("{'A@' if L % 2 else 'B@'}", "A@" if literal % 2 else "B@")
        setup = (
            self.filled(setup, literal)
            .replace("@qd.", "\0qd.")
            .replace("@functools.", "\0functools.")
        )
        for decorator in ("@property", "@staticmethod", "@classmethod", "@dataclasses.", "@d@("):
            setup = setup.replace(decorator, "\0" + decorator[1:])
        setup = setup.replace(" @ ", " \0 ").replace("@", n).replace("\0", "@")
        if self.owned:
            kernel = textwrap.indent(
                f"@qd.kernel\ndef k{n}(self) -> qd.f64:\n    {self.body}\n", "    "
            )
            at = setup.index("def method(self, k)")
            end = setup.index("\n", at) + 1
            return setup[:end] + kernel + setup[end:] + f"\nrun({n}, Owner{n}().k{n})\n"
        if self.argument:
            kind = "qd.types.ndarray()" if source_is_array(self.source) else "qd.template()"
            body = f"@qd.kernel\ndef k{n}(a: {kind}) -> qd.f64:\n    {self.body}\nrun({n}, k{n}, A{n})\n"
            return f"{setup}\n{body}"
        if self.inside:
            body = f"@qd.func\ndef f{n}():\n    {self.body}\n@qd.kernel\ndef k{n}() -> qd.f64:\n    return f{n}()\n"
        else:
            body = f"@qd.kernel\ndef k{n}() -> qd.f64:\n    {self.body}\n"
        return f"{setup}\n{body}run({n}, k{n})\n"

    def filled(self, text: str, literal: int) -> str:
        out, word = [], ""
        for c in text + " ":
            if c.isalnum() or c in "_@\"'":
                word += c
                continue
            out.append(
                {"V": f"values[{self.number}]", "L": str(literal), "OBJECT": "object()"}.get(
                    word, word
                )
            )
            out.append(c)
            word = ""
        return "".join(out)[:-1]


class Program:
    """A file of kernels, its values and its literals; edits change some of both."""

    def __init__(self, rng: random.Random, kernels: int, sources: list[str]) -> None:
        self.rng = rng
        self.cases = [
            Case(k, sources[k % len(sources)] if k < len(sources) else rng.choice(list(SOURCES)),
                 rng.choice(USES), rng.random() < 0.3)
            for k in range(kernels)
        ]  # fmt: skip
        self.values = [rng.randint(1, 6) for _ in self.cases]
        self.literals = [rng.randint(1, 6) for _ in self.cases]
        self.comments = 0
        self.options = self.drawn_options()
        self.warns = rng.random() < 0.5

    def edit(self) -> None:
        for k in range(len(self.cases)):
            choice = self.rng.random()
            if choice < 0.6:
                self.values[k] = self.rng.choice([v for v in range(1, 7) if v != self.values[k]])
            if choice > 0.5:
                self.literals[k] = self.rng.choice(
                    [v for v in range(1, 7) if v != self.literals[k]]
                )
        self.comments = self.rng.randint(0, 3)
        if self.rng.random() < 0.2:
            self.options = self.drawn_options()

    def drawn_options(self) -> dict:
        choose = self.rng.choice
        return {
            "debug": choose([False, False, True]), "unrolling_limit": choose([32, 2]), "default_fp": choose(["f32", "f64"]),
            "fast_math": choose([True, False]), "default_ip": choose(["i32", "i32", "i64"]),
        }  # fmt: skip

    def text(self) -> str:
        parts = [c.text(v) for c, v in zip(self.cases, self.literals)]
        return (
            HEAD.replace("WARNS", str(self.warns))
            + "# a comment\n" * self.comments
            + "\n".join(parts)
            + TAIL
        )

    def run(self, folder: Path, cache: str) -> dict[str, list]:
        path = folder / "program.py"
        path.write_text(self.text())
        done = subprocess.run(
            [sys.executable, str(path), cache, json.dumps(self.values), json.dumps(self.options)],
            capture_output=True, text=True, timeout=300,
            env=dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", PYTHONDONTWRITEBYTECODE="1", QD_CPU_TIER="0"),
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"exit {done.returncode}: {done.stderr[-3000:]}")
        return json.loads(done.stdout.split("RESULT ")[1])


def campaign(seed: int, kernels: int, edits: int, steps: int = 8, report=print) -> dict:
    """Runs programs until that many edits were made. Returns counts and what was stale."""
    total = {"edits": 0, "changed": 0, "lowered": 0, "errors": 0, "stale": []}
    rng = random.Random(seed)
    order: list[str] = []
    while total["edits"] < edits:
        if len(order) < kernels:
            fresh = list(SOURCES)
            rng.shuffle(fresh)
            order += fresh
        program = Program(rng, kernels, order[:kernels])
        order = order[kernels:]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            program.run(folder, str(folder / "cache"))
            before = program.run(folder, "")
            for _ in range(steps):
                program.edit()
                warm = program.run(folder, str(folder / "cache"))
                cold = program.run(folder, "")
                for case in program.cases:
                    got, want = warm[str(case.number)], cold[str(case.number)]
                    total["edits"] += 1
                    total["changed"] += want[0] != before[str(case.number)][0]
                    total["lowered"] += got[1]
                    total["errors"] += re.match(r"\w+: ", want[0]) is not None
                    if got[0] != want[0]:
                        stale = {"source": case.source, "body": case.body, "inside": case.inside,
                                 "warm": got[0], "cold": want[0]}  # fmt: skip
                        total["stale"].append(stale)
                        report(f"STALE {stale}")
                before = cold
                if total["edits"] >= edits:
                    break
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kernels", type=int, default=60)
    parser.add_argument("--edits", type=int, default=500)
    parser.add_argument("--steps", type=int, default=8, help="edits of one program")
    parser.add_argument("--errors", action="store_true", help="shows which kernels raise")
    args = parser.parse_args()
    if args.errors:
        program = Program(random.Random(args.seed), len(SOURCES), list(SOURCES))
        with tempfile.TemporaryDirectory() as name:
            for number, (result, _) in program.run(Path(name), "").items():
                case = program.cases[int(number)]
                if re.match(r"\w+: ", result):
                    print(f"{case.source:28} {case.body!r:60} {result[:100]}")
        return 0
    start = time.time()
    total = campaign(args.seed, args.kernels, args.edits, args.steps)
    print(f"{len(SOURCES)} ways, {len(USES)} uses, seed {args.seed}: {total['edits']} edits, "
          f"{total['changed']} changed the result, {total['lowered']} ran the front end, "
          f"{total['errors']} raised, {len(total['stale'])} stale, {time.time() - start:.0f} s")  # fmt: skip
    return 1 if total["stale"] else 0


if __name__ == "__main__":
    sys.exit(main())
