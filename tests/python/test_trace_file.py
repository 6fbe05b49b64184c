"""The trace file: what is compiled and launched, as Perfetto reads it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import quadrants as qd
from quadrants._lib import core


def make(c):
    @qd.kernel
    def k(x: qd.types.ndarray()):
        for i in x:
            x[i] = x[i] * 3 + c
        for i in x:
            x[i] -= c

    return k


def events_of(path):
    return json.loads(path.read_text())


def spans(events, left=None):
    """(kind, kernel, thread) of what began and ended, nested as they must be; in `left` kinds that did not."""
    open_, found = {}, []
    for e in events:
        if e["ph"] == "B":
            open_.setdefault(e["tid"], []).append(e)
        elif e["ph"] == "E":
            began = open_[e["tid"]].pop()
            assert e["ts"] >= began["ts"]
            found.append((began["name"], began["args"]["kernel"], e["tid"]))
    unended = [e["name"] for stack in open_.values() for e in stack]
    assert unended == (left or [])
    return found


def run(program, **env):
    env = {**os.environ, "QD_LOG_LEVEL": "warn", **env}
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)


def test_what_is_compiled_loaded_and_launched(tmp_path):
    file = tmp_path / "trace.json"
    options = {"arch": qd.cpu, "offline_cache_file_path": str(tmp_path), "trace_file": str(file)}
    k, x = make(5), np.zeros(8, np.int32)
    qd.init(**options)
    for _ in range(7):
        k(x)
    core.finish_optimisations()
    qd.reset()
    events = events_of(file)
    assert {e["pid"] for e in events} == {os.getpid()}
    kinds = [kind for kind, kernel, _ in spans(events) if kernel == "k_c0_0"]
    for kind in ("first call", "look-up", "front end", "passes", "code generation", "load"):
        assert kind in kinds, kinds
    stages = {e["name"] for e in events if e.get("cat") == "stage"}
    assert "code generation" in stages, stages
    runs = [e for e in events if e["ph"] == "X" and e["cat"] == "launch"]
    assert len(runs) == 7 and {e["name"] for e in runs} == {"k_c0_0"}
    assert all(a["ts"] + a["dur"] <= b["ts"] + 0.001 for a, b in zip(runs, runs[1:]))
    assert not [e for e in events if e.get("cat") == "task"]
    names = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    assert names[os.getpid()] == "main"
    assert [e["args"]["name"] for e in events if e.get("name") == "process_name"] == ["quadrants"]
    optimised = [tid for kind, _, tid in spans(events) if kind == "optimised code generation"]
    assert {names[tid] for tid in optimised} <= {"optimiser"}

    qd.init(**options)  # goes on behind the first session's
    k(x)
    qd.reset()
    both = events_of(file)
    assert both[: len(events)] == events
    kinds = [kind for kind, _, _ in spans(both[len(events) :])]
    assert "load" in kinds and "front end" not in kinds


def test_tasks_with_the_profiler(tmp_path):
    file = tmp_path / "trace.json"
    qd.init(
        arch=qd.cpu, offline_cache=False, kernel_profiler=True, timeline=True, trace_file=str(file)
    )
    k, x = make(6), np.zeros(8, np.int32)
    k(x)
    k(x)
    qd.lang.misc.timeline_save(str(tmp_path / "timeline.json"))
    qd.reset()
    events = events_of(file)
    tasks = [e for e in events if e.get("cat") == "task"]
    launches = [e for e in events if e.get("cat") == "launch"]
    assert [e["name"] for e in tasks] == [f"k_c0_0_kernel_{n}_range_for" for n in (0, 1)] * 2
    for n, task in enumerate(tasks):
        launch = launches[n // 2]
        assert (
            launch["ts"] <= task["ts"] and task["ts"] + task["dur"] <= launch["ts"] + launch["dur"]
        )
    saved = events_of(tmp_path / "timeline.json")
    assert [(e["name"], e["ts"], e["dur"]) for e in saved] == [
        (e["name"], e["ts"], e["dur"]) for e in tasks
    ]


def test_nothing_without_the_option(tmp_path):
    qd.init(arch=qd.cpu, offline_cache=False)
    make(7)(np.zeros(8, np.int32))
    qd.reset()
    assert not list(tmp_path.iterdir())


def test_threads(tmp_path):
    file = tmp_path / "trace.json"
    qd.init(arch=qd.cpu, offline_cache=False, trace_file=str(file))

    def work(c):
        k = make(c)
        for _ in range(300):
            k(np.zeros(8, np.int32))

    threads = [threading.Thread(target=work, args=(c,)) for c in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    qd.reset()
    events = events_of(file)
    spans(events)
    launches = [e for e in events if e.get("cat") == "launch"]
    assert len(launches) == 1200 and len({e["tid"] for e in launches}) == 4
    named = [e["tid"] for e in events if e.get("name") == "thread_name"]
    assert len(named) == len(set(named)) and {e["tid"] for e in launches} <= set(named)


PROGRAM = """
import os, signal, sys, time
import numpy as np
import quadrants as qd
qd.init(arch=qd.cpu, offline_cache=False)
@qd.kernel
def k(x: qd.types.ndarray()):
    for i in x:
        x[i] += 1
