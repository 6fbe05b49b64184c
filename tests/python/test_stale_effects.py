"""What a kernel changes while it is traced happens in each process; sets have the order of the process."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd

WRITES = {  # a call, and what `A`, zeros, is then
    "fill": ("A.fill(7)", [7, 7, 7, 7]),
    "fill_view": ("A[1:].fill(7)", [0, 7, 7, 7]),
    "fill_every_second": ("A[::2].fill(7)", [7, 0, 7, 0]),
    "fill_reshaped": ("A.reshape(2, 2).T.fill(7)", [7, 7, 7, 7]),
    "add": ("np.add(A, 1, A)", [1, 1, 1, 1]),
    "negative": ("np.negative(B, A)", [-1, -2, -3, -4]),
    "divmod": ("np.divmod(B, 2, A, C)", [0, 1, 1, 2]),
    "clip": ("B.clip(2, 3, A)", [2, 2, 3, 3]),
    "cumsum": ("B.cumsum(0, None, A)", [1, 3, 6, 10]),
    "take": ("B.take([3, 3, 3, 0], 0, A)", [4, 4, 4, 1]),
    "add_at_twice": ("(np.add.at(A, [0, 1], 2), np.add.at(A, [0, 1], 2))", [4, 4, 0, 0]),
    "out_in_a_tuple": ("np.multiply(B, B, out=(A,))", [1, 4, 9, 16]),
}
APPENDS = {  # a call, done twice, and what `S` is then
    "deque": ("collections.deque()", "S.append(4)", [4, 4]),
    "deque_rotates": ("collections.deque([1, 2, 3])", "S.rotate(1)", [2, 3, 1]),
    "array": ("array.array('i')", "S.append(4)", [4, 4]),
    "unbound": ("bytearray()", "bytearray.append(S, 4)", [4, 4]),
    "operator": ("bytearray(b'a')", "S.__imul__(2)", [97] * 4),
    "heap": ("[3]", "heapq.heappush(S, 1)", [1, 3, 1]),
    "text": ("io.StringIO()", "S.write('ab')", "abab"),
}
PROGRAM = """
import array, collections, heapq, io, json, os
import numpy as np
import quadrants as qd
qd.init(arch=qd.cpu)
A, B, C = np.zeros(4, np.int64), np.arange(1, 5), np.zeros(4, np.int64)
S = {made}
PATH = {path!r}
if os.path.exists(PATH):
    os.remove(PATH)

@qd.kernel
def k() -> qd.i32:
    qd.static({call})
    {again}
    return 1

@qd.kernel
def reads() -> qd.i32:
    return int(A[0])

k()
assert reads() == A[0]
print(json.dumps([A.tolist(), S.getvalue() if isinstance(S, io.StringIO) else list(S), os.path.exists(PATH)]))
"""


def runs(path, tmp_path, seeds=(None, None, None)):
    """What the program prints in processes that share a cache."""
    for seed in seeds:
        env = dict(os.environ, QD_OFFLINE_CACHE_FILE_PATH=str(tmp_path / "cache"))
        if seed is not None:
            env["PYTHONHASHSEED"] = str(seed)
        done = subprocess.run([sys.executable, path], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout.splitlines()[-1])


def program(tmp_path, **parts):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(path=str(tmp_path / "out"), **parts))
    return path


@pytest.mark.parametrize("what", WRITES)
def test_writes_to_arrays_happen_in_each_process(tmp_path, what):
    call, expected = WRITES[what]
    path = program(tmp_path, made="[]", call=call, again="pass")
    assert [seen[0] for seen in runs(path, tmp_path)] == [expected] * 3


@pytest.mark.parametrize("what", APPENDS)
def test_what_is_done_twice_is_done_twice(tmp_path, what):
    made, call, expected = APPENDS[what]
    path = program(tmp_path, made=made, call=call, again=f"qd.static({call})")
    assert [seen[1] for seen in runs(path, tmp_path)] == [expected] * 3


def test_files_of_arrays_are_written_in_each_process(tmp_path):
    path = program(tmp_path, made="[]", call="B.tofile(PATH)", again="pass")
    assert [seen[2] for seen in runs(path, tmp_path)] == [True] * 3


SETS = """
import json
import quadrants as qd
qd.init(arch=qd.cpu)
X = ("a", "bb", "ccc", "dddd")
S = frozenset(X)

