"""What a kernel was made from, in whatever way it was reached, decides whether stored code is used.

One program of many kernels runs three times: with one value of `V`, with another and the same cache,
and with the other and an empty cache. The last two must agree. Only `V` changes, so the texts of the
kernels stay.
"""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

import quadrants as qd

HEAD = """
import dataclasses, enum, fractions, json, sys, types, warnings
import quadrants as qd
from quadrants._lib import core

warnings.simplefilter("ignore")
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.ERROR)
V = int(sys.argv[2])

F = qd.field(qd.f32, 3)
MIXED = [F, V]  # a list that is not of constants only
NESTED = [[F, [V]], 2]
NAMED = {"field": F, "number": V}
ORDER = {"a": F, "b": F} if V == 5 else {"b": F, "a": F}
LONG = [float(V)] * 4000
THIRDS = [V / 3] * 500  # longer than what is kept as text
WRAPPED = [THIRDS]
class Code(enum.IntEnum): OTHER, GIVEN = 1, V
HUGE = 10**5000 + V  # more digits than Python puts into a text
class Whole(int): pass

class Items:
    def __iter__(self):
        return iter([1, V])

class Number:
    def __init__(self): self.n = V
    def __add__(self, other): return self.n + other
    def __neg__(self): return -self.n
    def __eq__(self, other): return self.n == other
    def __lt__(self, other): return self.n < other
    def __bool__(self): return self.n > 5
    def __contains__(self, x): return x == self.n
    def __str__(self): return "x" * self.n
    __hash__ = None

class Part:
    def __init__(self): self.weight = V

class Rows(list): pass
class Pair(tuple): pass

ITEMS, NUMBER, PART = Items(), Number(), Part()
ROWS, PAIR = Rows([V, 1]), Pair([V, 1])
THIRD = fractions.Fraction(V, 3)
STRUCT = qd.Struct(a=V)
KEPT = [V].__getitem__
METHODS = types.SimpleNamespace(
    find=("." * V + "x").find, bits=(1 << V).bit_length, ratio=(V / 2).as_integer_ratio, pop=[V].pop)
class Methods: find = METHODS.find
@dataclasses.dataclass(frozen=True)
class Keeper:
    find: object
    total: object
KEEPER = Keeper(METHODS.find, qd.Vector([V, 1]).sum)
TOTAL, LARGEST = qd.Vector([V, 1]).sum, [qd.Matrix([[V, 1], [2, 3]]).max]
TRACKED = types.SimpleNamespace(asked=qd.ndarray(qd.f32, 2, needs_grad=V == 5).has_grad)
SIZES = types.SimpleNamespace(cast=qd.Vector([V, 1]).cast, parent=qd.field(qd.f32, V).parent)
VEC = qd.types.vector(2, qd.f32 if V == 5 else qd.i32)
WIDE = qd.types.vector(V, qd.f32)
REC = qd.types.struct(a=qd.f32, b=qd.f32 if V == 5 else qd.i32)
TYPE = qd.f32 if V == 5 else qd.i32
CALL = float if V == 5 else int

def constant(n):
    @qd.func
    def f(): return n
    return f

ONE = constant(1)
OTHER = ONE if V == 5 else constant(V)

@qd.func
def default(x, n=V): return x + n
@qd.func
def default_list(x, n=[1, V]): return x + n[1]
@qd.func
def annotated(x: TYPE): return x * 1.0
@qd.func
def returning(x) -> TYPE: return x
@qd.real_func
def real(x: TYPE) -> TYPE: return x
@qd.func
def second(items): return items[1]
@qd.func
def weights(parts: qd.template()):
    s = 0.0
    for p in qd.static(parts): s += p.weight
    return s

@qd.func
def weighed(x, part: qd.template()): return x + part.weight * 1.0
@qd.func
def with_code(x):
    y, code = qd.Vector([x, x]), Code.GIVEN
    return y, code
@qd.func
def code_only(x): return x, Code.GIVEN
@qd.func
def chosen_code(x): return Code.GIVEN if x > 0.0 else Code.OTHER
def remainder(n): return n % 7 * 1.0
def last(items): return items[-1] * 1.0

@qd.dataclass
class Ball:
    r: qd.f32
    @qd.func
    def times(self): return self.r * V

@qd.func
def by_five(self): return self.r * 5
@qd.func
def by_seven(self): return self.r * 7
@qd.dataclass
class Disc:
    r: qd.f32
    scaled = by_five if V == 5 else by_seven

SF = qd.Struct.field({"a": qd.f32} if V == 5 else {"a": qd.f32, "b": qd.f32},
                     shape=2, layout=qd.Layout.SOA)

@qd.func
def constant_of(kind: qd.template()): return qd.cast(2.5, kind)

F.fill(V)
seen = {}
def run(kernel, *args):
    before = core.counters()["lowered"]
    seen[kernel.__name__[2:]] = [kernel(*args), core.counters()["lowered"] - before]
"""

