"""Entries of `fastcache=True` kernels in `python_side_cache`, and what kernels say of them: chapter 51, sections 6, 8, 9."""

import argparse
import ast
import dataclasses
import decimal
import enum
import functools
import importlib
import json
import os
import sys
import types
import typing

import numpy as np
import pytest

import quadrants as qd
from helpers import flag, module_at
from quadrants._lib import core
from quadrants.lang._fast_caching import FIELD_METADATA_CACHE_VALUE


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Pair:
    x: qd.types.NDArray[qd.f32, 1]
    n: qd.i32


@dataclasses.dataclass
class Held:
    t: qd.Tensor


@dataclasses.dataclass
class Triple(Pair):
    m: qd.i32 = 2


@dataclasses.dataclass
class Valued:
    n: int = dataclasses.field(metadata={FIELD_METADATA_CACHE_VALUE: True})
    y: float = 1.0


class Opaque:
    pass


@qd.data_oriented
class Model:
    def __init__(self, gain=3, **more):
        self.a = qd.ndarray(qd.f32, 4)
        self.gain = gain
        vars(self).update(more)

    @property
    def twice(self):
        return 2 * self.gain

    @functools.cached_property
    def once(self):
        return 3


@qd.kernel(fastcache=True)
def touch(a: qd.types.ndarray()):
    for i in qd.grouped(a):
        a[i] += 1


@qd.kernel(fastcache=True)
def times(x: qd.i32, y: qd.f32) -> qd.f32:
    return x * y


@qd.kernel(fastcache=True)
def fixed(x: qd.template()) -> qd.i32:
    r = 0
    if qd.static(x in (Color.RED, Level.LOW, 3)):
        r = 1
    return r


@qd.kernel(fastcache=True)
def members(p: Pair) -> qd.i32:
    for i in p.x:
        p.x[i] = p.n
    return p.n


@qd.kernel(fastcache=True)
def of_model(m: qd.template()):
    for i in m.a:
        m.a[i] = m.gain


class OtherModel(Model):
    pass


@qd.data_oriented(template_primitives=False)
class Runtime:
    def __init__(self, n, inner=None):
        self.n, self.inner = n, inner


@qd.kernel(fastcache=True)
def valued(v: Valued) -> qd.f32:
    return v.n + v.y


@qd.kernel(fastcache=True)
def of_number(m: qd.template()) -> qd.f32:
    return m.n


@qd.kernel(fastcache=True)
def of_inner(m: qd.template()) -> qd.f32:
    return m.inner.n


@qd.kernel(fastcache=True)
def of_gain_pair(m: qd.template()) -> qd.f32:
    return m.gain.n


@qd.kernel(fastcache=True)
def of_property(m: qd.template()) -> qd.i32:
    return m.twice


@qd.kernel(fastcache=True)
def of_cached_property(m: qd.template()) -> qd.i32:
    return m.once


@qd.kernel(fastcache=True)
def of_field(m: qd.template()) -> qd.f32:
    return m.f[0]


@qd.kernel(fastcache=True)
def template_field(f: qd.template()):
    for i in f:
        f[i] = 1


@qd.kernel(fastcache=True)
def tensor(t: qd.Tensor):
    for i in t:
        t[i] = 1


@qd.kernel(fastcache=True)
def held_tensor(h: Held):
    for i in h.t:
        h.t[i] = 1


@qd.kernel(fastcache=True)
def vector(v: qd.types.vector(2, qd.f32)) -> qd.f32:
    return v[0]


@qd.kernel(fastcache=True, graph=True)
def graph(a: qd.types.ndarray()):
    for i in a:
        a[i] = 2


@qd.kernel
def undeclared(a: qd.types.ndarray()):
    for i in a:
        a[i] = 2


def array(dtype=qd.f32, shape=4, **more):
    return qd.ndarray(dtype, shape, **more)


def field():
    return qd.field(qd.f32, 4)


def field_tensor():
    return qd.tensor(qd.f32, (4,), backend=qd.Backend.FIELD)


