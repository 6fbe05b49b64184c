"""Python that runs while a kernel is compiled may change what the kernel and its funcs read."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd


class Slots:
    """Gives out numbers while a kernel is compiled."""

    def __init__(self):
        self.given = 0
        self.names = []

    def take(self):
        self.given += 1
        self.names.append(f"slot {self.given}")
        return self.given


slots = Slots()


@qd.func
def taken():
    return slots.take()


@qd.func
def taken_for(x):
    return x * 0 + taken()


@qd.func
def given():
    return slots.given


@qd.func
def named():
    return qd.static(len(slots.names))


@pytest.fixture(autouse=True)
def fresh(backend):
    slots.__init__()


def test_a_func_asks_its_helper_at_each_call():
    @qd.kernel
    def k(x: qd.i32) -> qd.types.vector(4, qd.i32):
        return qd.Vector([taken(), taken(), taken_for(x), taken_for(x)])

    @qd.kernel
    def again() -> qd.types.vector(2, qd.i32):
        return qd.Vector([taken(), taken()])

    for kernel, args in (k, (1,)), (again, ()):
        found = list(kernel(*args))
        assert [x - found[0] for x in found] == list(range(len(found)))


def test_a_func_sees_what_a_helper_changed():
    @qd.kernel
    def k() -> qd.types.vector(6, qd.i32):
        a = given()
        b = named()
        slots.take()
        c = given()
        d = named()
        return qd.Vector([a, b, c, d, taken(), given()])

    a, b, c, d, e, f = k()
    assert (c - a, d - b, e - c, f - c) == (1, 1, 1, 1)


def test_a_func_sees_what_the_kernel_appended():
    @qd.kernel
    def k() -> qd.types.vector(2, qd.i32):
        a = named()
        for i in qd.static(range(3)):
            qd.static(slots.names.append(i))
        return qd.Vector([a, named()])

    a, b = k()
    assert b - a == 3


PROGRAM = """
import sys
import quadrants as qd

class Later:
    def __init__(self): self.n, self.items = 0, [1]
    def prepare(self): self.n = int(sys.argv[2]); self.items.append(self.n); return 0

first, second, third = Later(), Later(), Later()

@qd.func
def read(): return second.n

@qd.kernel
def direct() -> qd.types.vector(3, qd.i32):
    a = first.n
    b = first.prepare()
    return qd.Vector([a, b, first.n])

@qd.kernel
def by_func() -> qd.types.vector(2, qd.i32):
    a = read()
    second.prepare()
    return qd.Vector([a, read()])

@qd.kernel
def contents() -> qd.i32:
    a = sum(third.items)
    third.prepare()
    return sum(third.items) - a

qd.init(qd.cpu, offline_cache_file_path=sys.argv[1])
print(list(map(int, direct())), list(map(int, by_func())), contents())
"""


@pytest.mark.oracle_differs("our cache; it walks a kernel twice")
def test_what_a_helper_changed_is_asked_in_each_process(tmp_path):
    (tmp_path / "later.py").write_text(PROGRAM)
    env = dict(os.environ, PYTHONWARNINGS="ignore")
    for n in (3, 5, 3, 7):
        done = subprocess.run(
            [sys.executable, "later.py", str(tmp_path / "cache"), str(n)], capture_output=True, text=True, timeout=100,
            env=env, cwd=tmp_path,
        )  # fmt: skip
        assert done.stdout.splitlines()[-1:] == [f"[0, 0, {n}] [0, {n}] {n}"], done.stderr[-2000:]


@qd.func
def taken_into(l: qd.template()):
    l.append(slots.take())
    return l[len(l) - 1]


@qd.func
def added_into(l: qd.template(), x):
    l.append(x + take_with(x))
    return l[len(l) - 1]


def take_with(_):
    return slots.take()


@qd.func
def taken_with_loop(f: qd.template(), x):
    n = slots.take() + 0 * take_with(x)
    for i in range(3):
        f[i] += n
    return n


@pytest.mark.oracle_differs("it walks a kernel twice")
def test_a_func_that_is_expanded_asks_its_helpers_once():
    f = qd.field(qd.i32, shape=3)

    @qd.kernel
    def lists(x: qd.i32) -> qd.types.vector(4, qd.i32):
        l = []
        return qd.Vector([taken_into(l), taken_into(l), added_into(l, x), added_into(l, x)])

    @qd.kernel
    def loops(x: qd.i32) -> qd.types.vector(2, qd.i32):
        return qd.Vector([taken_with_loop(f, x), taken_with_loop(f, x)])

    assert lists(0).to_list() == [1, 2, 3, 4]
    assert slots.given == 4
    assert loops(0).to_list() == [5, 7]
    assert slots.given == 8
    assert f.to_numpy().tolist() == [12, 12, 12]


@qd.func
def given_and_taken():
    return slots.given * 10 + slots.take()


@qd.func
def given_and_taken_into(l: qd.template()):
    l.append(given_and_taken())


@pytest.mark.oracle_differs("it walks a kernel twice")
def test_a_func_that_is_expanded_reads_what_was_there_before():
    @qd.kernel
    def k() -> qd.types.vector(2, qd.i32):
        l = []
        given_and_taken_into(l)
        given_and_taken_into(l)
        return qd.Vector(l)

    assert k().to_list() == [1, 12]


@qd.func(requires_top_level=True)
def only_at_top_level(f: qd.template()):
    for i in f:
        f[i] += 1


def by_python(f):
    only_at_top_level(f)


def by_python_that_catches(f):
    try:
        only_at_top_level(f)
    except BaseException:
        pass


@qd.func
def leads_to_top_level(f: qd.template()):
    by_python(f)
    by_python_that_catches(f)


def test_a_python_helper_calls_a_func_that_must_be_at_the_top_level():
    f = qd.field(qd.i32, shape=3)

    @qd.kernel
    def k():
        leads_to_top_level(f)

    @qd.kernel
    def deeper(n: qd.i32):
        if n > 0:
            leads_to_top_level(f)

    k()
    assert f.to_numpy().tolist() == [2, 2, 2]
    with pytest.raises(qd.QuadrantsSyntaxError, match="requires_top_level"):
        deeper(1)


@qd.func
def zero():
    return 0


@qd.func
def taken_after_another(n: qd.template()):
    s = n + zero()
    return s + slots.take()


@pytest.mark.oracle_differs("it walks a kernel twice")
def test_what_a_func_was_told_when_its_facts_failed_is_kept_for_its_body():
    @qd.kernel
    def k() -> qd.types.vector(3, qd.i32):
        return qd.Vector([taken_after_another(0), taken_after_another(0), taken_after_another(0)])

    assert k().to_list() == [1, 2, 3]


class Numbers:
    changed = 1
    other = 1


def change():
    Numbers.changed += 1
    return 1


@qd.func
def read_and_changed():
    a = Numbers.changed
    return a * 100 + change() * 10 + Numbers.other


@pytest.mark.oracle_differs("it walks a kernel twice")
def test_a_func_whose_facts_changed_reads_what_was_there_before():
    @qd.kernel
    def first() -> qd.i32:
        return read_and_changed()

    @qd.kernel
    def second() -> qd.i32:
        return read_and_changed()

    Numbers.changed, Numbers.other = 1, 1
    assert first() == 111
    Numbers.changed, Numbers.other = 1, 3
    assert second() == 113


CHANGED_LATER = """
import sys
import quadrants as qd