# name: statements, and whether a later process needs no front end
BODIES = {
    "slice_of_mixed": ("x = MIXED[1:]\n    return x[0] * 1.0", True),
    "slice_of_long": ("x = LONG[:3]\n    return x[1]", True),
    "passed_long": ("return second(LONG)", True),
    "runtime_index": ("s = 0.0\n    for i in range(3): s += qd.Vector(LONG[:3])[i]\n    return s", True),
    "nested": ("return NESTED[0][1][0] * 1.0", True),
    "starred": ("return [*MIXED][1] * 1.0", True),
    "starred_call": ("return default(*ITEMS)", False),
    "mapping": ("return default(**{'x': 1, 'n': NAMED['number']})", True),
    "loop_over_lists": ("s = 0.0\n    for _, n in qd.static([MIXED, MIXED]): s += n\n    return s", True),
    "enumerated": ("s = 0.0\n    for i, n in qd.static(enumerate(MIXED)):\n"
                   "        if qd.static(i == 1): s += n\n    return s", True),
    "comprehension": ("return [x for x in ITEMS][1] * 1.0", False),
    "order_of_keys": ("return qd.static([k for k in ORDER][0] == 'a') * 1.0", True),
    "sum_of_lists": ("return (MIXED + [1])[1] * 1.0", True),
    "member_of_list": ("return qd.static(5 in MIXED) * 1.0", True),
    "objects_in_list": ("s = 0.0\n    for p in qd.static([PART, PART]): s += p.weight\n    return s", True),
    "objects_passed": ("return weights([PART, PART])", True),
    "objects_kept": ("ps = qd.static([PART])\n    return ps[0].weight * 1.0", True),
    "add": ("return (NUMBER + 1) * 1.0", True),
    "negate": ("return (-NUMBER) * 1.0", True),
    "compare": ("return qd.static(NUMBER == 5) * 1.0", True),
    "less": ("return qd.static(NUMBER < 6) * 1.0", True),
    "truth": ("return 1.0 if qd.static(NUMBER) else 2.0", True),
    "negation": ("return qd.static(not NUMBER) * 1.0", True),
    "conjunction": ("return 1.0 if qd.static(NUMBER and True) else 2.0", True),
    "contains": ("return qd.static(5 in NUMBER) * 1.0", True),
    "formatted": ("return qd.static(len(f'{NUMBER}')) * 1.0", True),
    "format_call": ("return qd.static(len('{}'.format(NUMBER))) * 1.0", False),
    "fraction": ("return int(THIRD * 3) * 1.0", True),
    "struct": ("s = STRUCT\n    return s.a * 1.0", False),
    "list_class": ("a, b = ROWS\n    return a * 1.0", False),
    "tuple_class": ("x = PAIR\n    return x[0] * 1.0", False),
    "kept_method": ("return KEPT(0) * 1.0", True),
    "kept_by_an_object": ("return METHODS.find('x') * 1.0", True),
    "kept_by_a_class": ("return Methods.find('x') * 1.0", True),
    "kept_for_getattr": ("return getattr(METHODS, 'find')('x') * 1.0", True),
    "kept_for_static": ("return qd.static(METHODS.find('x')) * 1.0", True),
    "kept_method_of_int": ("return METHODS.bits() * 1.0", True),
    "kept_method_of_float": ("return METHODS.ratio()[0] * 1.0", True),
    "kept_method_of_vector": ("return TOTAL() * 1.0", True),
    "kept_method_of_matrix": ("return LARGEST[0]() * 1.0", True),
    "kept_method_with_operand": ("return SIZES.cast(qd.f32)[0]", True),
    "kept_method_of_field": ("return SIZES.parent(1).shape[0] * 1.0", True),
    "kept_method_of_array": ("return qd.static(TRACKED.asked()) * 1.0", False),
    "kept_for_dataclass": ("return h.find('x') * 1.0", True),
    "kept_for_dataclass_vector": ("return h.total() * 1.0", True),
    "kept_method_that_changes": ("return METHODS.pop() * 1.0", False),
    "evaluated": ("return eval('V', {'V': V}) * 1.0", False),
    "globals": ("return globals()['V'] * 1.0", False),
    "two_functions_or_one": ("return ONE() + OTHER() * 10.0", True),
    "default": ("return default(1) * 1.0", True),
    "default_list": ("return default_list(1) * 1.0", True),
    "annotation": ("return annotated(2.5)", True),
    "return_annotation": ("return returning(2.5) * 1.0", True),
    "real_function": ("return real(2.5) * 1.0", True),
    "vector_type": ("t = VEC(1.5, 2.5)\n    return t[1] * 1.0", True),
    "size_of_vector": ("t = WIDE(1.5)\n    return t.sum()", True),
    "struct_type": ("t = REC(a=1.5, b=2.5)\n    return t.b * 1.0", True),
    "code_unpacked": ("y, code = with_code(1.0)\n    return code + y[0]", True),
    "code_returned": ("x, code = code_only(1.0)\n    return code * x", True),
    "code_chosen": ("code = chosen_code(1.0)\n    if code == Code.OTHER: code = Code.GIVEN\n    return code * 1.0", True),
    "huge": ("return remainder(HUGE) + remainder(HUGE) + remainder(10**5000)", True),
    "huge_in_list": ("return remainder([HUGE, 1][0]) + remainder((1, (HUGE, 2))[1][0]) + last([HUGE, V])", True),
    "huge_key": ("return {HUGE: 1.0, (HUGE, 1): V * 1.0}[(HUGE, 1)]", True),
    "huge_range": ("return remainder(range(0, HUGE, V)[1])", True),
    "huge_of_class": ("return remainder(Whole(HUGE))", True),
    "passed_type": ("return constant_of(TYPE) * 1.0", True),
    "method_of_value": ("b = Ball(r=1.0)\n    return b.times()", True),
    "builtin_of_list_class": ("return qd.Vector(ROWS)[0] * 1.0", False),
    "keyword_of_list_class": ("return qd.Vector(arr=ROWS)[0] * 1.0", False),
    "method_of_long": ("return qd.Vector.one(qd.f32, 500).dot(THIRDS)", True),
    "starred_method": ("return qd.Vector.one(qd.f32, 500).dot(*WRAPPED)", True),
    "mapping_and_keyword": ("return weighed(**{'x': 1}, part=PART)", True),
    "reversed": ("s = 0.0\n    for p in qd.static(reversed([PART, 2])):\n"
                 "        s = s * 2 + (p if qd.static(isinstance(p, int)) else p.weight)\n    return s", True),
    "list_of_zip": ("return list(zip(THIRDS, THIRDS))[0][1]", True),
    "list_of_enumerate": ("return list(enumerate(THIRDS))[1][1]", True),
    "list_of_reversed": ("return list(reversed(THIRDS))[0]", True),
    "struct_argument": ("return d.scaled()", True),
    "members_of_field": ("x = SF[0]\n    return qd.static(len(x.keys)) * 1.0", True),
    "python_type": ("return CALL(2.5) * 1.0", True),
}  # fmt: skip
PARAMETERS = {  # of those that have some
    "struct_argument": ("d: Disc", "Disc(r=1.0)"),
    "kept_for_dataclass": ("h: qd.template()", "KEEPER"),
    "kept_for_dataclass_vector": ("h: qd.template()", "KEEPER"),
}


