"""What Python runs while a kernel is traced may change what the kernel reads: no guard may ask it."""

import json
import os
import subprocess
import sys

import pytest

# Definitions, and the body of a kernel that writes to `out`. `T` is a list that differs between
# processes; `Count` gives its items in turn, whatever it is asked for.
CHANGES = {
    "begin_and_end": (
        """
        class Config:
            dt = 1
            def begin(self): self.dt = 4
            def steps(self): return self.dt * T[0]
            def end(self): self.dt = 1
        config = Config()
        """,
        "out[0] = config.dt; config.begin(); out[1] = config.steps(); config.end()",
    ),
    "begin_and_end_of_a_list": (
        """
        stack = [1]
        def push(): stack.append(T[1])
        def pop(): stack.pop()
        """,
        "out[0] = len(stack); push(); out[1] = stack[len(stack) - 1] * T[0]; pop(); out[2] = len(stack)",
    ),
    "begin_and_end_of_a_name": (
        """
        scale = 1
        def set_scale(x):
            global scale
            scale = x
        """,
        "out[0] = scale; set_scale(5); out[1] = scale * T[0]; set_scale(1); out[2] = scale",
    ),
    "in_a_context": (
        """
        class Scope:
            depth = 0
            def __enter__(self): self.depth += 1
            def __exit__(self, *_): self.depth -= 1
        scope = Scope()
        def inside():
            with scope:
                return scope.depth * T[0]
        """,
        "out[0] = scope.depth; out[1] = inside(); out[2] = scope.depth",
    ),
    "the_same_value_the_first_time": (
        """
        class Config:
            n = 0
            def use(self, k): self.n = [3, T[0]][k]
        config = Config()
        """,
        "config.use(0); out[0] = config.n; config.use(1); out[1] = config.n",
    ),
    "read_before_it_is_read_anew": (
        """
        table = [3]
        def reload():
            table[0] = T[0]
            return table[0]
        """,
        "out[0] = table[0]; out[1] = reload()",
    ),
    "a_func_that_asks_for_a_length": (
        """
        joints = [0]
        @qd.func
        def count(): return len(joints)
        def more(): joints.extend([0] * (T[0] - 3))
        """,
        "out[0] = count(); qd.static(more()); out[1] = count()",
    ),
    "below_what_is_asked": (
        """
        class Box:
            n = 0
            def add(self, m): self.n += m
            def total(self): return self.n * T[0]
        box = Box()
        def the_box(): return box
        """,
        "out[0] = the_box().n; box.add(2); out[1] = box.total()",
    ),
    "an_array": (
        """
        state = np.ones(2)
        def begin(): state[0] = 7
        def end(): state[0] = 1
        """,
        "out[0] = state[0]; begin(); out[1] = state[0] * T[0]; end()",
    ),
    "a_member_of_data": (
        """
        @qd.data_oriented
        class Solver:
            def __init__(self): self.n = 1
            def begin(self): self.n = 6
            def end(self): self.n = 1
        solver = Solver()
        """,
        "out[0] = solver.n; solver.begin(); out[1] = solver.n * T[0]; solver.end()",
    ),
}
# Definitions, and an expression that is evaluated twice.
HOOKS = {
    "property_of_another": (
        """
        class Sim:
            def __init__(self): self.clock = Count()
            @property
            def dt(self): return self.clock.v
        sim = Sim()
        """,
        "sim.dt",
    ),
    **{
        f"property_that_asks_{name}": (
            f"""
        class Sim:
            def __init__(self): self.b, self.bs = Count(), [Count()]
            @property
            def dt(self): return {text}
        sim = Sim()
        """,
            "sim.dt",
        )
        for name, text in {
            "an_item": "self.b[0]",
            "a_length": "len(self.b)",
            "a_sum": "self.b + 0",
            "an_equality": "(self.b == 3) + 1",
            "the_largest": "max(self.b)",
            "a_truth": "1 if self.b else 2",
            "a_text": "int(f'{self.b}')",
            "one_of_a_list": "self.bs[0].v",
            "a_method": "self.b.take()",
            "a_missing_member": "self.b.other",
        }.items()
    },
    "cached_elsewhere": (
        """
        import functools
        class Sim:
            @functools.cached_property
            def made(self): return [Count()]
            @property
            def dt(self): return self.made[0].v
        sim = Sim()
        """,
        "sim.dt",
    ),
    "missing_item": (
        """
        import collections
        source = Count()
        class Sim:
            table = collections.defaultdict(lambda: source.take())
            @property
            def dt(self):
                d = self.table
                return d[len(d)]
        sim = Sim()
        """,
        "sim.dt",
    ),
    "str": ("c = Count()", "int(str(c))"),
    "repr": ("c = Count()", "int(repr(c))"),
    "f_string": ("c = Count()", "len(f'{c}') + int(f'{c}')"),
    "percent": ("c = Count()", "int('%s' % c)"),
    "list_of_it": ("c = [Count()]", "int(str(c)[1:-1])"),
    "format_spec": ("c = Count()", "int(f'{c:x}')"),
    "item_of_a_class": (
        """
        class G:
            def __class_getitem__(cls, key): return source.take()
        source = Count()
        """,
        "G[0]",
    ),
    "dir": ("c = Count()", "len(dir(c))"),
    "dataclasses": (
        """
        import dataclasses
        @dataclasses.dataclass
        class D:
            m: object
        d, e = D(Count()), D(3)
        """,
        "1 if d == e else 2",
    ),
    "named_tuple": (
        """
        import collections
        c = collections.namedtuple("P", "m")(Count())
        """,
        "int(repr(c)[4:-1])",
    ),
    "dicts": ("c = Count()", "1 if {'a': c} == {'a': 3} else 2"),
    "deep_lists": ("c = [[[[[[Count()]]]]]]", "1 if c == [[[[[[3]]]]]] else 2"),
    "keys": (
        """
        class Key(Count):
            def __hash__(self): return 3
        table = {Key(): 5}
        """,
        "table.get(3, 1)",
    ),
    "in_a_deque": (
        """
        import collections
        line = collections.deque([Count()])
        """,
        "1 if qd.static(3 in line) else 2",
    ),
    "in_a_list_made_here": ("c = Count()", "1 if qd.static(3 in [c]) else 2"),
    "hasattr": (
        "c = Sometimes()",
        "1 if hasattr(c, 'v') else 2",
    ),
    "protocol": (
        """
        import typing
        @typing.runtime_checkable
        class Has(typing.Protocol):
            v: int
        c = Sometimes()
        """,
        "1 if isinstance(c, Has) else 2",
    ),
    "a_length_through_others": (
        """
        class L(list):
            n = 0
            def __len__(self):
                self.n += 1
                return T[self.n - 1]
        c = L()
        def h(): return len(c)
        """,
        "h() * 10 + len(c)",
    ),
    "callable_object_as_method": (
        """
        class Length:
            def __init__(self): self.n = 0
            def __call__(self):
                self.n += 1
                return T[self.n - 1]
        class C:
            __len__ = Length()
        c = C()
        """,
        "len(c)",
    ),
    "lambda_of_a_decorator": (
        """
        source = Count()
        sizes = {}
        def register(size):
            def keep(f):
                sizes[f.__name__] = size
                return f
            return keep
        @register(lambda: source.take())
        def box(): return 3
        size = sizes["box"]
        """,
        "size()",
    ),
    "lambda_of_a_default": (
        """
        source = Count()
        def box(size=lambda: source.take()): return 3
        size = box.__defaults__[0]
        """,
        "size()",
    ),
    "behind_a_property_that_raises": (
        """
        source = Count()
        class Sim:
            @property
            def dt(self): raise AttributeError("dt")
            def __getattr__(self, name): return source.take()
        sim = Sim()
        """,
        "sim.dt",
    ),
    "format_by_spec": (
        """
        source = Count()
        class F:
            def __format__(self, spec): return str({"": int, "x": source.take}[spec]())
        f = F()
        def h(): return int(f"{f:x}")
        """,
        "h()",
    ),
    "subclass": (
        """
        source = Count()
        class M(type):
            def __instancecheck__(cls, o): return True
            def __subclasscheck__(cls, c): return source.take() == 3
        class C(metaclass=M): pass
        def h(): return 1 if issubclass(int, C) else 2
        """,
        "h()",
    ),
    "compared_keys": (
        """
        import functools
        source = Count()
        a = functools.cmp_to_key(lambda x, y: source.take() - 4)(1)
        def h(): return 1 if a < a else 2
        """,
        "h()",
    ),
    "any_of_many": (
        """
        class Body:
            def __init__(self, k): self.k = k
            def get(self): return self.k
        class Other(Body):
            def get(self): return source.take()
        source = Count()
        bodies = [Body(0) for _ in range(3000)] + [Other(1)]
        def h(): return sum(b.get() for b in bodies)
        """,
        "h()",
    ),
    "by_keyword": (
        """
        source = Count()
        def take(a, b=None): return b.take() + a
        """,
        "take(0, b=source)",
    ),
    "has_the_name_of_numpys": (
        """
        source = Count()
        def sum(x): return source.take()
        before, np.sum = np.sum, sum
        """,
        "np.sum(1)",
    ),
}
if sys.version_info >= (3, 12):
    del HOOKS["protocol"]  # which reads no property any more