def helper(*a):
    return len(a[0])

@qd.kernel
def comprehension() -> qd.i32: return len([x for x in set(X)][0])
@qd.kernel
def loop() -> qd.i32:
    n = 0
    for x in qd.static([*set(X)]):
        n = n * 10 + len(x)
    return n
@qd.kernel
def star() -> qd.i32: return len([*set(X)][0])
@qd.kernel
def pop() -> qd.i32: return len(set(X).pop())
@qd.kernel
def extended() -> qd.i32:
    t = []
    t.extend(set(X))
    return len(t[0])
@qd.kernel
def extended_by_captured() -> qd.i32:
    t = []
    t.extend(S)
    return len(t[0])
@qd.kernel
def spread() -> qd.i32: return helper(*set(X))
@qd.kernel
def of_a_type() -> qd.i32: return len(type(S)(X).__iter__().__next__())
@qd.kernel
def in_a_dict() -> qd.i32: return len(list({x: 1 for x in set(X)})[0])

first = len(list(set(X))[0])
order = int("".join(str(len(x)) for x in set(X)))
frozen = len(list(S)[0])
seen = [k() for k in (comprehension, loop, star, pop, extended, extended_by_captured, spread, of_a_type, in_a_dict)]
expected = [first, order, first, len(set(X).pop()), first, frozen, first, first, first]
print(json.dumps([seen, expected, first]))
"""


@pytest.mark.oracle_differs("spreads a set in another order")
def test_sets_made_in_a_kernel_have_the_order_of_the_process(tmp_path):
    path = tmp_path / "sets.py"
    path.write_text(SETS)
    firsts = set()
    for seen, expected, first in runs(path, tmp_path, seeds=(1, 2, 3, 4)):
        assert seen == expected
        firsts.add(first)
    assert len(firsts) > 1


NANS = """
import json, math, sys
import numpy as np
import quadrants as qd
qd.init(arch=qd.cpu, default_fp=qd.f64)
N = math.copysign(float("nan"), float(open(sys.argv[0] + ".sign").read()))
T, A, F, V, Z = (N,), np.array([N]), np.float32(N), qd.Vector([N]), complex(0, N)

@qd.func
def default(a=N):
    return qd.bit_cast(qd.cast(a, qd.f64), qd.i64) < 0

@qd.kernel
def of_tuple() -> qd.u1: return qd.bit_cast(qd.cast(min(T), qd.f64), qd.i64) < 0
@qd.kernel
def of_array() -> qd.u1: return qd.bit_cast(qd.cast(A[0], qd.f64), qd.i64) < 0
@qd.kernel
def of_scalar() -> qd.u1: return qd.bit_cast(qd.cast(F, qd.f64), qd.i64) < 0
@qd.kernel
def of_vector() -> qd.u1: return qd.bit_cast(qd.cast(V[0], qd.f64), qd.i64) < 0
@qd.kernel
def of_complex() -> qd.u1: return qd.bit_cast(qd.cast(Z.imag, qd.f64), qd.i64) < 0
@qd.kernel
def of_default() -> qd.u1: return default()

print(json.dumps([bool(k()) for k in (of_tuple, of_array, of_scalar, of_vector, of_complex, of_default)]))
"""


def test_nans_of_another_sign_are_other_constants(tmp_path):
    path = tmp_path / "nans.py"
    path.write_text(NANS)
    for sign in (1, -1, 1):
        (tmp_path / "nans.py.sign").write_text(str(sign))
        (seen,) = runs(path, tmp_path, seeds=(None,))
        assert seen == [sign < 0] * 6


def test_how_numpy_prints_is_asked_again(tmp_path):
    path = tmp_path / "prints.py"
    path.write_text("""
import json, sys
import numpy as np
import quadrants as qd
qd.init(arch=qd.cpu)
A = np.array([1 / 3])
digits = int(open(sys.argv[0] + ".digits").read())
np.set_printoptions(precision=digits)

