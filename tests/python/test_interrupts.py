"""Signals that come while a kernel is traced, compiled or run: what handlers raise comes out soon."""

import copy
import functools
import os
import subprocess
import sys
import textwrap
import threading

import pytest

import quadrants as qd

pytestmark = pytest.mark.oracle_differs("faults are put into our compiler")

_COMMON = """
import ctypes, os, pathlib, signal, sys, threading, time
import quadrants as qd

qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.WARN, random_seed=1)
core = qd._lib.core
library = pathlib.Path(qd.__file__).parent / "_lib" / "libqd_compiler.so"
x = qd.field(qd.i32, 100)

def fault(text):
    ctypes.CDLL(str(library)).qd_compiler_fault(text.encode())

@qd.kernel
def small() -> qd.i32:
    x[0] += 1
    return x[0]

def make(n):
    @qd.kernel
    def large():
        for i in x:
            for k in qd.static(range(n)):
                if x[i] > 500:
                    x[i] = x[i] * 7 % 501
                else:
                    x[i] += k % 19
    return large

class Stop(BaseException):
    pass

def handler(signum, frame):
    raise Stop

def interrupted(call):
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        call()
    except Stop:
        return True
    return False

def threads():
    return set(os.listdir("/proc/self/task"))

def all_threads():  # those of the background begin when there is something to optimise
    qd._lib.core.finish_optimisations()
    return threads()

def wait_for(true, seconds=50):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, true
        time.sleep(0.01)

def works():
    x.fill(0)
    assert small() == 1
    make(150)()
    x.fill(0)
    a = make(2000)
    a()
    assert x[3] == want

def by_hand(n):
    v = 0
    for k in range(n):
        v = v * 7 % 501 if v > 500 else v + k % 19
    return v

want = by_hand(2000)
"""


def run(tmp_path, body: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    env = dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", **environment)
    env.pop("QD_CPU_TIER", None)
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _COMMON + textwrap.dedent(body), tmp_path / "cache"],
        capture_output=True, text=True, env=env, timeout=100,
    )  # fmt: skip


def assert_ended(done: "subprocess.CompletedProcess[str]") -> None:
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith("end\n"), done.stderr


@pytest.mark.parametrize("stage", ["cse", "offload", "lowering", "code generation"])
def test_a_compilation_that_does_not_end_is_left(tmp_path, stage):
    done = run(
        tmp_path,
        f"""
        works()  # all other threads are there
        before = all_threads()
        large = make(2100)
        fault("{stage}:wait")
        assert interrupted(large)
        left = threads() - before
        assert len(left) == 1
        fault("")
        wait_for(lambda: not left & threads())
        works()
        large()
        child = os.fork()
        if child == 0:
            signal.alarm(40)
            works()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        qd.reset()
        qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1])
        x = qd.field(qd.i32, 100)
        works()
        print("end")
        """,
    )
    assert_ended(done)


def test_what_was_left_ends_at_its_next_stage(tmp_path):
    done = run(
        tmp_path,
        """
        small()
        before = all_threads()
        fault("lowering:wait")
        assert interrupted(make(2000))
        left = threads() - before
        assert len(left) == 1
        fault("code generation:wait")  # which it never comes to
        wait_for(lambda: not left & threads())
        print("end")
        """,
    )
    assert_ended(done)


def test_a_handler_that_returns_ends_nothing(tmp_path):
    done = run(
        tmp_path,
        """
        seen = []
        def handler(*_):
            fault("")
            child = os.fork()  # in the middle of a compilation
            if child:
                seen.append(os.waitpid(child, 0)[1])
        small()
        fault("lowering:wait")
        x.fill(0)
        assert not interrupted(make(2000))
        assert x[3] == want
        if not seen:
            os._exit(0)  # the child
        assert seen == [0]
        print("end")
        """,
    )
    assert_ended(done)