# kernel, arguments, tags that the log shows; None: there is no entry, and nobody is told
KEYED = {
    "ndarray": (touch, lambda: [array()]),
    "ndarray of i32": (touch, lambda: [array(qd.i32)]),
    "ndarray of two axes": (touch, lambda: [array(shape=(2, 2))]),
    "vectors": (touch, lambda: [qd.Vector.ndarray(2, qd.f32, 3)]),
    "numpy": (touch, lambda: [np.zeros(4, np.float32)]),
    "numbers": (times, lambda: [3, 2.5]),
    "numpy numbers": (times, lambda: [np.int32(3), np.float32(2.5)]),
    "template number": (fixed, lambda: [3]),
    "template float": (fixed, lambda: [2.5]),
    "enum": (fixed, lambda: [Color.RED]),
    "int enum": (fixed, lambda: [Level.LOW]),
    "None": (fixed, lambda: [None]),
    "dataclass": (members, lambda: [Pair(array(), 3)]),
    "data oriented": (of_model, lambda: [Model()]),
    "an opaque member that is not read": (of_model, lambda: [Model(other=Opaque())]),
    "property": (of_property, lambda: [Model()]),
    "tensor": (tensor, lambda: [qd.tensor(qd.f32, (4,))]),
    "graph": (graph, lambda: [array()]),
}
UNKEYED = {
    "field": (template_field, lambda: [field()], "INVALID_FUNC"),
    "field member": (of_field, lambda: [Model(f=field())], "INVALID_FUNC"),
    "field tensor": (tensor, lambda: [field_tensor()], None),
    "member tensor": (held_tensor, lambda: [Held(field_tensor())], None),
    "opaque": (fixed, lambda: [Opaque()], "PARAM_INVALID UNKNOWN_TYPE INVALID_FUNC"),
    "text": (fixed, lambda: ["text"], "PARAM_INVALID UNKNOWN_TYPE INVALID_FUNC"),
    "vector": (vector, lambda: [qd.Vector([1.0, 2.0])], "PARAM_INVALID UNKNOWN_TYPE INVALID_FUNC"),
    "cached property": (of_cached_property, lambda: [Model()], "CACHED_PROPERTY INVALID_FUNC"),
    "undeclared": (undeclared, lambda: [array()], None),
}
TAGS = ("PARAM_INVALID", "UNKNOWN_TYPE", "INVALID_FUNC", "CACHED_PROPERTY")


class Programs:
    """Programs one after the other that share a cache."""

    def __init__(self, path):
        self.path = path

    def run(self, kernel, args, **options):
        """What a call in a new program observes: generated, validated, loaded, stored."""
        qd.init(arch=qd.cpu, offline_cache_file_path=str(self.path), **options)
        self.args = args()  # what is observed names them
        kernel(*self.args)
        return self.seen(kernel)

    @staticmethod
    def seen(kernel):
        o = kernel._primal.src_ll_cache_observations
        flags = (o.cache_key_generated, o.cache_validated, o.cache_loaded, o.cache_stored)
        return "".join(str(int(flag)) for flag in flags)

    def entries(self):
        return sorted((self.path / "python_side_cache").glob("*.cache.txt"))


@pytest.fixture
def programs(tmp_path):
    return Programs(tmp_path)


@pytest.mark.parametrize("name", KEYED)
def test_an_entry_and_a_hit(programs, name):
    kernel, args = KEYED[name]
    assert programs.run(kernel, args) == "1001"
    (entry,) = programs.entries()
    assert len(entry.name) == 64 + len(".cache.txt")
    assert programs.run(kernel, args) == "1110"
    assert kernel._primal.launch_observations.found_kernel_in_materialize_cache
    assert not kernel._primal.fe_ll_cache_observations.cache_hit
    assert programs.run(kernel, args, num_compile_threads=3) == "1001"  # a keyed option
    assert len(programs.entries()) == 2
    assert programs.run(kernel, args, print_ir_dbg_info=True) == "1110"  # one that is not
    assert programs.run(kernel, args, src_ll_cache=False) == "0000"
    assert programs.run(kernel, args, offline_cache=False) == "1101"


