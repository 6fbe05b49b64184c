"""Options, row by row: what each changes, and what it refuses."""

import os
import pathlib
import platform
import re
import runpy
import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd
from quadrants._lib import core
from quadrants.lang._config import checked, table

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.oracle_differs("its dumps look otherwise")


def ir_of(run, stage, **options):
    """What the compiler makes of the first kernel that `run()` calls, as text."""
    from quadrants.lang._inspect import inspection

    seen = []
    show = inspection.show
    inspection.show = lambda definition, name, module: seen.append(module)
    try:
        qd.init(arch=qd.cpu, offline_cache=False, print_preprocessed_ir=True, **options)
        run()
    finally:
        inspection.show = show
    return core._compiler_text(seen[0], stage)


def a_sum():
    x = qd.ndarray(qd.i32, 64)
    total = qd.ndarray(qd.i32, ())

    @qd.kernel
    def k(x: qd.types.ndarray(), total: qd.types.ndarray()):
        for i in x:
            total[None] += x[i]

    x.fill(2)
    k(x, total)
    assert total[None] == 128


def twice_the_same():
    x = qd.ndarray(qd.f32, 8)

    @qd.kernel
    def k(x: qd.types.ndarray(), a: qd.f32, b: qd.f32):
        for i in x:
            x[i] = (a * b + 1.0) * (a * b + 1.0)

    k(x, 2.0, 3.0)
    assert x[3] == 49


def load_after_store():
    x = qd.ndarray(qd.i32, 8)

    @qd.kernel
    def k(x: qd.types.ndarray()):
        for i in x:
            x[i] = i * 3
            x[i] = x[i] + 1

    k(x)
    assert x[5] == 16


def constants():
    x = qd.ndarray(qd.i32, 8)

    @qd.kernel
    def k(x: qd.types.ndarray(), n: qd.i32):
        a = 6
        for i in x:
            x[i] = n + a * 7

    k(x, 1)
    assert x[0] == 43


def a_branch():
    x = qd.ndarray(qd.f32, 8)

    @qd.kernel
    def k(x: qd.types.ndarray(), s: qd.f32):
        for i in x:
            v = s * i
            r = v
            if v > 3.0:
                r = ((((v + 1.0) * v - 2.0) * v + 3.0) * v - 4.0) * v
            x[i] = r

    k(x, 2.0)
    assert x[1] == 2 and x[2] == 1184


def invariant_in_a_branch():
    x = qd.ndarray(qd.i32, 8)

    @qd.kernel
    def k(x: qd.types.ndarray(), n: qd.i32):
        for i in x:
            for j in range(n):
                if x[i] < 40:
                    x[i] += n * n * n + i

    k(x, 2)
    assert x[0] == 16 and x[3] == 22


def invariant_load():
    x, y = qd.field(qd.i32, 8), qd.field(qd.i32, 8)

    @qd.kernel
    def k(n: qd.i32):
        for i in range(4):
            for j in range(n):
                x[j] += y[i] * j

    y.fill(3)
    k(3)
    assert [x[j] for j in range(3)] == [0, 12, 24]


def matrices():
    m = qd.Matrix.field(2, 2, qd.f32, shape=8)
    out = qd.field(qd.f32, 8)

    @qd.kernel
    def k(s: qd.f32):
        for i in m:
            a = m[i] * s
            v = qd.Vector([1.0, 2.0])
            for j in range(2):
                a[j, 0] += s
            m[i] = a @ a
            out[i] = (m[i] @ v).sum()

    m.fill(1)
    k(2.0)
    assert m[3].to_list() == [[24, 12], [24, 12]] and out[3] == 96