@qd.kernel
def k0() -> qd.i32: return qd.static(len(str(A)))
@qd.kernel
def k1() -> qd.i32: return qd.static(len(f"{A}"))
@qd.kernel
def k2() -> qd.i32: return qd.static(len("%s" % A))
@qd.kernel
def k3() -> qd.i32: return qd.static(len(repr([A])))
@qd.kernel
def k4() -> qd.i32: return qd.static(len("{}".format(A)))
@qd.kernel
def k5() -> qd.i32: return qd.static(len(str((A,))))
expected = [len(str(A)), len(f"{A}"), len("%s" % A), len(repr([A])), len("{}".format(A)), len(str((A,)))]
print(json.dumps([[k() for k in (k0, k1, k2, k3, k4, k5)], expected]))
""")
    for digits in (3, 5, 3):
        (tmp_path / "prints.py.digits").write_text(str(digits))
        ((seen, expected),) = runs(path, tmp_path, seeds=(None,))
        assert seen == expected


# --- the same question twice ----------------------------------------------------------------------

ASKED = """
import collections, functools, itertools, json, operator, random, sys
import numpy as np
import quadrants as qd
qd.init(arch=qd.cpu)
other = int(open(sys.argv[0] + ".other").read())
ITEMS = [3, 5, 4] if other else [3, 3, 4]
IT, BACK, N, A = iter(ITEMS), ITEMS[::-1], [0], np.zeros(1, np.int64)
HELD, DEQUE = {{"l": BACK}}, collections.deque(ITEMS)

class Stepper:
    def step(self):
        N[0] += 1
        return ITEMS[N[0] - 1]
    v = property(step)
    __call__ = step
    __getitem__ = __getattr__ = __add__ = __radd__ = lambda self, _: self.step()
    __len__ = __int__ = __index__ = __neg__ = step
    of_class = classmethod(lambda cls: STEP.step())
    of_none = staticmethod(lambda: STEP.step())

    def __eq__(self, o):
        return self.step() == 3

    def __hash__(self):
        return self.step()

    def __format__(self, spec):
        return str(self.step())

    def __iter__(self):
        return iter([self.step()])

    def __contains__(self, o):
        return self.step() == 3

STEP = Stepper()
FUNCTIONS = [STEP.step]

{helper}

@qd.kernel
def k() -> qd.i32:
    return qd.static({question}) * 10 + qd.static({question})

first, second = ITEMS[:2]
if {is_truth}:
    first, second = int(first == 3), int(second == 3)