qd.init(arch=qd.cpu)


class Numbers:
    changed = 1
    other = int(sys.argv[1])


def change():
    Numbers.changed += 1
    return 1


@qd.kernel
def k() -> qd.i32:
    a = Numbers.changed
    return a * 100 + change() * 10 + Numbers.other


print(k())
"""


@pytest.mark.oracle_differs("it walks a kernel twice")
def test_a_refused_recipe_leaves_what_the_kernel_reads(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(CHANGED_LATER)
    env = dict(os.environ, QD_OFFLINE_CACHE_FILE_PATH=str(tmp_path / "cache"))
    for other in (1, 3, 1, 3):
        run = subprocess.run(
            [sys.executable, str(program), str(other)],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert run.stdout.split()[-1] == str(110 + other), run.stderr


CELLS = {
    "field": lambda: qd.field(qd.i32, 4),
    "vector": lambda: qd.Vector.field(2, qd.i32, 4),
    "struct": lambda: qd.Struct.field({"a": qd.i32, "b": qd.types.vector(2, qd.i32)}, shape=4),
    "ndarray": lambda: qd.ndarray(qd.i32, 4),
}


class Reader:
    """What a kernel reads while it is compiled."""

    def __init__(self, cells):
        self.cells = cells

    @property
    def first(self):
        return self.cells[0]

    def write(self):
        self.cells[1] = self.cells[0]


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("what", ["property", "helper", "write"])
def test_elements_are_no_constants(backend, kind, what):
    """A helper would read them once, whatever later launches find there."""
    reader = Reader(CELLS[kind]())

    def helper():
        return reader.cells[0]

    @qd.kernel
    def k() -> qd.i32:
        if qd.static(what == "property"):
            reader.first
        elif qd.static(what == "helper"):
            helper()
        else:
            reader.write()
        return 1

    for _ in range(2):
        with pytest.raises(
            qd.QuadrantsCompilationError, match="cannot be called in Quadrants-scope"
        ):
            k()
    reader.write()  # outside it is as ever


HOST_ONLY = {
    "to_numpy": lambda a: a.to_numpy()[0],
    "fill": lambda a: a.fill(7),
    "from_numpy": lambda a: a.from_numpy(np.zeros(4, np.int32)),
    "copy_from": lambda a: a.copy_from(a),
    "pickle": lambda a: len(pickle.dumps(a)),
}


@pytest.mark.parametrize("use", HOST_ONLY)
@pytest.mark.parametrize("wrapped", [False, True])
def test_arrays_are_not_read_or_written_by_helpers(backend, use, wrapped):
    a = qd.tensor(qd.i32, shape=4, backend=qd.Backend.NDARRAY) if wrapped else qd.ndarray(qd.i32, 4)

    def helper():
        HOST_ONLY[use](a)
        return 1

    @qd.kernel
    def k() -> qd.i32:
        return helper()

    for _ in range(2):
        with pytest.raises(
            qd.QuadrantsCompilationError, match="cannot be called in Quadrants-scope"
        ):
            k()
    assert a.to_numpy().tolist() == [0] * 4


def test_a_captured_live_struct_is_a_constant(backend):
    s = qd.Struct.field({"a": qd.f32, "b": qd.types.vector(2, qd.i32)}, shape=2)
    s[1].a = 3.0
    live = s[1]

    @qd.kernel
    def k() -> qd.f32:
        return live.a

    assert k() == 3.0