# option, another value, a kernel, the text in which the difference shows, and what counts there
EFFECTS = [
    ("advanced_optimization", False, twice_the_same, "plan", r" = (?:mul|fma) .*: f32"),
    ("opt_level", 0, twice_the_same, "plan", r" = (?:mul|fma) .*: f32"),
    ("cfg_optimization", False, load_after_store, "plan", r" = load "),
    ("opt_level", 0, load_after_store, "plan", r" = load "),
    ("constant_folding", False, constants, "plan", r" = mul "),
    ("flatten_if", True, a_branch, "plan", r"\bif "),
    ("move_loop_invariant_outside_if", True, invariant_in_a_branch, "plan", None),
    ("make_thread_local", False, a_sum, "plan", r"partial"),
    ("cache_loop_invariant_global_vars", False, invariant_load, "llvm", None),
    ("detect_read_only", False, invariant_load, "lowered_llvm", r"load i32.*!invariant.load"),
    ("disable_pass", "cse", twice_the_same, "plan", r" = (?:mul|fma) .*: f32"),
    ("disable_pass", "reduce,licm", a_sum, "plan", r"partial"),
    ("fast_math", False, twice_the_same, "plan", r"fma"),
    ("debug", True, twice_the_same, "plan", r"assert"),
    ("check_out_of_bound", True, twice_the_same, "plan", r"assert"),
]


@pytest.mark.parametrize("option, value, run, text, pattern", EFFECTS)
def test_what_an_option_changes(option, value, run, text, pattern):
    assert table()[option].default != value
    usual, other = ir_of(run, text), ir_of(run, text, **{option: value})
    if pattern is None:
        assert usual != other
    else:
        assert len(re.findall(pattern, usual)) != len(re.findall(pattern, other))


def test_every_option_of_code_is_in_that_table():
    shown = {row[0] for row in EFFECTS}
    # Below, and test_cuda_driver:
    of_machines = {"default_cpu_block_dim", "default_gpu_block_dim", "saturating_grid_dim"}
    elsewhere = {"make_cpu_multithreading_loop"} | of_machines
    assert {n for n, row in table().items() if row.room == "module"} == shown | elsewhere


INERT = [name for name, row in table().items() if row.room == "inert"]


@pytest.mark.parametrize("name", INERT)
def test_what_has_no_effect_changes_no_code(name):
    usual = table()[name].default
    other = not usual if isinstance(usual, bool) else usual + type(usual)(1)
    texts = [ir_of(matrices, "plan"), ir_of(matrices, "plan", **{name: other})]
    # Fields and their trees are numbered over the process.
    assert len({re.sub(r"@tmp\d+|group \d+", "", t) for t in texts}) == 1


def test_who_has_no_effect_says_so():
    """What nobody reads is in a room of which the page says that."""
    names = {
        word
        for folder, kinds in (("src", ("*.cpp", "*.h")), ("python/quadrants", ("*.py",)))
        for kind in kinds
        for path in (ROOT / folder).rglob(kind)
        for word in re.findall(r"\w+", path.read_text())
    }
    unread = {name for name, row in table().items() if name not in names}
    assert {table()[name].room for name in unread} == {"inert", "quant", "mesh"}


def test_no_threads_are_as_many_as_there_are():
    qd.init(arch=qd.cpu, cpu_max_num_threads=0)
    assert qd.cfg.cpu_max_num_threads == table()["cpu_max_num_threads"].default > 0
    twice_the_same()


def threads_that_ran(length=100_000, **options):
    """How many chunks of a long loop were begun before one that began earlier had ended."""
    qd.init(arch=qd.cpu, offline_cache=False, cpu_max_num_threads=4, **options)
    log = qd.ndarray(qd.i32, length)
    at = qd.ndarray(qd.i32, ())

    @qd.kernel
    def k(log: qd.types.ndarray(), at: qd.types.ndarray()):
        for i in range(length):
            log[qd.atomic_add(at[None], 1)] = i

    k(log, at)
    order = log.to_numpy()
    assert np.array_equal(np.sort(order), np.arange(length))
    return np.count_nonzero(np.diff(order) != 1)


def test_loops_on_one_thread():
    assert threads_that_ran(make_cpu_multithreading_loop=False) == 0
    # Long enough for a thread to wake up on a busy machine.
    assert any(threads_that_ran(100_000 << min(k, 5)) for k in range(50))