def results(tmp_path, cache, value):
    path = tmp_path / "program.py"
    kernels = [
        f"@qd.kernel\ndef k_{name}({parameters}) -> qd.f32:\n    {body}\nrun(k_{name}, {arguments})\n"
        for name, (body, _) in BODIES.items()
        for parameters, arguments in [PARAMETERS.get(name, ("", ""))]
    ]
    path.write_text("\n".join([HEAD, *kernels, "print('RESULT ' + json.dumps(seen))"]))
    done = subprocess.run(
        [sys.executable, str(path), str(tmp_path / cache), str(value)],
        capture_output=True, text=True, timeout=100,
        env=dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", PYTHONDONTWRITEBYTECODE="1"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.split("RESULT ")[1])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guards")
    first, other = results(folder, "one", 5), results(folder, "one", 7)
    fresh, warm = results(folder, "two", 7), results(folder, "two", 7)
    return first, other, fresh, warm


@pytest.mark.oracle_differs("counters are ours")
@pytest.mark.parametrize("name", BODIES)
def test_a_changed_value_is_seen(runs, name):
    first, other, fresh, warm = (r[name] for r in runs)
    assert first[0] != other[0] == fresh[0] == warm[0]
    assert warm[1] == (not BODIES[name][1])


@qd.func
def one(x):
    return x + 1


@qd.func
def two(x):
    return x + 2


@dataclasses.dataclass
class Choice:
    function: qd.template()
    numbers: qd.template()
    array: qd.types.ndarray(dtype=qd.f32, ndim=1)


def test_members_that_are_no_arrays_choose_the_version(backend):
    @qd.kernel
    def run(c: Choice) -> qd.f32:
        return c.function(1.0) + sum(c.numbers) * 10 + c.array[0]

    array = qd.ndarray(qd.f32, 1)
    for function, value in ((one, 2), (two, 3), (one, 2)):
        for numbers in ((1, 2), (1, 3)):
            assert run(Choice(function, numbers, array)) == value + 10 * sum(numbers)


@pytest.mark.oracle_differs("counts our files")
def test_versions_by_number_do_not_try_each_others_recipes(backend, tmp_path):
    backend.init(offline_cache=True, offline_cache_file_path=str(tmp_path))

    @qd.kernel
    def get(n: qd.template()) -> qd.i32:
        return n

    assert [get(k) for k in range(5)] == list(range(5))
    folders = list(tmp_path.glob("**/kernels/*"))
    assert [len(list(f.iterdir())) for f in folders] == [1] * 5