print(json.dumps([int(k()), first * 10 + second]))
"""
QUESTIONS = {  # a helper, and the question
    "goes_over_an_iterator": ("def ask():\n    for x in IT:\n        return x", "ask()"),
    "next_by_another_name": ("nx = next\ndef ask(): return nx(IT)", "ask()"),
    "bound_next": ("NX = IT.__next__\ndef ask(): return NX()", "ask()"),
    "bound_next_alone": ("NX = IT.__next__", "NX()"),
    "partial": ("ask = functools.partial(next, IT)", "ask()"),
    "islice": ("def ask(): return list(itertools.islice(IT, 1))[0]", "ask()"),
    "generator": ("def gen():\n    yield from ITEMS\nG = gen()\ndef ask(): return next(G)", "ask()"),
    "lambda": ("ask = lambda: next(IT)", "ask()"),
    "renamed_list": ("def ask():\n    l = BACK\n    return l.pop()", "ask()"),
    "renamed_count": ("def ask():\n    n = N\n    n[0] += 1\n    return ITEMS[n[0] - 1]", "ask()"),
    "in_a_dict": ("def ask(): return HELD['l'].pop()", "ask()"),
    "default": ("def ask(l=BACK): return l.pop()", "ask()"),
    "parameter": ("def pop(l): return l.pop()\ndef ask(): return pop(BACK)", "ask()"),
    "getattr": ("def ask(): return getattr(BACK, 'pop')()", "ask()"),
    "kept_pop": ("POP = BACK.pop\ndef ask(): return POP()", "ask()"),
    "caller": ("ask = operator.methodcaller('pop')", "ask(BACK)"),
    "in_a_list": ("def ask(): return FUNCTIONS[0]()", "ask()"),
    "callback": ("def ask(): return list(map(lambda _: STEP.step(), [0]))[0]", "ask()"),
    "key": ("def key(x): return STEP.step()\ndef ask(): return (max([1], key=key), ITEMS[N[0] - 1])[1]", "ask()"),
    "classmethod": ("def ask(): return Stepper.of_class()", "ask()"),
    "staticmethod": ("def ask(): return STEP.of_none()", "ask()"),
    "property": ("def ask(): return STEP.v", "ask()"),
    "call": ("def ask(): return STEP()", "ask()"),
    "item": ("def ask(): return STEP[0]", "ask()"),
    "member": ("def ask(): return STEP.anything", "ask()"),
    "add": ("def ask(): return STEP + 0", "ask()"),
    "radd": ("def ask(): return 0 + STEP", "ask()"),
    "len": ("def ask(): return len(STEP)", "ask()"),
    "int": ("def ask(): return int(STEP)", "ask()"),
    "neg": ("def ask(): return -STEP", "ask()"),
    "hash": ("def ask(): return hash(STEP)", "ask()"),
    "text": ("def ask(): return int(f'{STEP}')", "ask()"),
    "iter": ("def ask():\n    for x in STEP:\n        return x", "ask()"),
    "comprehension": ("def ask(): return [x for x in STEP][0]", "ask()"),
    "unpacked": ("def ask():\n    (x,) = STEP\n    return x", "ask()"),
    "eq": ("def ask(): return int(STEP == 7)", "ask()"),
    "in": ("def ask(): return int(7 in STEP)", "ask()"),
    "among_others": ("def ask(): return [STEP].count(7)", "ask()"),
    "count_in_the_kernel": ("L = [STEP]", "L.count(7)"),
    "equal_lists_in_the_kernel": ("L = [STEP]", "int([7] == L)"),
    "deque": ("def ask(): return DEQUE.popleft()", "ask()"),
    "array": ("def ask():\n    a = A\n    a += 1\n    return ITEMS[int(a[0]) - 1]", "ask()"),
    "positional_output": ("def ask():\n    np.add(A, 1, A)\n    return ITEMS[int(A[0]) - 1]", "ask()"),
    "output_of_a_unary": ("def ask():\n    np.negative(np.invert(A), A)\n    return ITEMS[int(A[0]) - 1]", "ask()"),
    "output_of_a_method": ("ONE = np.ones(1, np.int64)\ndef ask():\n    (A + ONE).clip(0, 9, A)\n    return ITEMS[int(A[0]) - 1]", "ask()"),
    "output_by_name": ("def ask():\n    np.add(A, 1, out=A)\n    return ITEMS[int(A[0]) - 1]", "ask()"),
    "array_by_at": ("def ask():\n    np.add.at(A, 0, 1)\n    return ITEMS[int(A[0]) - 1]", "ask()"),
    "random": ("G = random.Random(4 if other else 8)\nITEMS = [random.Random(4 if other else 8)]\nITEMS = [ITEMS[0].getrandbits(2) for _ in range(2)]\ndef ask(): return G.getrandbits(2)", "ask()"),
    "global": ("C = 0\ndef ask():\n    globals()['C'] += 1\n    return ITEMS[C - 1]", "ask()"),
    "with": ("import contextlib\n@contextlib.contextmanager\ndef one():\n    yield STEP.step()\ndef ask():\n    with one() as x:\n        return x", "ask()"),
    "renamed_in_a_loop": ("PARTS = [HELD]\ndef ask():\n    for p in PARTS:\n        return p['l'].pop()", "ask()"),
    "out_of_a_fresh_one": ("def ask():\n    out = [BACK]\n    return out[0].pop()", "ask()"),
    "from_a_table": ("def ask():\n    l = HELD.get('l')\n    l += []\n    return l.pop()", "ask()"),
    "written_list": ("def ask(l): return STEP.step()", "ask([1, 2])"),
}  # fmt: skip
TRUTHS = {"eq", "in", "among_others", "count_in_the_kernel", "equal_lists_in_the_kernel"}


@pytest.mark.parametrize("what", QUESTIONS)
@pytest.mark.oracle_differs("traces twice")
def test_equal_answers_say_nothing_about_the_next_process(tmp_path, what):
    helper, question = QUESTIONS[what]
    path = tmp_path / "asked.py"
    path.write_text(ASKED.format(helper=helper, question=question, is_truth=what in TRUTHS))
    for other in (0, 1, 0):
        (tmp_path / "asked.py.other").write_text(str(other))
        ((seen, expected),) = runs(path, tmp_path, seeds=(None,))
        assert seen == expected, other


LOOKS = """
import dataclasses, enum, json, math
import numpy as np
import quadrants as qd
qd.init(arch=qd.cpu)