def test_blocks_of_the_cpu_reach_the_tasks():
    """What the runtime makes of them: tests/cpp/launch_test.cpp."""
    assert ir_of(a_sum, "plan") == ir_of(a_sum, "plan", default_cpu_block_dim=1024)
    for options in {"default_cpu_block_dim": 4096}, {"default_cpu_block_dim": 0}:
        assert threads_that_ran(**options) >= 0


def test_a_change_of_cfg_makes_other_code(tmp_path):
    """Keys are remembered by process: a change in the middle must reach them."""

    @qd.kernel
    def k(x: qd.types.ndarray()):
        for i in x:
            x[i] = x[i] * 2.0 + 1.0

    def lowered_by(fast):
        qd.init(arch=qd.cpu, offline_cache_file_path=str(tmp_path))
        k(qd.ndarray(qd.f32, 4))  # under the options of init
        qd.cfg.fast_math = fast
        before = core.counters()["lowered"]
        k(qd.ndarray(qd.f64, 4))
        return core.counters()["lowered"] - before

    assert [lowered_by(f) for f in (True, False, True, False)] == [1, 1, 0, 0]


RANGES = [
    ("cpu_max_num_threads", (-1, 65536), (0, 1, 65535)),
    ("default_cpu_block_dim", (-3,), (0, 1, 4096)),
    ("default_gpu_block_dim", (-1, 0), (1, 1024)),
    ("saturating_grid_dim", (-1,), (0, 1000)),
    ("max_block_dim", (-1,), (0, 1024)),
    ("device_memory_GB", (-1.0, float("nan"), float("inf")), (0, 0.5, 80)),
    ("device_memory_fraction", (-0.1, 2.0, float("nan")), (0, 0.5, 1)),
    ("ad_stack_size", (-1,), (0, 1000)),
    ("offline_cache_cleaning_factor", (-0.1, 1.5, float("nan")), (0, 1, 0.5)),
    ("offline_cache_max_size_of_files", (0, -5), (1, 2**31 - 1)),
    ("cuda_stack_limit", (), (0, 2**64 - 1)),
]


@pytest.mark.parametrize("name, bad, good", RANGES)
def test_ranges(name, bad, good):
    row = table()[name]
    for value in bad:
        with pytest.raises(ValueError, match=f"{name}.*takes"):
            checked(row, value)
        with pytest.raises(ValueError):
            qd.init(arch=qd.cpu, **{name: value})
    for value in good:
        assert checked(row, value) == value


def test_types():
    for row in table().values():
        wrong = {bool: 1, int: "1", float: "1", str: 5}.get(row.type)
        if wrong is None:
            continue
        with pytest.raises(TypeError, match=row.name):
            checked(row, wrong)
        assert checked(row, row.default) == row.default
        assert row.documentation and row.documentation[-1] != "."
    with pytest.raises(TypeError):
        checked(table()["opt_level"], 2**31)
    with pytest.raises(TypeError):
        checked(table()["cuda_stack_limit"], 2**64)


def test_unknown_values_of_texts(capfd):
    with pytest.raises(ValueError, match="names no pass nothing; passes: .*cse"):
        qd.init(arch=qd.cpu, disable_pass="cse,nothing")
    qd.init(arch=qd.cpu, offline_cache_cleaning_policy="nonsense")
    assert "'nonsense' counts as never" in capfd.readouterr().err


# variable, value, what the message says beside the variable
MALFORMED = [
    *((f"QD_{name}", "abc", "invalid literal") for name in (
        "DEBUG_ADSTACK DUMP_AST DUMP_CFG DUMP_IR DUMP_SIMPLIFY ENABLE_AMDGPU ENABLE_CUDA ENABLE_METAL "
        "ENABLE_PYBUF ENABLE_TORCH ENABLE_VULKAN GRAPH KERNEL_COVERAGE LOAD_IR "
        "PERFDISPATCH_PRINT_DEBUG SHOW_COMPILING COVERAGE_MAX_PROBES DEBUG OPT_LEVEL UNROLLING_LIMIT"
    ).split()),
    ("QD_OFFLINE_CACHE_CLEANING_FACTOR", "half", "could not convert"),
    ("QD_DEFAULT_FP", "16", "should be 32 or 64"),
    ("QD_DEFAULT_IP", "i32", "should be 32 or 64"),
    ("QD_CPU_TIER", "5", "takes 0, 1 or interpret, got '5'"),
    ("QD_CPU_TARGET", "abc", "unknown CPU 'abc'; known are .*x86-64"),
    ("QD_CPU_TARGET", "i386", "unknown CPU 'i386'"),
]  # fmt: skip


