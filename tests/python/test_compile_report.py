"""What `compile_report` tells of each specialisation, and the table at the end."""

import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

import quadrants as qd
from quadrants._lib import core

SCALE = 3


def lines_of(text):
    """Kernel's name without its numbers -> what is told of it."""
    found = re.findall(r"^\[compile\] (\w+?)_c\d+_\d+: (.*(?:\n    .*)*)", text, re.MULTILINE)
    return dict(reversed(found))  # what is told first


def run(program, *, check=True, **env):
    env = {**os.environ, "QD_LOG_LEVEL": "error", **env}
    done = subprocess.run([sys.executable, program], env=env, capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stderr
    return done.stderr


def test_nothing_is_told_unless_it_is_asked_for(capfd):
    qd.init(arch=qd.cpu, offline_cache=False)

    @qd.kernel
    def quiet(x: qd.types.ndarray()):
        for i in x:
            x[i] += 1

    quiet(np.zeros(4, np.int32))
    qd.reset()
    assert capfd.readouterr().err == ""


def test_cold_shared_cached_and_optimised(capfd, tmp_path):
    added, taken = 1, 2

    @qd.func
    def twice(v):  # asks three facts again
        return v * (SCALE + added - taken)

    @qd.kernel
    def first(x: qd.types.ndarray()):
        for i in x:
            x[i] = twice(x[i]) + twice(x[i] + 1)

    @qd.kernel
    def again(x: qd.types.ndarray()):
        for i in x:
            x[i] = twice(x[i]) + twice(x[i] + 1)

    options = {"arch": qd.cpu, "offline_cache_file_path": str(tmp_path), "compile_report": 1}
    x = np.zeros(4, np.int32)
    qd.init(**options)
    first(x)
    again(x)
    core.finish_optimisations()
    qd.reset()
    text = capfd.readouterr().err
    told = lines_of(text)
    number = r"\d+\.\d\d"
    assert re.match(
        rf"cold {number} ms \(look-up {number}, front end {number}, passes {number}, code generation {number} of tier [01], "
        rf"load {number}(, loading the compiler {number})?, other {number}\); \d+ instructions -> \d+ in 1 tasks; 1 funcs: 1 lowered, 0 reused; 2 calls; syntax: 2 parsed, 0 loaded\n"
        r"    not from the cache: nothing of this kernel is there$",
        told["first"],
    ), text
    assert told["again"].startswith("shared ") and "; 1 funcs: 0 lowered, 1 reused" in told["again"]
    assert re.search(r"; code of first_c\d+_0\n", told["again"])
    assert "2 dearest of 2 specialisations" in text
    assert re.search(rf"sums: 1 cold {number} ms, 1 shared {number} ms", text)
    quick = "tier 0" in told["first"]
    assert quick == (": optimised " in text) == ("1 optimised meanwhile" in text)

    qd.init(**options)
    first(x)
    qd.reset()
    text = capfd.readouterr().err
    assert re.match(
        rf"from cache {number} ms \(look-up {number}, load {number}\); tier 1$",
        lines_of(text)["first"],
    )
    assert "sums: 1 from cache" in text


def test_a_table_of_ten(capfd):
    qd.init(arch=qd.cpu, offline_cache=False, compile_report=1)
    for n in range(12):

        @qd.kernel
        def k(x: qd.types.ndarray(), c: qd.template()):
            for i in x:
                x[i] += c

        k(np.zeros(4, np.int32), n)
    qd.reset()
    text = capfd.readouterr().err
    table = text[text.index("the 10 dearest of 12") :]
    rows = re.findall(r"^ +([\d.]+)(?: +[\d.]+){6}  k_c\d+_0 \((\w+)\)$", table, re.MULTILINE)
    assert len(rows) == 10 and rows == sorted(rows, key=lambda r: -float(r[0]))
    qd.init(arch=qd.cpu, offline_cache=False, compile_report=1)
    qd.reset()
    # What was being optimised when the first session ended may still be told of.
    assert "dearest" not in capfd.readouterr().err, "each session has a table of its own"


MODULE = """
import numpy as np
import quadrants as qd
qd.init(arch=qd.cpu)
SCALE = 3
DT = 0.5
class Box: pass
box = Box()
box.size = 4
table = [1, 2, 3]
@qd.func
def helper(v):
    return v * DT
@qd.kernel
def k(x: qd.types.ndarray()):
    for i in x:
        x[i] = helper(x[i] * SCALE + box.size) + len(table) + table[1]
k(np.zeros(4, np.float32))
"""
CHANGES = [
    ("SCALE = 3", "SCALE = 4", "global SCALE was 3, is 4"),
    ("DT = 0.5", "DT = 0.25", "global DT was 0.5, is 0.25"),
    ("DT = 0.5", "DT = 2", "global DT was 0.5, is 2"),
    ("box.size = 4", "box.size = 5", "global box.size was 4, is 5"),
    ("table = [1, 2, 3]", "table = [1, 7, 3]", "table"),
    ("v * DT", "v / DT", "the source of global helper changed"),
    ("* SCALE + box", "* SCALE - box", "its source changed"),
    ("np.float32", "np.float64", "options, the types of arguments or the build differ"),
    ("qd.cpu)", "qd.cpu, fast_math=False)", "options, the types of arguments or the build differ"),
]


def test_the_guard_that_missed(tmp_path):
    program = tmp_path / "program.py"
    env = {"QD_COMPILE_REPORT": "1", "QD_OFFLINE_CACHE_FILE_PATH": str(tmp_path / "cache")}
    program.write_text(MODULE)
    assert lines_of(run(program, **env))["k"].startswith("cold ")
    for old, new, expected in CHANGES:
        assert MODULE.count(old) == 1
        env["QD_OFFLINE_CACHE_FILE_PATH"] = str(tmp_path / new[:4].strip())
        program.write_text(MODULE)
        run(program, **env)
        assert lines_of(run(program, **env))["k"].startswith("from cache")
        program.write_text(MODULE.replace(old, new))
        told = lines_of(run(program, **env))["k"]
        assert re.search(rf"not from the cache: .*{re.escape(expected)}", told), told


def test_the_guard_that_missed_of_a_kernel_of_this_process(tmp_path, capfd):
    """What was stored since the first question is known too."""
    qd.init(arch=qd.cpu, offline_cache_file_path=str(tmp_path), compile_report=1, log_level="error")
    for scale in (3, 4):

        @qd.kernel
        def scaled(x: qd.types.ndarray()):
            for i in x:
                x[i] *= scale

        scaled(np.zeros(4, np.int32))
    qd.reset()
    told = [n for n in capfd.readouterr().err.splitlines() if "not from the cache" in n]
    assert len(told) == 2 and "nothing of this kernel is there" in told[0]
    assert "cell scale was 3, is 4" in told[1]


def test_why_a_kernel_is_not_kept(capfd, tmp_path):
    qd.init(arch=qd.cpu, offline_cache_file_path=str(tmp_path), compile_report=1)

    @qd.kernel
    def k(x: qd.types.ndarray()):
        qd.static_print("seen while it is compiled")
        for i in x:
            x[i] += 1

    k(np.zeros(4, np.int32))
    told = lines_of(capfd.readouterr().err)["k"]
    assert told.endswith("\n    not kept in the cache: static_print"), told


def test_what_failed_is_told_as_such(capfd):
    qd.init(arch=qd.cpu, offline_cache=False, compile_report=1)

    @qd.kernel
    def wrong(x: qd.types.ndarray()):
        for i in x:
            x[i] = nothing  # noqa: F821

    with pytest.raises(qd.QuadrantsCompilationError):
        wrong(np.zeros(4, np.int32))
    assert lines_of(capfd.readouterr().err)["wrong"].startswith("failed ")


def test_level_2_has_the_passes(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(MODULE)
    env = {"QD_OFFLINE_CACHE": "0"}
    passes = r"^(simplify|cse|dce) +[\d.]+ +\d+ -> +\d+$"
    text = run(program, QD_COMPILE_REPORT="2", **env)
    assert {"simplify", "cse", "dce"} == set(re.findall(passes, text, re.MULTILINE))
    assert re.search(r"^llvm tier", text, re.MULTILINE)
    assert not re.search(passes, run(program, QD_COMPILE_REPORT="1", **env), re.MULTILINE)


def test_lines_of_threads_stay_whole(capfd):
    qd.init(arch=qd.cpu, offline_cache=False, compile_report=1)

    def work(number):
        for c in range(4):

            @qd.kernel
            def k(x: qd.types.ndarray(), c: qd.template()):
                for i in x:
                    x[i] = x[i] * c + number

            k(np.zeros(4, np.int32), c)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    core.finish_optimisations()
    qd.reset()
    text = capfd.readouterr().err
    assert "of 16 specialisations" in text
    for line in text.splitlines():
        assert re.match(r"\[compile\] (k_c|the |sums)|    | ", line), line
        assert line.count("[compile]") <= 1


def test_a_child_tells_what_it_did(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        MODULE
        + """
import os
import sys
pid = os.fork()
if pid == 0:
    k(np.zeros(4, np.int32))
    qd.reset()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print("parent", file=sys.stderr, flush=True)
"""
    )
    text = run(program, QD_COMPILE_REPORT="1", QD_OFFLINE_CACHE="0")
    child, parent = text.split("parent\n")
    assert "1 dearest of 1 " in child and "1 dearest of 1 " in parent


READS_RUNTIME = """
import sys

import quadrants as qd
from quadrants.lang import impl

qd.init(arch=qd.cpu, cpu_max_num_threads=int(sys.argv[1]), default_fp=getattr(qd, sys.argv[2]))

@qd.kernel
def precision() -> qd.i32:
    return 64 if qd.static(qd.lang.impl.get_runtime().default_fp == qd.f64) else 32

@qd.func
def tolerance():
    return 1e-6 if qd.static(impl.get_runtime().default_fp == qd.f32) else 1e-13

@qd.kernel
def in_a_func() -> qd.f64:
    return tolerance()

@qd.kernel
def threads() -> qd.i32:
    return qd.static(impl.current_cfg().cpu_max_num_threads)

@qd.kernel
def threads_of_the_program() -> qd.i32:
    return qd.static(impl.get_runtime().prog.config().cpu_max_num_threads)

print(precision(), in_a_func(), threads(), threads_of_the_program())
"""


def test_what_reads_the_runtime_starts_warm(tmp_path):
    """And says what the runtime of its own process is."""
    program = tmp_path / "program.py"
    program.write_text(READS_RUNTIME)
    env = {
        **os.environ,
        "QD_LOG_LEVEL": "error",
        "QD_COMPILE_REPORT": "1",
        "QD_OFFLINE_CACHE_FILE_PATH": str(tmp_path / "cache"),
    }
    seen = set()
    for threads, real in [(1, "f32"), (1, "f32"), (2, "f32"), (2, "f64"), (1, "f32"), (2, "f64")]:
        done = subprocess.run(
            [sys.executable, program, str(threads), real], env=env, capture_output=True, text=True
        )
        double = real == "f64"
        told = done.stdout.split()[-4:]
        assert [float(v) for v in told] == [
            64 if double else 32,
            pytest.approx(1e-13 if double else 1e-6, rel=1e-6),
            threads,
            threads,
        ]
        if (threads, real) in seen:
            stories = lines_of(done.stderr)
            assert len(stories) == 4
            assert all(s.startswith("from cache") for s in stories.values()), stories
        seen.add((threads, real))
