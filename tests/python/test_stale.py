"""No process and no version gets what another one was worth: a sample of tests/differential/stale.py, and
the same question within one process. Each version is compared with a kernel that has no other."""

import dataclasses
import functools
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import quadrants as qd

sys.path.insert(0, str(Path(__file__).parents[1] / "differential"))
import stale

ONE_PROGRAM = len(stale.SOURCES)


@pytest.mark.oracle_differs("a campaign of ours: counts of our front end")
@pytest.mark.parametrize("seed, kernels, steps", [(1, ONE_PROGRAM, 1), (777, ONE_PROGRAM // 2, 4)])
def test_no_edit_is_missed(seed, kernels, steps):
    edits = kernels * steps
    total = stale.campaign(seed=seed, kernels=kernels, edits=edits, steps=steps)
    assert total["stale"] == []
    assert total["changed"] > edits / 4  # or the edits test nothing
    assert total["lowered"] < 0.9 * edits  # or nothing was kept


@pytest.mark.oracle_differs("counters are ours")
def test_what_did_not_change_starts_warm(tmp_path):
    """Ways that end in a foreign kernel, whose front end runs in each process; all others start warm."""
    program = stale.Program(stale.random.Random(3), ONE_PROGRAM, list(stale.SOURCES))
    program.run(tmp_path, str(tmp_path / "cache"))
    warm = program.run(tmp_path, str(tmp_path / "cache"))
    foreign = {c.source for c in program.cases if warm[str(c.number)][1]}
    known = {
        # iterators, state, what reads more than its operands, what changes what it reads
        "iterator", "random", "random_array", "state", "popped", "globals", "evaluated", "opened", "vars",
        "modules",
        # classes of the user that are iterated or used as an index; iterators of foreign code
        "iteration", "generator", "itertools", "accumulated", "filter", "ordered_dict", "index", "index_method",
        # what code of the user changes, or may change for all that its text tells
        "state_by_keyword", "chain_map", "copy", "dataclass_fields", "file", "import_module", "iterated", "made", "math_of_object",
        "number_class_with_operators", "percent", "super", "cached_function", "any_of_object", "comparison",
        # contents that are too large to describe, and objects in what the kernel builds
        "big_array", "dict_display", "starred_display", "format_call", "func_returns_object", "slice_of_objects",
    }  # fmt: skip
    raises = {c.source for c in program.cases if stale.re.match(r"\w+: ", warm[str(c.number)][0])}
    assert len(raises) < 10
    foreign -= raises
    assert foreign <= known


# --- versions within one process -------------------------------------------------------------------
def answers(make, arguments):
    """What one kernel answers for these arguments in turn, and what a kernel of its own answers for each."""
    shared = make()
    return [shared(a) for a in arguments], [make()(a) for a in arguments]


def agrees(make, arguments):
    one, each = answers(make, arguments)
    assert [repr(x) for x in one] == [repr(x) for x in each]
    return one


def first_item():
    @qd.kernel
    def k(a: qd.template()) -> qd.f64:
        return a[0] * 1.0

    return k


@pytest.mark.parametrize("make", [qd.Vector, lambda v: qd.Matrix([v, v])])
def test_vectors_as_templates_are_versions_of_their_own(backend, make):
    @qd.kernel
    def k(a: qd.template()) -> qd.f64:
        return a.sum() * 1.0

    assert len({k(make([n, 2])) for n in (0, 1, 2)}) == 3


def test_a_vector_that_changed_in_place_is_still_its_version(backend):
    k, v = first_item(), qd.Vector([0, 2])
    assert k(v) == 0
    v[0] = 5
    assert k(v) == 0  # what is captured is captured
    assert k(qd.Vector([5, 2])) == 5  # a version for what is equal to it now


@pytest.mark.oracle_differs("equal and of other types: shared there")
def test_equal_tuples_of_other_values_are_other_versions(backend):
    def make():
        @qd.kernel
        def k(a: qd.template()) -> qd.f64:
            return math.copysign(1.0, a[0][0]) + qd.static(len(str(a)))

        return k

    zeros = [((0.0,),), ((-0.0,),), ((0,),), ((False,),), ((float("nan"),),), ((0.0,),)]
    assert len(set(agrees(make, zeros))) > 3


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: object


@pytest.mark.oracle_differs("equal and of other types: shared there")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_equal_dataclasses_of_other_types_are_other_versions(backend):
    def make():
        @qd.kernel
        def k(a: qd.template()) -> qd.f64:
            return a.n / 2 + qd.static(len(str(a.n)))

        return k

    agrees(make, [Frozen(1), Frozen(1.0), Frozen(True), Frozen(-0.0), Frozen(0.0), Frozen(1)])


@qd.data_oriented
class Part:
    def __init__(self, n):
        self.n = n
        self.inner = None


@dataclasses.dataclass
class Plain:
    n: qd.i32


@qd.data_oriented(template_primitives=False)
class Model:
    def __init__(self):
        self.n, self.part, self.plain = 1, Part(5), Plain(7)
        self.part.inner = Part(3)

    @qd.kernel
    def sum(self) -> qd.i32:
        return self.n + 10 * self.part.n + 100 * self.plain.n + 1000 * self.part.inner.n


def test_numbers_of_nested_members_are_read_at_each_launch(backend):
    m = Model()

    def expected():
        return m.n + 10 * m.part.n + 100 * m.plain.n + 1000 * m.part.inner.n

    assert m.sum() == expected()
    for change in (
        lambda: setattr(m, "n", 2),
        lambda: setattr(m.part, "n", 6),
        lambda: setattr(m.plain, "n", 8),
        lambda: setattr(m.part.inner, "n", 4),
    ):
        change()
        assert m.sum() == expected()


@qd.data_oriented(template_primitives=False)
class Half:
    def __init__(self, n):
        self.n = n

    @qd.kernel
    def half(self) -> qd.f64:
        return self.n // 2


def test_code_for_a_float_is_not_taken_for_an_int(tmp_path):
    """An int fits it, but f32 has not its digits."""
    for n in (1.5, 33554435, True, 2.5):
        qd.init(arch=qd.cpu, offline_cache_file_path=str(tmp_path))
        assert Half(n).half() == n // 2


# --- what the store keeps ----------------------------------------------------------------------------
PROGRAM = """
import sys, warnings
import quadrants as qd
import numpy as np

qd.init(arch=qd.cpu, log_level=qd.ERROR, offline_cache_file_path=sys.argv[1], **eval(sys.argv[2]))
L = eval(sys.argv[3])
{comment}
@qd.kernel
def fill(x: qd.Tensor):
    for i, j in qd.ndrange(3, 4): x[i, j] = 100 * i + j

@qd.kernel
def unrolled() -> qd.i32:
    s = 0
    for k in qd.static(range(5)): s += k
    return s

@qd.kernel
def other() -> qd.i32:
    return 7

@qd.kernel
def outside(x: qd.types.ndarray(dtype=qd.i32, ndim=1)):
    x[5] = 1

a = qd.tensor(qd.i32, shape=(3, 4), backend=qd.Backend.NDARRAY, layout=L)
fill(a)
with warnings.catch_warnings(record=True) as given:
    warnings.simplefilter("always")
    sums = unrolled(), other()
print(a.to_numpy().tolist(), sums, [(str(w.message), w.lineno) for w in given])
try:
    if qd.cfg.debug: outside(qd.ndarray(qd.i32, 2))
except Exception as e:
    print("line", str(e).split("line ")[1].split(",")[0])
"""


def run(tmp_path, options="{}", layout="None", comment=""):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace("{comment}", comment))
    done = subprocess.run(
        [sys.executable, str(path), str(tmp_path / "cache"), options, layout],
        capture_output=True, text=True, timeout=100,
        env=dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", PYTHONDONTWRITEBYTECODE="1"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.oracle_differs("our cache")
def test_the_layout_of_an_array_is_part_of_its_version(tmp_path):
    first = run(tmp_path)
    assert str([[100 * i + j for j in range(4)] for i in range(3)]) in first
    assert run(tmp_path, layout="(1, 0)") == first == run(tmp_path)


def last_words(tmp_path, program, argument):
    """What a program prints in its last line; its processes share a cache."""
    path = tmp_path / "words.py"
    if not path.exists():
        path.write_text(program)
    done = subprocess.run(
        [sys.executable, str(path), str(tmp_path / "cache"), argument], capture_output=True, text=True, timeout=100,
        env=dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1].split()


SHAPES = """
import sys
import quadrants as qd

SHAPES = dict(
    long=qd.Vector([1.0, 2.0, 3.0]), short=qd.Vector([1.0]), row=qd.Matrix([[1.0, 2.0]]), column=qd.Matrix([[1.0], [2.0]]),
    square=qd.Matrix([[1.0, 2.0], [3.0, 4.0]]),
)
A = SHAPES[sys.argv[2]]

@qd.func
def through(a: qd.template()): return a.sum()

@qd.data_oriented
class Holder:
    def __init__(self): self.a, self.all = A, [A]
    @qd.kernel
    def k(self) -> qd.f32: return self.a.sum() * 10 + self.all[0].max()

@qd.kernel
def argument(a: qd.template()) -> qd.f32:
    b = a + 1
    return through(a) * 10 + b.max()

@qd.kernel
def captured() -> qd.f32: return through(A)

qd.init(qd.cpu, offline_cache_file_path=sys.argv[1])
print(argument(A), argument((A, 0)[0]), Holder().k(), captured())
"""


@pytest.mark.oracle_differs("our cache")
def test_the_shape_of_a_vector_is_part_of_its_version(tmp_path):
    """The components of the shorter one are also those of the longer, so that they alone tell nothing."""

    def of(shape):
        return [float(x) for x in last_words(tmp_path, SHAPES, shape)]

    def expected(total, most):
        return [total * 10 + most + 1, total * 10 + most + 1, total * 10 + most, total]

    assert of("short") == expected(1, 1)
    assert of("row") == expected(3, 2)
    assert of("square") == expected(10, 4)
    assert of("column") == expected(3, 2)
    assert of("long") == expected(6, 3)


RAISING = """
import sys
from fractions import Fraction
import quadrants as qd

BAD = sys.argv[2] == "bad"
class Truth:
    def __bool__(self):
        if BAD: raise ValueError("no truth")
        return True
    def __add__(self, other):
        if BAD: raise KeyError("no sum")
        return 1
    def __contains__(self, other):
        return 1 // (not BAD)
F, O, N = Fraction(0 if BAD else 4), Truth(), None if BAD else 3

@qd.kernel
def division() -> qd.f64: return float(1 / F)
@qd.kernel
def truth() -> qd.i32: return 5 if O else 6
@qd.kernel
def negation() -> qd.i32: return 5 if not O else 6
@qd.kernel
def static() -> qd.i32:
    if qd.static(O): return 1
    return 2
@qd.kernel
def addition() -> qd.i32: return O + 2
@qd.kernel
def within() -> qd.i32: return 1 if qd.static(3 in O) else 0
@qd.kernel
def minus() -> qd.i32: return -N

def attempt(k):
    try:
        return str(k())
    except Exception as e:
        return type(e).__name__ + "/" + str(e).split()[-1]

qd.init(qd.cpu, offline_cache_file_path=sys.argv[1], offline_cache=sys.argv[3] == "cached", log_level="error")
print(*map(attempt, (division, truth, negation, static, addition, within, minus)), sep=" | ")
"""


@pytest.mark.oracle_differs("our cache")
def test_what_raises_in_a_later_process_alone(tmp_path):
    path = tmp_path / "raising.py"
    path.write_text(RAISING)

    def words(how, cached):
        command = [sys.executable, str(path), str(tmp_path / "cache"), how, cached]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=100,
            env=dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0"),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.splitlines()[-1]

    good, bad = words("good", "cold"), words("bad", "cold")
    assert good.startswith("0.25 | 5 | 6 | 1 | 1 | 1 | -3") and bad.count("/") == 7
    for how in ("good", "bad", "good", "bad"):
        assert words(how, "cached") == (good if how == "good" else bad)


LEFT_OUT = """
import sys
import quadrants as qd

C = eval(sys.argv[2])
FLAG = True
M = qd.Vector([C, C])

qd.init(arch=qd.cpu, log_level="error", offline_cache_file_path=sys.argv[1])

@qd.kernel
def number(a: qd.i32) -> qd.f64:
    z = a if FLAG else C
    z += 0.75
    return z

@qd.kernel
def vector(a: qd.i32) -> qd.f64:
    z = qd.Vector([a, a]) if FLAG else M
    z += 0.75
    return z[1]

@qd.kernel
def left(a: qd.u8) -> qd.i64:
    return (int(C) and a) * 200

print(number(3), vector(3), left(3))
"""


def test_what_a_known_condition_leaves_out_is_part_of_a_version(tmp_path):
    """It decides the type of the result, so its own type is asked again in each process."""
    for c, values in [
        ("1", "3.0 3.0"),
        ("1.5", "3.75 3.75"),
        ("2", "3.0 3.0"),
        ("2.5", "3.75 3.75"),
    ]:
        assert last_words(tmp_path, LEFT_OUT, c) == [*values.split(), "600"]


LOGIC = """
import sys
import quadrants as qd

C = eval(sys.argv[2])
qd.init(arch=qd.cpu, log_level="error", offline_cache_file_path=sys.argv[1])

@qd.kernel
def both(a: qd.i32, h: qd.i8) -> qd.i32:
    z = C and qd.Vector([h, h])
    z[0] = a
    return z[0]

@qd.kernel
def either(a: qd.i32, h: qd.i8) -> qd.i32:
    z = C or qd.Vector([h, h])
    z[0] = a
    return z[0]

print(both(300, 1), either(300, 1))
"""


def test_what_stands_beside_a_vector_is_part_of_a_version(tmp_path):
    """As true or false as before, a number gives another type than a bool."""
    for c, value in [("True", "1"), ("7", "300"), ("False", "1"), ("0", "300"), ("True", "1")]:
        assert last_words(tmp_path, LOGIC, c) == [value, value], c


OPERATORS = """
import sys
import quadrants as qd

class Code(int):
    if sys.argv[2] == "own": __mul__ = lambda self, other: other + 100
    if sys.argv[2] == "other": __mul__ = lambda self, other: other + 200

class Box:
    def __init__(self, n): self.n = n
    if sys.argv[2] == "none": __mul__ = lambda self, other: other * self.n
    else: __mul__ = lambda self, other: other - self.n

code, box = Code(3), Box(7 if sys.argv[2] == "other" else 5)

@qd.kernel
def k(n: qd.i32, t: qd.template()) -> qd.types.vector(3, qd.i32): return [code * n, t * n, box * n]

qd.init(qd.cpu, offline_cache_file_path=sys.argv[1])
print(*k(2, code).to_list())
"""


@pytest.mark.oracle_differs("our cache")
def test_operators_of_classes_are_part_of_a_version(tmp_path):

    def of(methods):
        return [int(x) for x in last_words(tmp_path, OPERATORS, methods)]

    for _ in range(2):
        assert of("none") == [6, 6, 10]
        assert of("own") == [102, 102, -3]
        assert of("other") == [202, 202, -5]


@pytest.mark.oracle_differs("our cache")
def test_warnings_and_places_are_those_of_this_process(tmp_path):
    assert "unrolling more than" not in run(tmp_path)
    assert "unrolling more than 2 " in run(tmp_path, "{'unrolling_limit': 2}")
    assert "unrolling more than" not in run(tmp_path)
    for options in ("{'unrolling_limit': 3}", "{'debug': True}"):
        cold = shutil.copytree(tmp_path, tmp_path / "other", ignore=shutil.ignore_patterns("cache"))
        run(tmp_path, options)
        shifted = run(tmp_path, options, comment="# one\n# more\n")
        assert shifted == run(cold, options, comment="# one\n# more\n")
        shutil.rmtree(cold)


@pytest.mark.oracle_differs("our files")
def test_entries_under_other_names_are_no_entries(tmp_path):
    first = run(tmp_path)
    for pattern in ("kernel_compilation_manager/*.qdc", "native/kernels/*/*"):
        files = [p for p in tmp_path.glob(f"cache/{pattern}") if p.is_file()]
        folders = sorted(files)
        held = [p.read_bytes() for p in folders]
        assert len(held) > 2
        for path, content in zip(folders, held[1:] + held[:1]):
            path.write_bytes(content)
        assert run(tmp_path) == first


NAMESAKES = """
import sys
import quadrants as qd
from quadrants._lib import core

qd.init(arch=qd.cpu, log_level=qd.ERROR, offline_cache_file_path=sys.argv[1])

@qd.data_oriented
class Owner:
    def __init__(self, n): self.n = n
    @qd.kernel
    def k(self) -> qd.i32: return self.n

def closure(n):
    @qd.kernel
    def k() -> qd.i32: return n
    return k

for N in range(20):
    @qd.kernel
    def k() -> qd.i32: return N
    assert k() == closure(N)() == Owner(N).k() == N
print(core.counters()["lowered"])
"""


@pytest.mark.oracle_differs("counts our files")
def test_kernels_of_one_name_do_not_read_each_others_recipes(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(NAMESAKES)
    for lowered in ("60", "0"):
        done = subprocess.run(
            [sys.executable, str(path), str(tmp_path / "cache")],
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.stdout.split()[-1] == lowered, done.stderr[-2000:]
    folders = list(tmp_path.glob("cache/native/kernels/*"))
    assert [len(list(f.iterdir())) for f in folders] == [1] * 60


def test_what_a_class_and_a_module_have_is_looked_up_for_each_version(backend):
    class Table:
        pass

    def make():
        @qd.kernel
        def k(a: qd.template()) -> qd.i32:
            s = len(qd.static([v for v in vars_of(Table)]))
            if qd.static(hasattr(Table, "extra")):
                s += 100 * Table.extra
            return s + a

        return k

    def vars_of(table):
        return [n for n in dir(table) if not n.startswith("__")]

    k = make()
    before = k(1)
    Table.extra = 3
    assert k(1) == before  # a version that exists is left alone
    assert k(2) == make()(2) == before + 302
    Table.extra = 4
    assert k(3) == make()(3) == before + 403
    del Table.extra
    assert k(4) == make()(4) == before + 3


def test_arrays_of_other_contents_are_seen_by_new_versions(backend):
    captured = np.array([1, 2])

    def make():
        @qd.kernel
        def k(a: qd.template()) -> qd.i32:
            return int(captured[0]) + a

        return k

    k = make()
    assert k(1) == 2
    captured[0] = 5
    assert k(1) == 2
    assert k(2) == make()(2) == 7


@dataclasses.dataclass
class Late:
    """Equal by its fields but for one, which may not be there yet."""

    number: int
    later: int = dataclasses.field(init=False, compare=False)

    def __hash__(self):
        return self.number


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_dataclasses_that_lack_a_field(backend):
    @qd.kernel
    def k(o: qd.template()) -> qd.i32:
        r = o.number * 10
        if qd.static(hasattr(o, "later")):
            r += o.later
        return r

    early, late, other = Late(1), Late(1), Late(1)
    assert early == late == other
    late.later, other.later = 5, 6
    assert [k(o) for o in (early, late, early, other, late, other)] == [10, 15, 10, 16, 15, 16]


def test_functions_of_the_package_are_told_apart(backend):
    """Some are made by others and share one source; some have none."""
    x = qd.ndarray(qd.i32, (1,))
    subgroup = qd.simt.subgroup

    def result(operation, *more):
        @qd.kernel
        def apply(x: qd.types.ndarray(qd.i32, ndim=1)):
            for i in x:
                x[i] = operation(x[i], *more)

        x.fill(6)
        apply(x)
        return x[0]

    for _ in range(2):
        assert result(subgroup.exclusive_mul_tiled, 0) == 1
        assert result(subgroup.exclusive_add_tiled, 0) == 0
        assert result(subgroup.exclusive_max_tiled, 0) == -(2**31)
        assert result(lambda v: v + 1) == 7
        assert result(lambda v: v * 2) == 12
        assert result(subgroup.exclusive_and_tiled, 0) == -1


def test_a_wrapped_function_of_the_package_is_the_users(backend):
    import functools

    def scaled(by, what):
        @functools.wraps(what)
        def f(x):
            return what(x) * by

        return f

    def result(f):
        @qd.kernel
        def run(p: qd.f32) -> qd.f32:
            return f(p)

        return run(-2.0)

    for _ in range(2):
        for by in (1.0, 3.0, 5.0):
            assert result(scaled(by, qd.abs)) == 2.0 * by
            assert result(scaled(by, qd.floor)) == -2.0 * by


def test_whether_a_field_has_a_gradient_is_a_fact(backend):
    plain, with_grad = qd.field(qd.f32, 4), qd.field(qd.f32, 4, needs_grad=True)
    with_dual = qd.field(qd.f32, 4, needs_dual=True)

    @qd.kernel
    def of_argument(x: qd.template()) -> qd.i32:
        return qd.static(2 if x.has_grad() else 0) + qd.static(1 if x.has_dual() else 0)

    def of_capture(x):
        asks = x.has_grad

        @qd.kernel
        def run() -> qd.i32:
            return (2 if qd.static(x.has_grad()) else 0) + (1 if asks() else 0)

        return run()

    for _ in range(2):
        assert [of_argument(x) for x in (plain, with_grad, with_dual)] == [0, 2, 1]
        assert [of_capture(x) for x in (plain, with_grad, with_dual)] == [0, 3, 0]


def test_containers_without_a_place_are_read_in_each_kernel(tmp_path):
    """What `enumerate` makes has no place of its own: a func's body with it is one kernel's."""
    path = tmp_path / "places.py"
    path.write_text("""
import sys
import quadrants as qd
qd.init(arch=qd.cpu, log_level="error")
w = [[float(sys.argv[1])]]
d = {"a": [float(sys.argv[1])]}

@qd.func
def f(t: qd.template()):
    return t[0]

def make(base):
    @qd.kernel
    def k() -> qd.f64:
        e = base
        for i, t in qd.static(enumerate(w)):
            e += f(t)
        for t in qd.static(list(d.values())):
            e += f(t)
        return e
    return k

first = make(0.0)()
w[0][0] = d["a"][0] = float(sys.argv[2])
print("answer", first, make(1.0)())
""")
    home = dict(os.environ, HOME=str(tmp_path))
    for before, after in ((1, 10), (10, 10), (5, 7), (1, 10)):
        done = subprocess.run(
            [sys.executable, path, str(before), str(after)],
            env=home, capture_output=True, text=True,
        )  # fmt: skip
        assert f"answer {2.0 * before} {2.0 * after + 1}" in done.stdout, done.stderr[-2000:]


def test_equal_objects_have_fields_and_arrays_of_their_own(backend):
    """They share a specialisation otherwise."""
    backend.init()

    @qd.data_oriented
    class Body:
        def __init__(self, name, y):
            self.name, self.y = name, y

        def __eq__(self, other):
            return self.name == other.name

        def __hash__(self):
            return hash(self.name)

        @qd.kernel
        def add(self):
            self.y[0] += 1

    places = [qd.field(qd.i32, 3), qd.ndarray(qd.i32, 3), qd.field(qd.i32, 3)]
    for y in places:
        Body("x", y).add()
    assert [y[0] for y in places] == [1, 1, 1]
    for y in places[::-1] + places[:1]:
        Body("x", y).add()
    assert [y[0] for y in places] == [3, 2, 2]


LABELLED = """
import enum, sys
import quadrants as qd
class E({"int": enum.IntEnum, "plain": enum.Enum}[sys.argv[2]]):
    B = 3
@qd.kernel(graph=True, checkpoints=True)
def k(c: qd.types.ndarray(qd.i32, 0), x: qd.types.ndarray(qd.i32, 1)):
    with qd.checkpoint(E.B, c):
        for i in range(2): x[0] += 1
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level="error")
c = qd.ndarray(qd.i32, ())
try: k(c, qd.ndarray(qd.i32, 4)), print("accepted")
except qd.QuadrantsSyntaxError as e: print("refused")
"""


def test_members_of_an_enumeration_that_are_ints_no_more(tmp_path):
    assert last_words(tmp_path, LABELLED, "int") == ["accepted"]
    assert last_words(tmp_path, LABELLED, "plain") == ["refused"]
    assert last_words(tmp_path, LABELLED, "int") == ["accepted"]


ASKED = """
import sys, warnings
warnings.simplefilter("ignore")
import quadrants as qd
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level="error")
how = sys.argv[2]
out, cells = qd.field(qd.f32, ()), qd.field(qd.f32, 2)

@qd.func
def doubled(x):
    return x * 2.0

def helper():
    if how == "says":
        qd.static_print("asked")
    elif how == "inside":
        return 3.0 if qd.lang.impl.inside_kernel() else 4.0
    elif how == "casts":
        qd.cast(1.5, qd.i32)
    elif how == "calls":
        return doubled(1.5)
    elif how == "reads":
        return cells[0]
    elif how == "writes":
        cells[0] += 1
    return 3.0

@qd.kernel
def k():
    out[None] = helper()

answers = []
for v in 3.0, 5.0:
    cells[0] = v
    try:
        k()
        answers.append(str(out[None]))
    except qd.QuadrantsCompilationError as e:
        answers.append("refused" if "Quadrants-scope" in str(e) else str(e))
print(*answers, cells[0])
"""


def test_what_a_guard_asks_sees_what_the_kernel_saw(tmp_path):
    """A helper that a later process asks before it traces anything answers as inside the trace."""
    wanted = {how: ["3.0", "3.0", "5.0"] for how in ("plain", "says", "inside", "casts", "calls")}
    wanted |= {how: ["refused", "refused", "5.0"] for how in ("reads", "writes")}
    for how, words in wanted.items():
        for first in ("plain", how):
            assert last_words(tmp_path, ASKED, first) == wanted[first], (how, first)
            assert last_words(tmp_path, ASKED, how) == words, how


# Marks: none, data-oriented with constants or numbers of run time, slots, dataclass.
MARKED = """
import dataclasses, sys
import quadrants as qd
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level="error")
outer, inner, *slots = sys.argv[2].split("-")
MARKS = {
    "plain": lambda c: c,
    "fixed": qd.data_oriented,
    "read": qd.data_oriented(template_primitives=False),
    "dataclass": dataclasses.dataclass(eq=False),
}

@MARKS[inner]
class Part:
    if slots:
        __slots__ = ("q", "__weakref__")
    def __init__(self):
        self.q = 10

@MARKS[outer]
class Whole:
    if slots:
        __slots__ = ("v", "part")
    def __init__(self):
        self.v, self.part = 1, Part()

@qd.kernel
def k(o: qd.template()) -> qd.i32:
    return 10 * o.part.q + o.v

o = Whole()
said = [k(o)]
o.part.q = 9
said.append(k(o))
o.v = 5
print(*said, k(o))
"""


def test_marks_of_classes_are_part_of_a_version(tmp_path):
    """What numbers of an object are is decided by the mark of its class, those below it included."""
    marks = [
        "plain-plain",
        "fixed-read",
        "read-fixed",
        "read-plain",
        "dataclass-read",
        "read-read-s",
    ]
    marks += ["fixed-fixed-s", "plain-plain-s"]

    def wanted(mark):
        outer, inner, *_ = mark.split("-")
        if outer != "read":
            return ["101", "101", "101"]
        return ["101", "101", "105"] if inner == "plain" else ["101", "91", "95"]

    for first in marks:
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        for mark in (first, *marks):
            assert last_words(tmp_path, MARKED, mark) == wanted(mark), (first, mark)


@pytest.mark.parametrize(
    "decorate", [qd.data_oriented, qd.data_oriented(template_primitives=False)]
)
def test_what_a_class_has_for_all_is_a_constant(backend, decorate):
    @decorate
    class Model:
        AXES, SCALE, WIDE = 3, 0.5, True

        def __init__(self):
            self.v = 2

        @qd.kernel
        def sum(self) -> qd.f32:
            r = 0.0
            for d in qd.static(range(self.AXES)):
                r += d * self.v * self.SCALE
            if qd.static(self.WIDE):
                r += qd.Vector.one(qd.f32, self.AXES).sum()
            return r

    m = Model()
    assert m.sum() == 6.0
    m.v = 4
    assert m.sum() == (9.0 if decorate is not qd.data_oriented else 6.0)


SHADOWED = """
import sys
import quadrants as qd
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level="error")
@qd.data_oriented(template_primitives=False)
class Model:
    N = 3
    def __init__(self):
        self.v = 1
        if sys.argv[2] == "own":
            self.N = 3
    @qd.kernel
    def k(self) -> qd.i32:
        return self.N * 10 + self.v
m = Model()
said = [m.k()]
if sys.argv[2] == "own":
    m.N = 4
print(*said, m.k())
"""


def test_a_member_in_front_of_what_a_class_has(tmp_path):
    for how, words in (("class", ["31", "31"]), ("own", ["31", "41"]), ("class", ["31", "31"])):
        assert last_words(tmp_path, SHADOWED, how) == words
        assert last_words(tmp_path, SHADOWED, how) == words


@qd.data_oriented
class Adder:
    def __init__(self, d):
        self.d = d

    @qd.func
    def op(self, x):
        return x + self.d

    @qd.kernel
    def k(self, x: qd.i32) -> qd.i32:
        return self.op(x)


def test_a_method_of_another_object_sees_that_object(backend):
    a, b, c, other = Adder(10), Adder(10), Adder(10), Adder(33)
    b.op = other.op
    assert [o.k(1) for o in (a, b, c)] == [11, 34, 11]
    c.op = Adder(50).op
    assert Adder(10).k(1) == 11
    late = Adder(10)
    late.op = other.op
    assert late.k(1) == 34


RUNTIME = qd.data_oriented(template_primitives=False)


def test_a_number_of_its_own_or_of_its_class(backend):
    @RUNTIME
    class P:
        a = 3

    @qd.kernel
    def k(o: qd.template()) -> qd.i32:
        return o.a

    x, y, z = P(), P(), P()
    x.other = 1
    y.a = 3
    assert [k(x), k(y), k(z)] == [3, 3, 3]
    y.a = 7
    P.a = 4
    assert [k(x), k(y), k(z)] == [3, 7, 3]  # what classes have is a constant


def test_what_a_class_computes_is_a_constant(backend):
    @RUNTIME
    class Model:
        def __init__(self):
            self.axes = [1, 2, 3]
            self.v = 2

        @property
        def n(self):
            return len(self.axes)

        @functools.cached_property
        def m(self):
            return 4

    @qd.kernel
    def k(o: qd.template()) -> qd.i32:
        r = 0
        for i in qd.static(range(o.n + o.m)):
            r += i
        return r + o.v

    o = Model()
    assert k(o) == 23
    o.v = 3
    assert k(o) == 24


def test_arrays_below_what_a_method_gives(backend):
    def filled(value):
        a = qd.ndarray(qd.f32, 4)
        a.fill(value)
        return a

    @qd.data_oriented
    class Inner:
        def __init__(self):
            self.a = filled(2)

    @qd.data_oriented
    class S:
        def __init__(self):
            self.a, self.n, self.inner = filled(5), 3, Inner()

        def both(self):
            return self.a, self.n

        def part(self):
            return self.inner

        def listed(self):
            return [self.inner]

        @qd.kernel
        def k(self) -> qd.f32:
            a, n = qd.static(self.both())
            return a[0] + 10 * n + 100 * self.part().a[1] + 1000 * self.listed()[0].a.shape[0]

    assert S().k() == 5 + 30 + 200 + 4000


KEYED = """
import sys
import quadrants as qd
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level="error")
def made(dt, value=2):
    a = qd.ndarray(dt, 3)
    a.fill(value)
    return a
@qd.data_oriented
class S:
    def __init__(self):
        self.d = {"x": made(qd.f32), 1000: made(qd.f32, 3)}
        self.x = made(qd.f32, 4)
    def __getitem__(self, name):
        return self.d[name]
    @qd.kernel
    def k(self) -> qd.f32:
        return self.d["x"][1] + 10 * self.d[1000][0] + 100 * self.x[0]
    @qd.kernel
    def both(self) -> qd.f32:
        return 10 * self["x"][0] + self.x[0]
s = S()
said = [s.k(), s.both()]
if sys.argv[2] == "changes":
    s.d["x"], s.d[1000] = made(qd.f64), made(qd.i32, 3)
print(*said, s.k(), s.both())
"""


def test_arrays_under_keys(tmp_path):
    for how in ("stays", "changes", "stays", "changes"):
        assert last_words(tmp_path, KEYED, how) == ["432.0", "24.0"] * 2


def test_a_method_under_another_name(backend):
    @qd.data_oriented
    class Twice:
        def __init__(self, d):
            self.d = d
            self.same = self.op

        @qd.func
        def op(self, x):
            return x + self.d

        @qd.kernel
        def k(self, x: qd.i32) -> qd.i32:
            return self.same(x)

    a, b, other = Twice(10), Twice(10), Twice(33)
    b.same = other.op
    assert [o.k(1) for o in (a, b, a)] == [11, 34, 11]
    c = Twice(10)
    c.same = Twice(60).op
    assert c.k(1) == 61


def test_numbers_below_what_a_method_gives_are_constants(backend):
    """No launch calls the method again."""

    @RUNTIME
    class Part:
        def __init__(self):
            self.n = 3

    @RUNTIME
    class Whole:
        def __init__(self):
            self.inner, self.v = Part(), 1

        def part(self):
            return self.inner

        @qd.kernel
        def k(self) -> qd.i32:
            return self.part().n * 10 + self.inner.n * 100 + self.v

    o = Whole()
    assert o.k() == 331
    o.inner.n, o.v = 4, 2
    assert o.k() == 432


class Holder:
    def __init__(self, method):
        self.method = method


@pytest.mark.parametrize(
    "one, other, arguments",
    [
        ("abc".find, "cba".find, ("a",)),
        ((5).bit_length, (50).bit_length, ()),
        ((1.0).is_integer, (1.5).is_integer, ()),
        (True.bit_length, False.bit_length, ()),
        (b"abc".find, b"cba".find, (b"a",)),
        ([1, 2].index, [2, 1].index, (2,)),
    ],
)
def test_built_in_methods_of_equal_names_are_told_apart(backend, one, other, arguments):
    """Their objects are not those under whose names they are found."""

    @qd.kernel
    def k(holder: qd.template()) -> qd.i32:
        return holder.method(*arguments)

    assert [k(Holder(m)) for m in (one, other)] == [one(*arguments), other(*arguments)]


@dataclasses.dataclass(frozen=True)
class FrozenHolder:
    method: object


@pytest.mark.parametrize("holder", [Holder, FrozenHolder])
def test_methods_of_vectors_are_told_apart(backend, holder):
    def kernel_of(total):
        @qd.kernel
        def captured() -> qd.i32:
            return total()

        return captured

    @qd.kernel
    def held(h: qd.template()) -> qd.i32:
        return h.method()

    @qd.kernel
    def given(total: qd.template()) -> qd.i32:
        return total()

    sums = [qd.Vector([n, 1]).sum for n in (1, 5)]
    assert [kernel_of(s)() for s in sums] == [2, 6]
    assert [held(holder(s)) for s in sums] == [2, 6]
    assert [given(s) for s in sums] == [2, 6]


@pytest.mark.oracle_differs("stores nothing that a helper answered")
def test_a_kernel_that_a_helper_launches_is_refused_warm_as_cold(backend, tmp_path):
    backend.init(offline_cache=True, offline_cache_file_path=str(tmp_path))

    @qd.kernel
    def inner(n: qd.i32) -> qd.i32:
        return n * 2

    def helper():
        try:
            return inner(21)
        except qd.QuadrantsSyntaxError:
            return -1

    @qd.kernel
    def k() -> qd.i32:
        return helper()

    for _ in range(3):
        assert k() == -1
        assert inner(21) == 42
        backend.init(offline_cache=True, offline_cache_file_path=str(tmp_path))