@pytest.mark.parametrize("variable, value, text", MALFORMED)
def test_malformed_variables(variable, value, text, monkeypatch):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"{variable}.*{text}"):
        qd.init(arch=qd.cpu, offline_cache=False)
    with pytest.raises(qd.QuadrantsRuntimeError):
        qd.sync()
    monkeypatch.setenv(variable, "")
    qd.init(arch=qd.cpu, offline_cache=False)
    twice_the_same()


@pytest.mark.skipif(not os.path.exists("/proc/cpuinfo"), reason="asks Linux")
def test_code_for_another_machine(monkeypatch):
    """It would end the process at its first such instruction."""
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    cpu = next(
        c
        for c, flag in (("bdver4", "fma4"), ("sapphirerapids", "avx512_fp16"))
        if flag not in flags
    )
    monkeypatch.setenv("QD_CPU_TARGET", cpu)
    with pytest.raises(
        ValueError, match=f"QD_CPU_TARGET: this machine cannot run code for '{cpu}'"
    ):
        qd.init(arch=qd.cpu)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")
@pytest.mark.parametrize("level", ["x86-64", "x86-64-v2", "x86-64-v3"])
def test_usual_levels_need_no_compiler(level):
    code = "import quadrants as qd; qd.init(arch=qd.cpu); print(qd._lib.core.counters()['compiler_loaded'])"
    env = dict(os.environ, QD_CPU_TARGET=level, ENABLE_QUADRANTS_HEADER_PRINT="0")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout.splitlines()[-1:] == ["False"] or "cannot run code" in done.stderr


def test_an_unknown_arch_of_the_environment(monkeypatch):
    monkeypatch.setenv("QD_ARCH", "abacus")
    with pytest.raises((ValueError, RuntimeError), match="abacus"):
        qd.init()
    qd.init(arch=qd.cpu)  # the keyword wins


def test_the_environment_reaches_every_option():
    """In a process of its own each option takes another value from its variable."""
    code = """
import os
import pathlib
import quadrants as qd
from quadrants.lang._config import table
given, wanted = {}, {}
for name, row in table().items():
    if name.startswith("default_") and name[-3:] in ("_fp", "_ip", "_up") or name in ("offline_cache_file_path",):
        continue
    value = {bool: lambda d: not d, int: lambda d: d + 1, float: lambda d: d + 0.5, str: lambda d: ""}[row.type](row.default)
    if row.type is str or name == "gdb_trigger":
        continue
    wanted[name] = value
    os.environ["QD_" + name.upper()] = str(int(value) if row.type is bool else value)
aside = qd.init(arch=qd.cpu, _test_mode=True)
for name in [n for n in wanted if table()[n].aside]:
    assert getattr(aside, name) == wanted.pop(name), name
qd.init(arch=qd.cpu)
wanted.pop("max_block_dim")
for name, value in wanted.items():
    assert getattr(qd.cfg, name) == value, (name, getattr(qd.cfg, name), value)
print("all", len(wanted))
"""
    env = {**os.environ, "QD_KERNEL_COVERAGE": "0"}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert "all " in run.stdout, run.stderr


def test_the_pages_say_what_the_tables_say():
    made = runpy.run_path(str(ROOT / "tools" / "option_page.py"))
    assert (ROOT / "docs" / "options.md").read_text() == made["page"]()
    page = (ROOT / "docs" / "passes.md").read_text()
    assert page == made["passes_page"](page)