class Mode(enum.Enum):
    A = 1
    B = 2

@dataclasses.dataclass
class Part:
    n: int = 3
    sizes: tuple = (1, 2)

class Config:
    def __init__(self):
        self.part, self.mode, self.names, self.table = Part(), Mode.B, ["a", "bb"], {{"x": 4}}

    @property
    def double(self):
        return self.part.n * 2

    def scaled(self, by=2):
        return self.double * by

C, A = Config(), np.array([1, 2, 3])

def total(values):
    s = 0
    for v in values:
        if v > 1:
            s += v
    return s

{helper}

@qd.kernel
def k() -> qd.i32:
    return qd.static({question}) * 100 + qd.static({question})

print(json.dumps([int(k()), qd._lib.core.counters()["lowered"]]))
"""
PLAIN = {
    "members": ("def ask(): return C.part.n + len(C.names) if C.mode == Mode.B else 0", "ask()", 5),
    "property": ("", "C.double", 6),
    "method": ("", "C.scaled()", 12),
    "keyword": ("def ask(c): return c.scaled(by=3)", "ask(C)", 18),
    "loop": ("def ask(): return total(C.part.sizes)", "ask()", 2),
    "sum": ("def ask(): return sum(len(n) for n in C.names)", "ask()", 3),
    "table": ("def ask(): return C.table['x'] + C.table.get('y', 1)", "ask()", 5),
    "math": ("def ask(): return int(math.sqrt(16) + round(0.4))", "ask()", 4),
    "numpy": ("def ask(): return int(np.dot(A, A) + A.sum() + A[0])", "ask()", 21),
    "text": ("def ask(): return len(f'{C.part.n:03d}' + 'ab'.upper())", "ask()", 5),
    "getattr": ("def ask(): return getattr(C, 'double') + getattr(C, 'none', 1) + hasattr(C, 'part')", "ask()", 8),
    "lambda": ("ask = lambda x: x * 2 + C.part.n", "ask(4)", 11),
    "objects": ("PARTS = [Part(), Part(n=4)]\ndef ask(): return sum(p.n + s for p in PARTS for s in p.sizes)", "ask()", 20),
    "loop_over_objects": ("PARTS = (Part(), Part(n=4))\ndef ask():\n    n = 0\n    for p in PARTS:\n        n += p.n\n    return n", "ask()", 7),
    "fresh": ("def ask():\n    out = []\n    for s in C.part.sizes:\n        out.append(s * 2)\n    return len(out) + out[0]", "ask()", 4),
    "kinds": ("def ask(): return isinstance(C, Config) + (C.mode is Mode.B) + (type(C.part) is Part)", "ask()", 3),
}  # fmt: skip


@pytest.mark.parametrize("what", PLAIN)
def test_what_only_looks_may_be_asked_twice(tmp_path, what, established):
    helper, question, expected = PLAIN[what]
    path = tmp_path / "looks.py"
    path.write_text(LOOKS.format(helper=helper, question=question))
    seen = list(runs(path, tmp_path))
    assert [number for number, _ in seen] == [expected * 101] * 3
    if not established:
        assert [lowered for _, lowered in seen] == [1, 0, 0]


def test_a_guard_asks_for_the_body(tmp_path):
    """A recipe that is refused after all has asked once; with a list, too."""
    path = tmp_path / "register.py"
    path.write_text("""
import collections, json, sys
import quadrants as qd
qd.init(arch=qd.cpu)
other = int(open(sys.argv[0] + ".other").read())
W, NAMES, TABLE, KEYS = [other], [], collections.defaultdict(list), []

def register(pair):
    NAMES.append(pair)
    return len(NAMES)

def key(x):
    KEYS.append(x)
    return x

def h():
    return 1

@qd.kernel
def k() -> qd.i32: return register(["a", 1]) * 10 + W[0]
@qd.kernel
def missing() -> qd.i32:
    a = len(TABLE)
    b = len(TABLE["a"])
    return a * 100 + b * 10 + W[0]