@pytest.mark.parametrize("what", ["interrupted", "optimised"])
def test_the_process_ends_while_something_compiles_for_ever(tmp_path, what):
    done = run(
        tmp_path,
        f"""
        small()
        if "{what}" == "interrupted":
            fault("code generation:wait")
            assert interrupted(make(2000))
        else:
            large = make(300)
            large()
            fault("optimisation:wait")
            threading.Thread(target=core.finish_optimisations, daemon=True).start()
            time.sleep(0.2)
        print("end")
        """,
    )
    assert_ended(done)
    assert done.stderr == ""


def test_the_next_statement_is_not_traced(tmp_path):
    """The helpers are C functions, behind which the interpreter looks at no signal."""
    done = run(
        tmp_path,
        """
        interrupt = ctypes.CDLL(None)["raise"]
        number = int(signal.SIGALRM)
        seen = []
        @qd.kernel
        def k():
            qd.static(interrupt(number))
            qd.static(seen.append(1))
        signal.signal(signal.SIGALRM, handler)
        for _ in range(2):
            try:
                k()
                raise SystemExit("not raised")
            except Stop:
                assert seen == []
        @qd.kernel
        def in_list() -> qd.i32:
            a = [qd.static(interrupt(number)) + qd.static(len(seen)) for n in range(3)]
            qd.static(seen.append(1))
            return a[0]
        try:
            in_list()
            raise SystemExit("not raised")
        except Stop:
            assert seen == []
        works()
        print("end")
        """,
    )
    assert_ended(done)