x = np.zeros(8, np.int32)
k(x)
"""


def program_file(tmp_path, text):
    (tmp_path / "program.py").write_text(PROGRAM + text)
    return f"import runpy; runpy.run_path({str(tmp_path / 'program.py')!r})"


def test_a_child_has_a_file_of_its_own(tmp_path):
    file = tmp_path / "trace.json"
    text = """
pid = os.fork()
if pid == 0:
    for _ in range(5): k(x)
    k(x.astype(np.float32))
    qd.reset()
    os._exit(0)
for _ in range(3): k(x)
assert os.waitpid(pid, 0)[1] == 0
print(pid)
"""
    done = run(program_file(tmp_path, text), QD_TRACE_FILE=str(file))
    assert done.returncode == 0 and not done.stderr, done.stderr
    child = int(done.stdout.split()[-1])
    counts = {}
    for f in (file, tmp_path / f"trace.{child}.json"):
        events = events_of(f)
        assert len({e["pid"] for e in events}) == 1
        counts[f.name] = sum(e.get("cat") == "launch" for e in events)
    assert counts == {"trace.json": 4, f"trace.{child}.json": 6}


def test_a_second_process_leaves_the_first_ones_file(tmp_path):
    file = tmp_path / "trace.json"
    text = """
import subprocess
if "SECOND" not in os.environ:
    subprocess.run([sys.executable, sys.argv[0]], env=os.environ | {"SECOND": "1"}, check=True)
"""
    program_file(tmp_path, text)
    env = {**os.environ, "QD_TRACE_FILE": str(file)}
    subprocess.run([sys.executable, str(tmp_path / "program.py")], env=env, check=True)
    files = sorted(f.name for f in tmp_path.glob("*.json"))
    assert len(files) == 2 and files[1] == "trace.json"
    pids = [{e["pid"] for e in events_of(tmp_path / f)} for f in files]
    assert pids[0] == {int(files[0].split(".")[1])} != pids[1]


@pytest.mark.parametrize(
    "end",
    ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)", "import ctypes; ctypes.string_at(0)"],
)
def test_what_is_left_of_a_process_that_dies(tmp_path, end):
    file = tmp_path / "trace.json"
    text = f"""
def slow():
    {end}
@qd.kernel
def last(x: qd.types.ndarray()):
    for i in x:
        x[i] += qd.static(slow() or 1)
last(x)
"""
    run(program_file(tmp_path, text), QD_TRACE_FILE=str(file), QD_CPU_TIER="0")
    events = json.loads(file.read_text() + "]")
    spans(events, left=["first call", "front end"])
    assert sum(e.get("cat") == "launch" for e in events) == 1


def test_launches_are_written_in_time(tmp_path):
    """They wait a second at most for others, so that what is killed later leaves them."""
    file = tmp_path / "trace.json"
    qd.init(arch=qd.cpu, offline_cache=False, trace_file=str(file))
    k, x = make(8), np.zeros(8, np.int32)
    for _ in range(10):
        k(x)
    time.sleep(1.1)
    k(x)
    events = json.loads(file.read_text() + "]")
    # The last may wait for another, on a machine that is slow just then.
    assert sum(e.get("cat") == "launch" for e in events) in (10, 11)
    qd.reset()


@pytest.mark.parametrize("path", ["no/such/folder/trace.json", ".", "/dev/full"])
def test_a_file_that_cannot_be_written(tmp_path, capfd, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    qd.init(arch=qd.cpu, offline_cache=False, trace_file=path)
    k, x = make(9), np.zeros(8, np.int32)
    k(x)
    k(x)
    assert x[0] == 0
    qd.reset()
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and f"cannot write the trace file {path}: " in err, err


def test_a_disk_that_fills_up(tmp_path):
    text = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for _ in range(5000): k(x)
print(x[0])
qd.reset()
"""
    done = run(program_file(tmp_path, text), QD_TRACE_FILE=str(tmp_path / "t.json"))
    assert done.returncode == 0 and done.stdout.split()[-1] == "5001", done.stderr
    assert done.stderr.count("\n") == 1 and "t.json is not whole: File too large" in done.stderr


def test_names_are_escaped(tmp_path):
    file = tmp_path / "trace.json"
    qd.init(arch=qd.cpu, offline_cache=False, kernel_profiler=True, trace_file=str(file))

    @qd.kernel
    def größe(x: qd.types.ndarray()):
        qd.loop_config(name='a "b" \\ c')
        for i in x:
            x[i] += 1

    größe(np.zeros(8, np.int32))
    qd.reset()
    names = {e.get("name", "") for e in events_of(file)}
    assert any(n.startswith("größe") for n in names) and any('"b" \\ c' in n for n in names), names


def test_signals_of_the_program_find_a_whole_file(tmp_path):
    """A handler that ends the program in the middle of launches still leaves an end."""
    file = tmp_path / "trace.json"
    text = """
signal.signal(signal.SIGALRM, lambda *_: sys.exit(0))
signal.setitimer(signal.ITIMER_REAL, 0.3)
while True: k(x)
"""
    run(program_file(tmp_path, text), QD_TRACE_FILE=str(file))
    assert sum(e.get("cat") == "launch" for e in events_of(file)) > 10
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