@qd.kernel
def by_key() -> qd.i32: return max([1, 2], key=key) + h()
print(json.dumps([k(), len(NAMES), missing(), len(TABLE), by_key(), KEYS]))
""")
    for other in (0, 1, 0, 1):
        (tmp_path / "register.py.other").write_text(str(other))
        (seen,) = runs(path, tmp_path, seeds=(None,))
        assert seen == [10 + other, 1, other, 1, 3, [1, 2]], other


SET_ATTRIBUTES = {
    "shape": ("setattr(A, 'shape', (2, 2))", "A.shape == (2, 2)"),
    "dtype": ("setattr(A, 'dtype', np.int32)", "A.dtype == np.int32"),
    "names": ("setattr(D, 'names', ('z',))", "D.names == ('z',)"),
    "deleted": ("delattr(S, 'x')", "not hasattr(S, 'x')"),
}


@pytest.mark.parametrize("what", SET_ATTRIBUTES)
def test_attributes_are_set_in_each_process(tmp_path, what):
    call, holds = SET_ATTRIBUTES[what]
    path = tmp_path / "sets.py"
    path.write_text(f"""
import json, types
import numpy as np
import quadrants as qd
qd.init(arch=qd.cpu)
A, D, S = np.zeros(4, np.int64), np.dtype([("x", "i4")]), types.SimpleNamespace(x=1)

@qd.kernel
def k() -> qd.i32:
    {call}
    return 1
k()
print(json.dumps(bool({holds})))
""")
    assert list(runs(path, tmp_path)) == [True] * 3


# --- templates ------------------------------------------------------------------------------------


def test_data_oriented_objects_that_are_equal_are_two(backend):
    @qd.data_oriented
    class Named:
        def __init__(self, name, x):
            self.name, self.x = name, x

        def __eq__(self, other):
            return self.name == other.name

        def __hash__(self):
            return hash(self.name)

        @qd.kernel
        def k(self) -> qd.i32:
            return self.x

    @qd.kernel
    def of(a: qd.template()) -> qd.i32:
        return a.x

    a, b = Named("a", 3), Named("a", 5)
    assert (a.k(), b.k(), of(a), of(b), a.k(), of(a)) == (3, 5, 3, 5, 3, 3)
    c, d = Named("a", 3), Named("c", 7)
    before = d.k()
    d.x = 8  # its number is a constant from its first call on
    assert (c.k(), of(c), before, d.k(), Named("c", 8).k()) == (3, 3, 7, 7, 8)


@pytest.mark.parametrize("hold", [list, lambda v: qd.field(qd.i32, 2), lambda v: np.array(v)])
def test_equal_objects_that_hold_other_things_are_two(backend, hold):
    """Members that are no constants count by identity."""

    @qd.data_oriented
    class Named:
        def __init__(self, held):
            self.held = held

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

        @qd.kernel
        def first(self) -> qd.i32:
            return self.held[0]

    one, two = Named(hold([3, 4])), Named(hold([5, 4]))
    for named, value in ((one, 3), (two, 5)):
        if hold is not list and not isinstance(named.held, np.ndarray):
            named.held[0] = value
    assert [one.first(), two.first(), one.first()] == [3, 5, 3]


ALIKE = {  # equal values, and what a kernel makes of each
    "f32": (np.float32(0.0), np.float32(-0.0), lambda a: np.copysign(1.0, a)),
    "tuple": ((np.float64(0.0),), (np.float64(-0.0),), lambda a: np.copysign(1.0, a[0])),
    "complex": (0j, complex(0, -0.0), lambda a: np.copysign(1.0, a.imag)),
    "range": (range(0, 3, 2), range(0, 4, 2), lambda a: a.stop),
    "frozenset": (frozenset([1]), frozenset([1.0]), lambda a: len(str(a))),
}


@pytest.mark.parametrize("what", ALIKE)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.oracle_differs("takes equal templates for one")
def test_templates_that_are_equal_and_not_alike(backend, what):
    first, second, look = ALIKE[what]

    @qd.kernel
    def k(a: qd.template()) -> qd.f32:
        return qd.static(float(look(a)))

    assert first == second and look(first) != look(second)
    assert [k(first), k(second), k(first)] == [look(first), look(second), look(first)]