@pytest.mark.parametrize("name", UNKEYED)
def test_no_entry(programs, name, capfd):
    kernel, args, tags = UNKEYED[name]
    importlib.import_module("quadrants._compat.fast_arguments")._reported.clear()
    for _ in range(2):
        assert programs.run(kernel, args) == "0000"
    assert programs.entries() == []
    log = capfd.readouterr().err
    assert [t for t in TAGS if f"[FASTCACHE][{t}]" in log or f" [FASTCACHE][{t}]" in log] == [
        t for t in TAGS if t in (tags or "").split()
    ]


OTHERS = {
    "dtype": (touch, lambda: [array()], lambda: [array(qd.f64)]),
    "axes": (touch, lambda: [array()], lambda: [array(shape=(2, 2))]),
    "template value": (fixed, lambda: [3], lambda: [4]),
    "enum member": (fixed, lambda: [Color.RED], lambda: [Color.BLUE]),
    "member of an object": (of_model, lambda: [Model(3)], lambda: [Model(4)]),
    "gradient": (touch, lambda: [array()], lambda: [array(needs_grad=True)]),
    "value of a property": (of_property, lambda: [Model(3)], lambda: [Model(4)]),
    "type of a member of a dataclass": (
        members,
        lambda: [Pair(array(), 1)],
        lambda: [Pair(array(), True)],
    ),
    "value of a marked member": (valued, lambda: [Valued(1)], lambda: [Valued(2)]),
    "type of a marked member": (valued, lambda: [Valued(1)], lambda: [Valued(True)]),
    "bool after int": (of_number, lambda: [Runtime(1)], lambda: [Runtime(True)]),
    "int after float": (of_number, lambda: [Runtime(1.0)], lambda: [Runtime(1)]),
    "nested bool after int": (
        of_inner,
        lambda: [Runtime(0, Runtime(1))],
        lambda: [Runtime(0, Runtime(True))],
    ),
    "bool in a nested dataclass": (
        of_inner,
        lambda: [Runtime(0, Pair(None, 1))],
        lambda: [Runtime(0, Pair(None, True))],
    ),
    "value in a dataclass of an object": (
        of_gain_pair,
        lambda: [Model(Pair(None, 1))],
        lambda: [Model(Pair(None, 2))],
    ),
    "type of a number": (times, lambda: [3, 2.0], lambda: [np.int64(3), 2.0]),
}
ALIKE = {
    "shape": (touch, lambda: [array()], lambda: [array(shape=9)]),
    "number": (times, lambda: [3, 2.5], lambda: [4, 3.5]),
    "subclass of a dataclass": (members, lambda: [Pair(array(), 3)], lambda: [Triple(array(), 3)]),
    "class of an object": (of_model, lambda: [Model()], lambda: [OtherModel()]),
    "runtime member": (of_number, lambda: [Runtime(1)], lambda: [Runtime(2)]),
    "nested runtime member": (
        of_inner,
        lambda: [Runtime(0, Runtime(1))],
        lambda: [Runtime(0, Runtime(2))],
    ),
    "unmarked member": (valued, lambda: [Valued(1)], lambda: [Valued(1, 2.0)]),
    "member of a dataclass": (members, lambda: [Pair(array(), 3)], lambda: [Pair(array(), 4)]),
}


@pytest.mark.parametrize("name", [*OTHERS, *ALIKE])
def test_what_makes_another_entry(programs, name):
    kernel, args, others = (OTHERS | ALIKE)[name]
    programs.run(kernel, args)
    assert programs.run(kernel, others) == ("1001" if name in OTHERS else "1110")
    assert len(programs.entries()) == (2 if name in OTHERS else 1)


INFO = '{"function_name": "f", "filepath": __file__, "start_lineno": "1", "end_lineno": []}'
ROWS = f'[{{"function_source_info": {INFO}, "hash": 3}}]'.replace("__file__", json.dumps(__file__))


@pytest.mark.parametrize(
    "damage",
    ["", "no json", "{}", "3", "[" * 100_000]
    + [f'{{"hashed_function_source_infos": {rows}}}' for rows in ("3", "[1]", ROWS)],
)
def test_a_damaged_entry_is_written_again(programs, damage):
    kernel, args = KEYED["ndarray"]
    programs.run(kernel, args)
    (entry,) = programs.entries()
    content = entry.read_text()
    entry.write_text(damage)
    with pytest.warns(UserWarning, match="Failed to parse cache file"):
        assert programs.run(kernel, args) == "1001"
    assert entry.read_text() == content
    assert programs.run(kernel, args) == "1110"