@pytest.mark.parametrize("what", ["TimeoutError", "AttributeError", "KeyError", "TypeError", "Own"])
def test_a_handlers_exception_is_no_answer(tmp_path, what):
    """Whatever its type: where Python is asked and a failure is an answer, it comes out as it is."""
    # A later process asks Python's own hasattr again, to which any AttributeError is an answer.
    cached = what != "AttributeError"
    done = run(
        tmp_path,
        f"""
        qd.init(arch=qd.cpu, log_level=qd.ERROR, offline_cache={cached})

        class Own(Exception):
            pass

        class Probed:
            size = 3
            def __init__(self, at):
                self.at = at
            def __getattr__(self, name):
                self.__dict__["asked"] = self.__dict__.get("asked", 0) + 1
                if self.asked == self.at:
                    signal.raise_signal(signal.SIGALRM)
                raise AttributeError(name)

        def handler(signum, frame):
            raise {what}("of the handler")

        def handle_all(*args):
            raise {what}("of the handler")

        class Handles:
            def __call__(self, signum, frame):
                raise {what}("of the handler")

        def kernel():
            @qd.kernel
            def k(c: qd.template()) -> qd.i32:
                return c.size + qd.static(getattr(c, "missing", 4))
            return k

        most = 0
        for h in (handler, handle_all, Handles(), lambda s, f: handler(s, f)):
            signal.signal(signal.SIGALRM, h)
            at = 1
            while True:
                probed, k = Probed(at), kernel()
                try:
                    k(probed)
                    assert probed.asked < at, "swallowed"
                    break
                except {what} as e:
                    assert type(e) is {what} and e.args == ("of the handler",), e
                assert k(probed) == 7
                at += 1
            most = max(most, at)
        print("end", most)
        """,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    words = done.stdout.split()
    assert words[-2] == "end", done.stderr
    assert int(words[-1]) > 1


def test_a_signal_that_is_due_changes_no_answer(tmp_path):
    """CPython runs handlers where the str of a str is asked for; a finaliser then swallows what one raised."""
    done = run(
        tmp_path,
        """
        raise_signal = ctypes.CDLL(None)["raise"]  # called by native code: no handler runs soon

        class Dies:
            def __del__(self):
                pass

        @qd.kernel
        def k() -> qd.i32:
            held = qd.static(Dies())
            return qd.static(raise_signal(int(signal.SIGALRM)))

        class Own(Exception):
            pass

        def handler(signum, frame):
            raise Own

        signal.signal(signal.SIGALRM, handler)
        try:
            k()
        except Own:
            print("end")
        """,
    )
    assert_ended(done)


def test_no_python_runs_to_name_a_dtype(monkeypatch):
    """What a debugger or a tracer raised there would be taken for an answer."""
    qd.init(arch=qd.cpu, offline_cache=False)
    asked = []
    monkeypatch.setattr(type(qd.i64), "__str__", lambda self: asked.append(1) or self.name)

    @qd.kernel
    def k(a: qd.i32) -> qd.i64:
        return qd.i64(a) + qd.cast(a, qd.f64)

    assert k(3) == 6
    assert not asked


@pytest.mark.oracle_differs("the established package is not interrupted")
@pytest.mark.parametrize("tier", ["0", "interpret"])
def test_a_launch_that_is_over_soon_runs_whole(tmp_path, tier):
    """What catches a handler's exception goes on with no half step; a second one ends the launch."""
    done = run(
        tmp_path,
        f"""
        os.environ["QD_CPU_TIER"] = "{tier}"
        qd.init(arch=qd.cpu)
        x = qd.field(qd.f32, 50)
        turns, counted = qd.ndarray(qd.i32, ()), qd.field(qd.i32, ())
        @qd.kernel(graph=True)
        def step(turns: qd.types.ndarray(qd.i32, ndim=0), last: qd.i32):
            while qd.graph.do_while(turns):
                for i in range(1):
                    for k in range(last):
                        x[k % 50] += 1.0
                counted[None] += 1
                turns[()] -= 1
            if counted[None] == 20:
                print("whole")
        def ends(n, last, seconds, every=0):
            turns.fill(n)
            counted.fill(0)
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, seconds, every)
            begun = time.monotonic()
            try:
                step(turns, last)
                return None, None
            except Stop as e:
                signal.setitimer(signal.ITIMER_REAL, 0)
                return e, time.monotonic() - begun
        turns.fill(1)
        step(turns, 1)
        last = 1000
        def least():  # of three turns, since a machine under load stalls one now and then
            times = []
            for _ in range(3):
                turns.fill(1)
                begun = time.monotonic()
                step(turns, last)
                times.append(time.monotonic() - begun)
            return min(times)
        while least() < 0.003:
            last *= 2
        e, _ = ends(20, last, 0.01)
        assert e and counted[None] == 20, counted[None]
        e, seconds = ends(10**9, last, 0.01)
        assert e and e.__context__ is None and seconds >= 1
        e, seconds = ends(10**9, last, 0.01, 0.1)
        assert isinstance(e.__context__, Stop)
        print("end")
        """,
    )
    assert_ended(done)
    assert "whole" in done.stdout


def test_a_handler_finds_whole_steps(tmp_path):
    """One that saves a checkpoint, say; the launch it meets has some milliseconds left."""
    done = run(
        tmp_path,
        """
        qd.init(arch=qd.cpu)
        x, y = qd.field(qd.i32, 4), qd.field(qd.i32, 4)
        @qd.kernel
        def step(n: qd.i32):
            for i in x:
                for k in range(n):
                    x[i] = (x[i] * 7 + k) % 501
            for i in y:
                for k in range(n):
                    y[i] = (y[i] * 7 + k) % 501
        n = 1000
        while True:
            begun = time.monotonic()
            step(n)
            if time.monotonic() - begun > 0.02:
                break
            n *= 2
        saved = []
        def save(*_):
            saved.append((x[1], y[1]))
        signal.signal(signal.SIGALRM, save)
        signal.setitimer(signal.ITIMER_REAL, 0.007, 0.007)
        end = time.monotonic() + 0.5  # optimised, a step may take less
        while time.monotonic() < end:
            step(n)
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert saved and all(a == b for a, b in saved), saved
        print("end")
        """,
    )
    assert_ended(done)


def test_the_interpreter_is_interrupted(tmp_path):
    done = run(
        tmp_path,
        """
        os.environ["QD_CPU_TIER"] = "interpret"
        qd.init(arch=qd.cpu)
        x = qd.field(qd.i32, ())
        @qd.kernel
        def for_ever():
            while x[None] >= 0:
                x[None] = (x[None] + 1) % 100
        assert interrupted(for_ever)
        @qd.kernel
        def k() -> qd.i32:
            return x[None] * 0 + 5
        assert k() == 5
        print("end")
        """,
    )
    assert_ended(done)


@pytest.mark.parametrize("end", ["reset()", "init(arch=qd.cpu, cpu_max_num_threads=5)"])
def test_a_handler_resets_while_its_thread_waits_to_reset(tmp_path, end):
    done = run(
        tmp_path,
        f"""
        @qd.kernel
        def long(n: qd.i32):
            for i in x:
                for k in range(n):
                    x[i] = x[i] * 7 % 501
        long(1)
        def handler(signum, frame):
            alive = thread.is_alive()
            qd.{end}
            print("handler", alive, thread.is_alive() and runs)
        def launch():
            global runs
            runs = True
            long(800_000)
            runs = False
        signal.signal(signal.SIGALRM, handler)
        thread = threading.Thread(target=launch)
        thread.start()
        time.sleep(0.05)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        qd.reset()
        thread.join()
        print("end")
        """,
    )
    assert_ended(done)
    assert "handler True False" in done.stdout


def test_an_exception_of_a_probed_object_is_still_an_answer():
    """Only what a handler raises is more than that."""

    class Odd:
        size = 3

        def __getattr__(self, name):
            raise AttributeError(name)

    @qd.kernel
    def k(c: qd.template()) -> qd.i32:
        return c.size + qd.static(getattr(c, "missing", 4))

    qd.init(arch=qd.cpu)
    assert k(Odd()) == 7


def test_what_two_threads_keep_is_raised_in_both(tmp_path):
    """One thread's exception waits for the end of its call while another raises its own."""
    done = run(
        tmp_path,
        """
        import threading
        kept, go = threading.Event(), threading.Event()

        class Asked:  # for the components of a vector
            def __init__(self, waits):
                self.waits = waits
            def __getattr__(self, name):
                if name == "to_list":
                    raise KeyboardInterrupt
                if name == "tolist" and self.waits:
                    kept.set()
                    assert go.wait(40)
                raise AttributeError(name)
            def __len__(self):
                return 2
            def __getitem__(self, k):
                return [5, 6][k]

        @qd.kernel
        def total(v: qd.types.vector(2, qd.i32)) -> qd.i32:
            return v[0] + v[1]

        def raises(waits):
            try:
                ended.append(total(Asked(waits)))
            except KeyboardInterrupt:
                ended.append(waits)

        assert total(qd.Vector([1, 2])) == 3
        ended = []
        first = threading.Thread(target=raises, args=(True,))
        first.start()
        assert kept.wait(40)
        second = threading.Thread(target=raises, args=(False,))
        second.start()
        second.join()
        go.set()
        first.join()
        assert ended == [False, True], ended
        print("end")
        """,
    )
    assert_ended(done)


def interrupted(action, last, is_watched):
    """Runs it with Ctrl-C at line `last` of the code that is watched: (whether that came, lines run)."""
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        if not is_watched(frame.f_code):
            return None
        lines += event == "line"
        if lines == last:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True, lines
    finally:
        sys.settrace(before)
    return False, lines


# At a line of `with` itself a trace may raise where no handler can: functions with one are not watched.
def gives_storage(code):
    return code.co_filename.endswith("fields_builder.py") and code.co_name != "_make_storage"


def declares(code):
    return code.co_filename.endswith(("/field.py", "/snode.py")) and code.co_name not in (
        "_declare",
        "change",
    )


def test_fields_survive_what_is_raised_while_they_get_storage():
    """Ctrl-C in a notebook's first call, at any line: the next call works."""
    cut = 0
    for last in range(1, 2000, 3):
        qd.init(arch=qd.cpu, offline_cache=False)
        x, v = qd.field(qd.i32, 3), qd.Vector.field(2, qd.f32, 3)
        came, lines = interrupted(lambda: x.fill(1), last, gives_storage)
        cut += came
        v[1].y = 4
        y = qd.field(qd.i32, 2)
        y.fill(7)
        x.fill(2)
        assert (x[2], v[1].y, y[1]) == (2, 4, 7), last
        if lines < last:
            break
    assert cut > 20


def starts_or_ends(code):
    return code.co_filename.endswith(("lang/impl.py", "lang/misc.py", "lang/_program.py"))


@qd.kernel
def one() -> qd.i32:
    return 1


@pytest.mark.parametrize("amid", ["init", "reset"])
def test_an_interrupt_leaves_the_runtime_whole_or_gone(amid):
    """At any line, for all that asks whether there is one."""
    start = functools.partial(qd.init, arch=qd.cpu, offline_cache=False, log_level="error")
    whole = {True: 0, False: 0}
    for last in range(1, 2000):
        start()
        x, a, config = qd.field(qd.i32, 3), qd.ndarray(qd.i32, 3), qd.cfg
        came, _ = interrupted(start if amid == "init" else qd.reset, last, starts_or_ends)
        if not came:
            break
        uses = {
            "kernel": one,
            "sync": qd.sync,
            "field": lambda: qd.field(qd.i32, 3),
            "ndarray": lambda: qd.ndarray(qd.i32, 3),
            "old field": lambda x=x: x.fill(1),
            "old ndarray": lambda a=a: a.fill(1),
            "cfg": lambda: qd.cfg.arch,
        }
        works = {}
        for name, use in uses.items():
            try:
                use()
                works[name] = True
            except (qd.QuadrantsRuntimeError, AttributeError):
                works[name] = False
        if qd.cfg is not None and qd.cfg is not config:  # a new runtime has nothing of the old
            del works["old field"], works["old ndarray"]
        assert len(set(works.values())) == 1, (last, works)
        whole[works["cfg"]] += 1
    assert whole[False] > 3, whole
    assert whole[True] > 3 or amid == "reset", whole
    start()
    assert one() == 1


def test_a_config_is_of_its_own_runtime():
    """A copy or an earlier one says nothing of what runs."""
    qd.init(arch=qd.cpu, offline_cache=False)
    early = qd.cfg
    qd.init(arch=qd.cpu, offline_cache=False)
    x = qd.field(qd.i32, 4)
    for other in (early, copy.copy(qd.cfg)):
        other.check_out_of_bound = True

    @qd.kernel
    def read(i: qd.template()) -> qd.i32:
        return x[i + 4]  # 64 bytes are there

    assert read(0) == 0
    qd.cfg.check_out_of_bound = True
    with pytest.raises(AssertionError, match="Accessing field"):
        read(1)


@pytest.mark.parametrize("shape", [3, ()])
def test_half_a_declaration_leaves_nothing(shape):
    """Ctrl-C, a deadline or no memory at any line of it: later fields work without a new qd.init."""
    pair = qd.types.struct(a=qd.f32, b=qd.types.vector(2, qd.i32))
    declare = [
        lambda: qd.field(qd.i32, shape),
        lambda: qd.field(qd.f32, shape, needs_grad=True),
        lambda: qd.Vector.field(2, qd.f32, shape, layout=qd.Layout.SOA),
        lambda: pair.field(shape=shape),
        lambda: pair.field(shape=shape, layout=qd.Layout.SOA),
    ]
    qd.init(arch=qd.cpu, offline_cache=False)
    cut = 0
    for make in declare:
        for last in range(1, 2000):
            came, lines = interrupted(make, last, declares)
            cut += came
            x = qd.field(qd.i32, 2)
            x.fill(last)
            assert (x[0], x[1]) == (last, last)
            if lines < last:
                break
        whole = make()
        whole.fill(1)
    assert cut > 50


@qd.kernel
def double_indices(f: qd.template()):
    for i in f:
        f[i] = 2 * i


def declare_and_use():
    x = qd.field(qd.i32, 4)
    double_indices(x)
    v = qd.Vector.field(2, qd.f32, shape=3, needs_grad=True)
    v.fill(1.5)
    assert (x[3], v[2].x) == (6, 1.5)


def declare_in_steps():
    x, y = qd.field(qd.i32), qd.field(qd.i32)
    qd.root.dense(qd.i, 4).place(x, y)
    double_indices(y)
    assert (x[3], y[3]) == (0, 6)


def declare_only():
    qd.field(qd.i32, 4)


def in_joined_thread(act):
    failed = []

    def run():
        try:
            act()
        except BaseException as e:
            failed.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert not failed, failed


def declare_in_threads():
    in_joined_thread(declare_and_use)
    in_joined_thread(declare_in_steps)


@pytest.mark.parametrize(
    "handler, stride",
    [(declare_and_use, 11), (declare_in_steps, 11), (declare_only, 11), (declare_in_threads, 211)],
)
def test_a_handler_declares_and_launches_amid_a_declaration(handler, stride):
    """A finaliser or signal handler, or a thread it waits for, at any step of declaring and getting
    storage."""

    def with_handler_at(last):
        steps, failed = 0, []

        def step(frame, event, _):
            nonlocal steps
            if not frame.f_code.co_filename.endswith(("builder.py", "/field.py", "/snode.py")):
                return None
            frame.f_trace_opcodes = True
            steps += 1
            if steps == last:
                sys.settrace(None)
                try:
                    handler()
                except BaseException as e:
                    failed.append(e)
            return step

        before = sys.gettrace()
        sys.settrace(step)
        try:
            declare_and_use()
        finally:
            sys.settrace(before)
        assert not failed, (last, failed)
        declare_and_use()
        return steps

    qd.init(arch=qd.cpu, offline_cache=False)
    declare_and_use()
    declare_in_steps()
    last = 1
    while with_handler_at(last) >= last:
        last += stride
    assert last > 300


def test_a_new_kernel_amid_a_compilation_is_refused_by_name():
    """As a signal handler or finaliser would call it: it is told what it may do."""
    qd.init(arch=qd.cpu, offline_cache=False)
    refused = []

    @qd.kernel
    def quite_new() -> qd.i32:
        return 7

    def handler():
        try:
            quite_new()
        except qd.QuadrantsSyntaxError as e:
            refused.append(str(e))
        return 3

    @qd.kernel
    def outer() -> qd.i32:
        return qd.static(handler())

    assert outer() == 3
    assert "nested kernels are not allowed" in refused[0]
    assert "call quite_new once earlier" in refused[0]
    assert quite_new() == 7


def test_a_handler_amid_a_trace_is_not_of_the_kernel(tmp_path):
    """What it does to fields happens at once, and in no later launch."""
    program = """
import os, signal, sys
import numpy as np
import quadrants as qd
qd.init(arch=qd.cpu, log_level="error", offline_cache=False)
x, v, y = qd.field(qd.i32, 4), qd.Vector.field(2, qd.i32, 4), qd.field(qd.i32, 4)
done = []

def handler(number, frame):
    x.fill(9)
    v.fill([8, 7])
    y.from_numpy(np.arange(4, dtype=np.int32))
    done.append((y.to_numpy().tolist(), int(qd.max(2, 1)), qd.field(qd.i32, 3).shape))

signal.signal(signal.SIGUSR1, handler)

class Interrupts:
    @property
    def value(self):
        os.kill(os.getpid(), signal.SIGUSR1)
        return 5

o = Interrupts()

@qd.kernel
def k():
    for i in y:
        y[i] += o.value

k()
print(done, x.to_numpy().tolist(), v.to_numpy().tolist()[0], y.to_numpy().tolist())
x.fill(1)
v.fill(2)
done.clear()
k()
print(done, x.to_numpy().tolist(), v.to_numpy().tolist()[0], y.to_numpy().tolist())
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-2:] == [
        "[([0, 1, 2, 3], 2, (3,))] [9, 9, 9, 9] [8, 7] [5, 6, 7, 8]",
        "[] [1, 1, 1, 1] [2, 2] [10, 11, 12, 13]",
    ]