LOOKS = {  # what only looks: no later process traces it again
    "property_of_another": HOOKS["property_of_another"][0].replace("Count()", "Plain()"),
    "frozen": """
        import dataclasses
        @dataclasses.dataclass(frozen=True)
        class D:
            n: int = 3
            @property
            def double(self): return self.n * 2
            def half(self):
                if self.n < 0: raise ValueError(f"negative: {self.n}")
                return self.n // 2
        class Sim:
            d, e = D(), D(3)
            @property
            def dt(self): return self.d.double + self.d.half() + (self.d == self.e)
        sim = Sim()
        """,
    "enum": """
        import enum
        class Kind(enum.IntEnum):
            A = 1
            B = 2
        class Sim:
            kinds = {Kind.A: 4, Kind.B: 5}
            kind = Kind.B
            @property
            def dt(self): return self.kinds[self.kind] if self.kind in self.kinds else 0
        sim = Sim()
        """,
    "flow": """
        class Base:
            def __init__(self, k): self.k = k
            def get(self, *more): return self.k + len(more)
        class Body(Base):
            def get(self, *more): return super().get(*more) + 1
        bodies = [Body(k) for k in range(3000)]
        table = {"a": 1}
        class Sim:
            @property
            def dt(self):
                best = max(bodies, key=lambda b: b.k)
                for b in bodies:
                    if b.k > 3: break
                try: n = table["b"]
                except KeyError: n = 0
                return n + bodies[0].get(1, 2) + sum({b.k: 1 for b in bodies[:2]}.values())
        sim = Sim()
        """,
    "many": """
        class Sim:
            table = {f"n{k}": k for k in range(500)}
            @property
            def dt(self): return self.table["n7"] + len(self.table)
        sim = Sim()
        """,
}
HEAD = """
import json, sys
import numpy as np
import quadrants as qd
T = json.loads(sys.argv[1])

class Plain:
    v = 3
    def __repr__(self): return "a plain one"

class Sometimes:
    n = 0
    @property
    def v(self):
        self.n += 1
        if T[self.n - 1] != 3: raise AttributeError

class Count:
    def __init__(self): self.n = 0
    def take(self):
        self.n += 1
        return T[self.n - 1]
    v = property(take)
    def __getattr__(self, name):
        if name == "other": return self.take()
        raise AttributeError(name)
    def __getitem__(self, k): return self.take()
    def __len__(self): return self.take()
    def __add__(self, other): return self.take()
    def __eq__(self, other): return self.take() == 3
    __hash__ = object.__hash__
    def __iter__(self): return iter([self.take()])
    def __bool__(self): return self.take() == 3
    def __str__(self): return str(self.take())
    __repr__ = __str__
    def __format__(self, spec): return str(self.take())
    def __dir__(self): return ["a"] * self.take()

"""
MAIN = """
import importlib, json, sys
import numpy as np
import quadrants as qd
from quadrants._lib import core
results = {}
for name in NAMES:
    qd.init(arch=qd.cpu, log_level=qd.ERROR, unrolling_limit=0)
    before = core.counters()["lowered"]
    out = np.zeros(4, np.int32)
    importlib.import_module(name).k(out)
    results[name] = [out.tolist(), core.counters()["lowered"] - before]
    qd.reset()
print(json.dumps(results))
"""