def test_an_entry_that_is_no_text(programs):
    kernel, args = KEYED["ndarray"]
    programs.run(kernel, args)
    (entry,) = programs.entries()
    entry.write_bytes(b"\xff\xfe" + entry.read_bytes())
    with pytest.warns(UserWarning, match="Failed to read from cache at"):
        assert programs.run(kernel, args) == "1001"
    assert programs.run(kernel, args) == "1110"


@pytest.mark.parametrize("kind", ["pipe", "device", "endless"])
def test_what_stands_in_an_entry_s_place(programs, kind):
    """No call waits for a pipe, or reads a device or what no memory holds."""
    kernel, args = KEYED["ndarray"]
    programs.run(kernel, args)
    (entry,) = programs.entries()
    entry.unlink()
    if kind == "pipe":
        os.mkfifo(entry)
    elif kind == "device":
        entry.symlink_to("/dev/zero")
    else:
        entry.touch()
        os.truncate(entry, 1 << 42)
    assert programs.run(kernel, args) == "1001"
    assert entry.is_file() and not entry.is_symlink()
    assert programs.run(kernel, args) == "1110"


def test_no_place_for_entries(programs):
    """What is written beside a kernel's code never ends its call."""
    kernel, args = KEYED["ndarray"]
    folder = programs.path / "python_side_cache"
    folder.write_text("a file")
    assert programs.run(kernel, args) == "1000" == programs.run(kernel, args)
    folder.unlink()
    assert programs.run(kernel, args) == "1001"
    (entry,) = programs.entries()
    entry.unlink()
    entry.mkdir()
    assert programs.run(kernel, args) == "1000"


def test_values_that_cannot_be_written(programs):
    class Mute(int):
        def __str__(self):
            raise RuntimeError

        __repr__ = __format__ = __str__

    assert programs.run(fixed, lambda: [10**5000]) in ("0000", "1000")
    assert programs.run(fixed, lambda: [Mute(3)]) in ("0000", "1000")
    assert programs.run(of_model, lambda: [Model(gain=Mute(3))]) in ("0000", "1000")
    assert programs.run(of_model, lambda: [Model(gain=3, more="\udcff")]) == "1001"


def test_an_entry_that_was_deleted(programs):
    kernel, args = KEYED["ndarray"]
    programs.run(kernel, args)
    (entry,) = programs.entries()
    entry.unlink()
    assert programs.run(kernel, args) == "1001" and entry.exists()


def test_code_that_was_deleted(programs):
    kernel, args = KEYED["ndarray"]
    programs.run(kernel, args)
    qd.reset()
    for code in (programs.path / "kernel_compilation_manager").glob("*.qdc"):
        code.unlink()
    assert programs.run(kernel, args) == "1101"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code objects of before have no such table")
def test_last_lines_are_those_of_all_instructions():
    def codes(code):
        yield code
        for c in code.co_consts:
            if isinstance(c, types.CodeType):
                yield from codes(c)

    count = 0
    for module in (argparse, ast, decimal, typing, sys.modules[__name__]):
        whole = compile(open(module.__file__).read(), module.__file__, "exec")
        for code in [*codes(whole), *codes(whole.replace(co_firstlineno=7))]:
            ends = [end for _, end, _, _ in code.co_positions() if end]
            assert core.last_line(code) == max(ends, default=0)
            count += 1
    assert count > 1000
    with pytest.raises(TypeError, match="not a code object"):
        core.last_line(3)


def test_content(programs):
    programs.run(members, KEYED["dataclass"][1])
    qd.reset()
    (entry,) = programs.entries()
    content = json.loads(entry.read_text())
    code = content["frontend_cache_key"]
    assert (programs.path / "kernel_compilation_manager" / f"{code}.qdc").exists()
    (row,) = content["hashed_function_source_infos"]
    info = row["function_source_info"]
    assert info["function_name"] == "members" and info["filepath"] == __file__
    lines = open(__file__).read().split("\n")
    assert lines[info["start_lineno"] - 1] == "@qd.kernel(fastcache=True)"
    assert lines[info["end_lineno"] - 1] == "    return p.n"
    assert set(content["used_py_dataclass_parameters"]) == {
        "__qd_p",
        "__qd_p__qd_x",
        "__qd_p__qd_n",
    }
    assert content["graph_do_while_levels"] is None