def write(folder, name, definitions, *statements):
    lines = definitions.splitlines()
    indent = min((len(x) - len(x.lstrip()) for x in lines if x.strip()), default=0)
    text = HEAD + "\n".join(x[indent:] for x in lines)
    text += "\n\n@qd.kernel\ndef k(out: qd.types.ndarray()):\n"
    (folder / f"{name}.py").write_text(text + "".join(f"    {s}\n" for s in statements))


def run(folder, values, cache=True):
    env = dict(os.environ, QD_OFFLINE_CACHE_FILE_PATH=str(folder / "cache"))
    env["QD_OFFLINE_CACHE"] = "1" if cache else "0"
    command = [sys.executable, "-W", "ignore", "main.py", json.dumps(values)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Of each kernel: after another process had other values, again, and without a cache."""
    folder = tmp_path_factory.mktemp("changes")
    names = []
    for name, (definitions, body) in CHANGES.items():
        names.append(f"changes_{name}")
        write(folder, names[-1], definitions, *body.split("; "))
    for name, (definitions, question) in HOOKS.items():
        names.append(f"hooks_{name}")
        write(folder, names[-1], definitions, f"out[0] = {question}", f"out[1] = {question}")
    for name, definitions in LOOKS.items():
        names.append(f"looks_{name}")
        write(folder, names[-1], definitions, "out[0] = sim.dt", "out[1] = sim.dt")
    (folder / "main.py").write_text(f"NAMES = {names}\n" + MAIN)
    run(folder, [3] * 40)
    other = [3, 4, 5, 6, 7, 8] * 8
    for _ in range(2):
        run(folder, other)
    fifth = [5, *other]
    return [
        run(folder, other),
        run(folder, fifth),
        run(folder, other, False),
        run(folder, fifth, False),
    ]


@pytest.mark.parametrize("name", [f"changes_{n}" for n in CHANGES] + [f"hooks_{n}" for n in HOOKS])
def test_it_is_as_without_a_cache(results, name):
    warm, moved, fresh, moved_fresh = (r[name][0] for r in results)
    assert warm == fresh and moved == moved_fresh and fresh != moved_fresh


@pytest.mark.parametrize("name", LOOKS)
def test_what_only_looks_is_traced_once(results, name):
    warm, _, fresh, _ = (r[f"looks_{name}"] for r in results)
    assert warm[0] == fresh[0] and warm[1] == 0 and fresh[1] == 1