class Stage(enum.IntEnum):
    FIRST = 3


@qd.kernel(fastcache=True, graph=True, checkpoints=True)
def staged(n: qd.types.ndarray(qd.i32, 0), stop: qd.types.ndarray(qd.i32, 0)):
    with qd.checkpoint(Stage.FIRST, yield_on=stop):
        for i in range(1):
            n[None] += 1


@qd.kernel(fastcache=True, graph=True)
def nested(n: qd.types.ndarray(qd.i32, 0), m: qd.types.ndarray(qd.i32, 0)):
    while qd.graph.do_while(n):
        while qd.graph.do_while(m):
            for i in range(1):
                m[None] -= 1
        for i in range(1):
            n[None] -= 1


@pytest.mark.parametrize(
    "kernel, levels, checkpoints",
    [
        (nested, [["n", -1, 0], ["m", 0, 1]], ([], [], [], [])),
        (staged, None, (["stop"], [0], [3], [f"{__name__}.Stage.FIRST"])),
    ],
    ids=["loops", "checkpoints"],
)
def test_tables_of_graphs(programs, kernel, levels, checkpoints):
    programs.run(kernel, lambda: [flag(1), flag(1)])
    (entry,) = programs.entries()
    content = json.loads(entry.read_text())
    assert content["graph_do_while_levels"] == levels
    tables = "yield_on_args yield_on_cpp_arg_ids user_labels_by_cp_id user_label_enum_qualnames"
    assert tuple(content[f"checkpoint_{name}"] for name in tables.split()) == checkpoints


CALLEE = """
import quadrants as qd
@qd.func
def inner(x):
    return x + {n}
@qd.kernel(fastcache=True)
def outer(x: qd.i32) -> qd.i32:
    return inner(x)
"""


def test_an_edited_callee(programs, tmp_path):
    def run(n):
        path = tmp_path / "callee.py"
        path.write_text(CALLEE.format(n=n))
        module = module_at(path, "callee")
        pattern = programs.run(module.outer, lambda: [1])
        assert module.outer(1) == 1 + n
        return pattern

    assert [run(5), run(5), run(66), run(66), run(5), run(5)] == ["1001", "1110"] * 3
    assert len(programs.entries()) == 1


def test_flags_stay_on_within_a_program(programs):
    kernel, args = KEYED["ndarray"]
    programs.run(kernel, args)
    assert programs.run(kernel, args) == "1110"
    kernel(array(qd.f64))
    assert programs.seen(kernel) == "1111"
    qd.init(arch=qd.cpu)
    assert programs.seen(kernel) == "0000"


def test_code_of_an_earlier_program_is_kept_too(programs):
    """A program without the cache, then the same with it: the file is there."""
    kernel, args = KEYED["ndarray"]
    programs.run(kernel, args, offline_cache=False)
    programs.run(kernel, args)
    qd.reset()
    assert len(list((programs.path / "kernel_compilation_manager").glob("*.qdc"))) == 1


def test_an_option_changed_amid_a_program(programs):
    kernel, args = KEYED["ndarray"]
    assert programs.run(kernel, args) == "1001"
    qd.cfg.fast_math = False
    kernel(array(qd.i32))
    qd.cfg.fast_math = True
    assert len(programs.entries()) == 2
    for option, pattern in ((False, "1110"), (True, "1001")):  # of i32 under the other value
        qd.init(arch=qd.cpu, offline_cache_file_path=str(programs.path), fast_math=option)
        kernel(array(qd.i32))
        assert programs.seen(kernel) == pattern


def test_what_fails_leaves_no_entry(programs):
    @qd.kernel(fastcache=True)
    def no_return() -> qd.i32:
        x = 1  # noqa: F841

    for _ in range(2):
        with pytest.raises(qd.QuadrantsSyntaxError, match="return"):
            programs.run(no_return, lambda: [])
    assert programs.entries() == []
