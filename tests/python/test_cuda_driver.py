"""CUDA without a GPU: programs on a stand-in for the driver (standins/cuda.c) that logs what it is asked.

Its kernels do nothing; its memory cannot be read but through the driver.
"""

import pytest

from cuda_standin import driver_marks

pytestmark = driver_marks


@pytest.fixture
def run(cuda_run):
    return cuda_run


SAXPY = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
x = qd.field(qd.f32, 1000)
@qd.kernel
def saxpy(a: qd.f32):
    for i in x:
        x[i] = a * x[i]
"""


def test_a_launch_is_one_call_of_the_driver(run):
    lines, log, _ = run(
        SAXPY + "saxpy(1.0)\nprint(qd.cfg.arch)\nfor _ in range(3): saxpy(2.0)\nqd.sync()"
    )
    assert lines == ["Arch.cuda"]
    assert [x for x in log if x.startswith("launch")] == ["launch task0 8 x 128"] * 4
    # From the second call on a graph, told of what is new.
    asked = [x for x in log if x.split()[0] in ("instantiate", "graph", "update", "launch")]
    launch = "launch task0 8 x 128"
    assert asked == [launch, "instantiate", "graph", launch, "graph", launch, "graph", launch]
    assert log.count("load 1") == 1
    assert not [x for x in log if x.startswith(("read", "write"))]


LENGTHS = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
x = qd.field(qd.f32, 1000)
total = qd.field(qd.f32, ())
@qd.kernel
def k(a: qd.f32, n: qd.i32):
    for i in range(n):
        x[i] = a * x[i]
    for i in x:
        total[None] += x[i]
    for i in x:
        x[i] += 1
"""


def test_graphs_are_told_what_changed(run):
    program = LENGTHS + "for a, n in [(1, 5), (1, 5), (1, 5), (1, 0), (2, 0), (1, 500)]: k(a, n)\n"
    _, log, _ = run(program)
    log = log[log.index("instantiate") :]
    turns = " ".join(log).split(" graph ")[1:]
    rest = ["launch task1 4 x 256", "launch finish1 1 x 256", "launch task2 8 x 128"]
    for turn, expected in zip(
        turns,
        [
            ["launch task0 1 x 128", *rest],
            ["launch task0 1 x 128", *rest, "enable 0"],
            rest,
            [*rest, "enable 1", "update task0"],
            ["launch task0 2 x 128", *rest, "destroyed", "unload"],
        ],
        strict=True,
    ):
        assert turn == " ".join(expected)
    # What may be left out is not started early, nor what follows it.
    assert [x for x in log if x.startswith("early")] == []


# 150 arrays have descriptors of more than 4 KB; a task reads those of two.
MEMBERS = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
N = 150
@qd.func
def twice(x: qd.template()):
    x[0] *= 2
class Arrays: pass
fields = [qd.field(qd.f32, 4) for _ in range(3)]
one = qd.types.ndarray(qd.f32, ndim=1)
members = {f"m{k}": one for k in range(N)}
Arrays.__annotations__ = members
import dataclasses
Arrays = dataclasses.dataclass(Arrays)
@qd.kernel
def k(a: Arrays, n: qd.i32, last: one):
    for i in range(4):
        a.m3[i] = a.m140[i] + 1
    for i in range(4):
        a.m77[i] = n
        fields[2][i] = n
    for i in range(1):
        twice(a.m9)
        fields[1][i] = 1
    for i in range(4):
        last[i] = 1
arrays = [qd.ndarray(qd.f32, 4) for _ in range(N + 1)]
def launch(n, last=N, **other):
    k(Arrays(**({f"m{k}": arrays[k] for k in range(N)} | other)), n, arrays[last])
"""


def test_a_task_is_handed_what_it_reads(run):
    program = MEMBERS + (
        "launch(1); launch(1); launch(1)\n"
        "launch(2)\nlaunch(2, m9=arrays[20])\nlaunch(2, m9=arrays[20], m100=arrays[3])\n"
        "launch(2, 5, m9=arrays[20])\nlaunch(2, 5, m140=arrays[9], m9=arrays[20])\n"
    )
    _, log, _ = run(program, QD_DISABLE_PASS="join_tasks")
    log = log[log.index("instantiate") :]
    turns = " ".join(log).split(" graph ")[1:]
    told = [
        [w for w in x.split() if w.startswith("update")] and x.split("update ")[1:] for x in turns
    ]
    names = [[x.strip().split()[0] for x in t] for t in told]
    # What is told stands before the launch, thus at the end of the turn before it.
    assert names == [[], ["task1"], ["task2"], [], ["task3"], ["task0"], []]


def test_tasks_start_before_those_in_front_end(run):
    _, log, _ = run(LENGTHS + "k(1, 5)\nk(1, 5)\n")
    assert [x for x in log if x.startswith("early")] == ["early finish1", "early task2"]


@pytest.mark.parametrize("fault", ["graph", "graph room", "instantiate"])
def test_a_driver_that_makes_no_graphs(run, fault):
    _, log, _ = run(LENGTHS + "for _ in range(3): k(1, 5)\n", fault=fault)
    assert "graph" not in log
    assert [x for x in log if x.startswith("launch")] == 3 * [
        "launch task0 1 x 128",
        "launch task1 4 x 256",
        "launch finish1 1 x 256",
        "launch task2 8 x 128",
    ]


REFUSED = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
x = qd.field(qd.f32, 100)
@qd.kernel
def k(n: qd.i32, m: qd.i32):
    for i in x:
        x[i] += 1
    for i, j in qd.ndrange(n, m):
        x[i] += j
k(1, 1)
try:
    k(2**31 - 1, 2**31 - 1)
except RuntimeError as e:
    print("fewer" in str(e))
k(1, 1)
k(1, 1)
"""


def test_a_launch_that_is_refused_leaves_no_half_of_a_graph(run):
    lines, log, _ = run(REFUSED)
    assert lines == ["True"]
    launches = [x for x in log if x.startswith("launch")]
    assert launches == ["launch task0 1 x 128", "launch task1 1 x 128"] * 3


def test_graphs_go_with_their_kernels(run):
    program = LENGTHS + "for _ in range(5):\n    k(1, 5)\n    k(2, 5)\n    qd.init(arch=qd.cuda)\n"
    program += "    x, total = qd.field(qd.f32, 1000), qd.field(qd.f32, ())\n"
    _, log, _ = run(program)
    assert log.count("instantiate") == 5
    assert log.count("destroyed") >= 4


LOOPS = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
x = qd.field(qd.f32, 1000)
n, m = qd.ndarray(qd.i32, ()), qd.ndarray(qd.i32, ())
Count = qd.types.ndarray(qd.i32, ndim=0)
@qd.kernel(graph=True)
def g(n: Count, m: Count):
    while qd.graph_do_while(n):
        for i in x: x[i] += RANDOM
        while qd.graph_do_while(m):
            for i in range(1): m[()] = m[()] - 1
        for i in range(1): n[()] = n[()] - 1
for _ in range(3): g(n, m)
"""


def test_the_device_repeats_loops(run):
    _, log, _ = run(LOOPS.replace("RANDOM", "1"))
    first, rest = log[: log.index("instantiate")], log[log.index("instantiate") :]
    assert len([x for x in first if x.startswith("read 4")]) == 2  # the host asks
    assert not [x for x in rest if x.startswith("read")]
    # The inner loop is made ready at each turn of the outer one, which is loop 1.
    conditions = [int(x.split()[1]) for x in rest if x.startswith("condition")]
    assert conditions == 2 * [2, 2, 2, 1, 2, 2, 2, 1]
    assert rest.count("graph") == 2


def test_the_host_repeats_loops_with_random_numbers(run):
    _, log, _ = run(LOOPS.replace("RANDOM", "qd.random()"))
    assert "graph" not in log
    assert len([x for x in log if x.startswith("read 4")]) == 6


RESULT = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
x = qd.field(qd.f32, 4)
@qd.kernel
def k() -> qd.f32:
    return x[1]
"""


SEVERAL = RESULT.replace("    return", "    for i in x:\n        x[i] += 1\n    return")


def test_only_the_last_task_is_told_of_each_launch(run):
    _, log, _ = run(SEVERAL + "for _ in range(4): k()\n")
    assert [x for x in log if x.startswith("launch")] == [
        "launch task0 1 x 128",
        "launch task1 1 x 1",
    ] * 4
    assert log.count("graph") == 3 and log.count("update task1") == 2
    assert "update task0" not in log


def test_a_word_says_that_results_are_there(run, tmp_path):
    lines, _, _ = run(RESULT + "print(k(), k(), k())\n")
    assert lines == ["0.0 0.0 0.0"]
    ptx = (tmp_path / "log.ptx").read_text()
    assert 0 < ptx.index("st.global.b32") < ptx.index("st.release.sys.global.b64")


def test_memory_is_reached_through_the_driver(run):
    program = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
x = qd.field(qd.f64, (3, 4))
a = qd.ndarray(qd.i16, 5)
v = qd.Vector.field(3, qd.i64, 7)
x.fill(1.5); a.fill(-3); v.fill(2**40 + 1)
x[1, 2] = 4.0
print(x.to_numpy().sum(), a.to_numpy().tolist(), v.to_numpy().sum() == 21 * (2**40 + 1), x[1, 2])
a.from_numpy(np.arange(5, dtype=np.int16)); print(a[3])
"""
    lines, _, _ = run(program)
    assert lines == ["20.5 [-3, -3, -3, -3, -3] True 4.0", "3"]


def test_arrays_of_the_host_are_copied_in_and_back(run):
    program = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
@qd.kernel
def add(a: qd.types.ndarray(), b: qd.types.ndarray()):
    for i in a:
        a[i] += b[i]
a, b = np.ones(100, np.int32), np.ones(50, np.int32)
add(a, b); print(a.sum())
whole = np.ones(100, np.int32)
add(whole[:60], whole[40:])
qd.sync()
"""
    lines, log, _ = run(program)
    assert lines == ["100"]
    copies = [x for x in log if x.startswith(("read", "write"))]
    assert copies[:3] == ["write 200", "write 400", "read 400"] or copies[:3] == [
        "write 400",
        "write 200",
        "read 400",
    ]
    assert copies[3:] == ["write 400", "read 400"]  # those that overlap are one
    assert sum(x.startswith("alloc") for x in log) == log.count("free")


def test_reductions_take_a_bounded_grid_and_one_block_more(run):
    program = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
x, s = qd.field(qd.f32, 10**6), qd.field(qd.f32, ())
@qd.kernel
def total():
    for i in x:
        s[None] += x[i]
total(); qd.sync()
"""
    _, log, _ = run(program)
    launches = [x for x in log if x.startswith("launch")]
    assert launches == ["launch task0 512 x 256", "launch finish0 1 x 256"]


def test_a_grid_is_as_large_as_the_user_allows(run):
    """saturating_grid_dim: threads have several iterations. Loops with records on tapes have as many
    threads as fit: 10 multiprocessors of 16 blocks."""
    program = """
qd.init(arch=qd.cuda, log_level=qd.ERROR, ad_stack_experimental_enabled=True{more})
print(qd.cfg.saturating_grid_dim, qd.cfg.max_block_dim)
x = qd.field(qd.f32, 10**6, needs_grad=True)
s = qd.field(qd.f32, (), needs_grad=True)

@qd.kernel
def fill(n: qd.i32):
    for i in range(n):
        x[i] = 1.0

@qd.kernel
def total(n: qd.i32):
    for i in x:
        v = x[i]
        for _ in range(n):
            v = v * v
        s[None] += v
fill(10**6); fill(100); total(10); total.grad(10); qd.sync()
"""
    launches = {}
    for more in ("", ", saturating_grid_dim=3"):
        out, log, _ = run(program.replace("{more}", more))
        launches[more] = [x.split(None, 1)[1] for x in log if x.startswith("launch")]
        assert out[-1] == ("3 1024" if more else "640 1024")
    total = ["task0 512 x 256", "finish0 1 x 256"]
    assert launches[""] == ["task0 3907 x 128", "task0 1 x 128", *total, "task0 160 x 128"]
    total = ["task0 3 x 256", "finish0 1 x 256"]
    few = ["task0 3 x 128", "task0 1 x 128", *total, "task0 3 x 128"]
    assert launches[", saturating_grid_dim=3"] == few


def test_serial_tasks_and_empty_loops(run):
    program = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
x = qd.field(qd.i32, 8)
@qd.kernel
def k(n: qd.i32) -> qd.i32:
    x[0] = 3
    for i in range(n):
        x[i] = i
    return x[1]
print(k(0), k(5))
"""
    lines, log, _ = run(program)
    assert lines == ["0 0"]
    launches = [x.removeprefix("launch ") for x in log if x.startswith("launch")]
    assert launches == ["task0 1 x 1", "task2 1 x 1", "task0 1 x 1", "task1 1 x 128", "task2 1 x 1"]


def test_sessions_leave_nothing_behind(run):
    program = """
for _ in range(20):
    qd.init(arch=qd.cuda, log_level=qd.ERROR)
    x = qd.field(qd.f32, 1000); a = qd.ndarray(qd.f32, 10)
    @qd.kernel
    def k(a: qd.types.ndarray()):
        for i in x:
            x[i] = a[0]
    k(a); x.to_numpy()
    qd.reset()
"""
    _, log, _ = run(program)
    assert sum(x.startswith("alloc") for x in log) == log.count("free") == 40
    assert log.count("load 1") == log.count("unload") == 20


def test_the_stack_that_the_user_asks_for(run):
    _, log, _ = run("qd.init(arch=qd.cuda, cuda_stack_limit=5000)")
    assert log == ["limit 0 5000"]


@pytest.mark.parametrize(
    "fault, says",
    [
        ("init", "does not start: no CUDA-capable device"),
        ("none", "there is no NVIDIA GPU"),
        ("old", "speaks CUDA 11.8: update it"),
        ("capability", "compute capability 6.0; 7.5 or later"),
    ],
)
def test_what_is_missing_is_named_and_the_cpu_taken(run, fault, says):
    program = "from quadrants._lib import core\nqd.init(arch=qd.cuda)\nprint(qd.cfg.arch is qd.cpu, core.device_problem('cuda'))"
    lines, _, _ = run(program, fault)
    assert lines[-1].startswith("True ") and says in lines[-1]
    assert "falling back to CPU" in "".join(lines) + run(program, fault)[2]


def test_an_illegal_address_is_an_error_and_the_cpu_goes_on(run):
    program = (
        SAXPY
        + """
saxpy(1.0)
for action in (
    qd.sync, lambda: saxpy(2.0), lambda: x[0], x.to_numpy, lambda: qd.ndarray(qd.i32, 7), lambda: qd.init(arch=qd.cuda)
):
    try:
        action()
        print("nothing")
    except qd.QuadrantsRuntimeError as e:
        print(str(e).splitlines()[0])
qd.init(arch=qd.cpu, log_level=qd.ERROR)
y = qd.field(qd.f32, 4)
y.fill(2)
print(y[1])
"""
    )
    lines, _, _ = run(program, "address")
    assert len(lines) == 7 and lines[-1] == "2.0"
    assert all("illegal memory access" in x for x in lines[:5])
    assert "start a new one" in lines[5]


def test_memory_that_runs_out(run):
    program = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
try:
    qd.ndarray(qd.f32, 2**29)
except RuntimeError as e:
    print(e)
a = qd.ndarray(qd.f32, 4); a.fill(1); print(a[0])
"""
    lines, _, _ = run(program)
    assert lines == ["Out of memory: cannot allocate 2147483648 bytes", "1.0"]


def test_what_nobody_uses_is_given_back_before_memory_runs_out(run):
    program = """
import sys, types
class Kept:  # a cycle holds it
    def __init__(self): self.array, self.me = qd.ndarray(qd.f32, 2**26), self
qd.init(arch=qd.cuda, log_level=qd.ERROR)
import gc; gc.set_threshold(0)
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(empty_cache=lambda: print("emptied"))
for _ in range(3): Kept()
qd.ndarray(qd.f32, 2**28 - 2**20)
print("made")
"""
    lines, log, _ = run(program, "budget")
    assert lines == ["emptied", "made"]


SPARSE = """
x = qd.field(qd.f32)
qd.root.pointer(qd.ij, 256).dense(qd.ij, EXTENT).place(x)
try:
    x[3, 4] = 5
    print(x[3, 4], x[200 * EXTENT, 0])
except RuntimeError as e:
    print(e)
"""


@pytest.mark.parametrize(
    ("extent", "fault", "takes", "says"),
    [
        (4, "", "alloc", "5.0 0.0"),  # its pages are there from the beginning
        (1024, "", "managed", "5.0 0.0"),  # 256 GB
        (1024, "pages", None, "Out of memory"),  # of a device that cannot provide them later
        (4, "pages", "alloc", "5.0 0.0"),
    ],
)
def test_pages_of_large_sparse_trees_come_when_they_are_touched(run, extent, fault, takes, says):
    program = SPARSE.replace("EXTENT", str(extent))
    lines, log, _ = run("qd.init(arch=qd.cuda, log_level=qd.ERROR)" + program, fault)
    assert lines[-1].startswith(says)
    large = 256 * 256 * extent * extent * 4
    taken = [line.split() for line in log if line.startswith(("alloc", "managed"))]
    assert [kind for kind, size in taken if int(size) >= large] == ([takes] if takes else [])
    # Wherever pages come later, on the device: CU_MEM_ADVISE_SET_PREFERRED_LOCATION.
    assert ("advise 3" in log) == (takes == "managed")


def test_a_forked_child_is_told(run):
    program = (
        SAXPY
        + """
import os
saxpy(1.0)
pid = os.fork()
if pid == 0:
    x.fill(3)
    x[1] = 2
    for action in (lambda: x[0], x.to_numpy, lambda: saxpy(2.0), lambda: saxpy(np.float32(2)),
                   lambda: add(np.ones(3, np.float32)), lambda: qd.ndarray(qd.f32, 5),
                   lambda: qd.init(arch=qd.cuda)):
        try:
            action()
            print("nothing", flush=True)
        except qd.QuadrantsRuntimeError as e:
            print(e, flush=True)
    try:
        qd.init(arch=qd.cpu)
        y = qd.field(qd.i32, 3)
        y.fill(7)
        print(y[1], flush=True)
    finally:
        os._exit(0)
print(os.waitpid(pid, 0)[1])
"""
    )
    program = program.replace(
        "import os",
        "@qd.kernel\ndef add(a: qd.types.ndarray()):\n    for i in a: a[i] += 1\nimport os",
    )
    lines, _, _ = run(program)
    assert lines[-2:] == ["7", "0"]
    assert len(lines) == 9 and all("forked" in x and "spawn" in x for x in lines[:7])


def test_checks_and_prints_of_the_device(run):
    program = """
qd.init(arch=qd.cuda, debug=True, log_level=qd.ERROR)
@qd.kernel
def check(n: qd.i32):
    for i in range(n):
        assert i < 100, "too large"
for _ in range(2):
    try:
        check(5)
    except AssertionError as e:
        print(type(e).__name__, e)
"""
    lines, _, _ = run(program, "check")
    assert lines == ["QuadrantsAssertionError too large"] * 2
    program = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
@qd.kernel
def speak(n: qd.i32):
    for i in range(n):
        print("hello")
speak(3)
"""
    lines, _, _ = run(program, "print")
    assert lines == ["hello", "hello", "[1 prints of this launch found no room]"]


OWNED = """
import gc
qd.init(arch=qd.cuda, log_level=qd.ERROR)
@qd.kernel
def fill(a: qd.types.ndarray(qd.f32, 1)):
    for i in a:
        a[i] = 1.0
def used(n, **stream):
    a = qd.ndarray(qd.f32, n)
    fill(a, **stream)
used(50)
used(60)
gc.collect()
qd.sync()
fill(qd.ndarray(qd.f32, 70))
OTHERS
used(80)
gc.collect()
qd.reset()
"""


@pytest.mark.parametrize("pools", [True, False])
@pytest.mark.parametrize("others", ["", "stream", "export"])
def test_memory_of_a_pool(run, pools, others):
    """What is given back waits for the device if others may use it where the device sees nothing."""
    line = {
        "": "",
        "stream": "used(75, qd_stream=qd.Stream(77))",
        "export": "array = qd.ndarray(qd.f32, 75); view = array.to_dlpack()",
    }[others]
    _, log, _ = run(OWNED.replace("OTHERS", line), "" if pools else "pools")
    log = [x for x in log if x.split()[0] in ("alloc", "free", "wait", "trim")]
    assert ("trim" in log) == pools
    waits = [k for k, x in enumerate(log) if x == "wait for all"]
    assert bool(waits) == (pools and bool(others))
    assert all(log[k + 1] == "free" for k in waits)
    assert log.count("free") >= 4


LATE = """
qd.init(arch=qd.cuda, ad_stack_experimental_enabled=True, log_level=qd.ERROR)
x, y = (qd.field(qd.f32, 4, needs_grad=True) for _ in range(2))
s = qd.create_stream()
@qd.kernel
def carried(n: qd.i32):
    for i in x:
        s = x[i]
        for j in range(n):
            s = qd.sin(s)
        y[i] = s
@qd.kernel
def other():
    for i in x:
        x[i] = 1.0
def told(what):
    try:
        what()
        print("nothing")
    except AssertionError as e:
        print(type(e).__name__, "overflow" in str(e), "carried" in str(e))
for wait in (qd.sync, other, lambda: x[1], x.to_numpy, lambda: carried.grad(7), s.synchronize):
    carried.grad(6)
    told(wait)
    told(qd.sync)
def short_lived():
    @qd.kernel
    def carried(n: qd.i32):
        for i in x:
            s = x[i]
            for j in range(n):
                s = qd.sin(s)
            y[i] = s
    carried.grad(5)
short_lived()
gc.collect()
told(qd.sync)
qd.reset()
qd.init(arch=qd.cuda, ad_stack_experimental_enabled=True, debug=True, log_level=qd.ERROR)
x, y = (qd.field(qd.f32, 4, needs_grad=True) for _ in range(2))
told(lambda: carried.grad(5))
"""


def test_who_waits_next_hears_of_a_reverse_sweep_without_room(run):
    lines, _, _ = run("import gc\n" + LATE, "check")
    late = ["QuadrantsAssertionError True True", "nothing"] * 6
    gone, debugged = "QuadrantsAssertionError True True", "QuadrantsAssertionError False True"
    assert lines == [*late, gone, debugged]  # which names the first check, of bounds


@pytest.mark.parametrize(
    "given, taken",
    [(0, (1 << 30) // 3), (1 << 20, 128 * ((1 << 20) + 64)), (1 << 40, (1 << 30) // 3)],
)
def test_the_room_of_tapes(run, given, taken):
    """All threads share some, or have what is wished for each: a third of the memory at most."""
    program = LATE[: LATE.index("@qd.kernel\ndef other")].replace(
        "log_level", f"ad_tape_bytes={given}, log_level"
    )
    _, log, _ = run(program + "carried.grad(5)")
    assert f"alloc {taken + taken // 2}" in log  # room to grow


def test_tapes_are_told(run):
    """For each launch what each thread may write."""
    program = LATE[: LATE.index("@qd.kernel\ndef other")].replace(
        "log_level", "ad_tape_bytes=4096, log_level"
    )
    asks = "import os\nos.environ['QD_DEBUG_ADSTACK'] = '1'\n"
    _, _, err = run(program + "carried.grad(5)\n" + asks + "for _ in range(2): carried.grad(5)")
    told = [line.rpartition(" ")[0] for line in err.splitlines() if "adstack" in line]
    line = "[adstack_heap] arch=llvm kind=FI src=reserved num_threads=128 stride=4096"
    assert told == [f"{line} required_bytes=524288 (0.50 MB)"] * 2


BLOCKS = """
from quadrants.lang.simt import block, subgroup, warp, grid
qd.init(arch=qd.cuda, default_gpu_block_dim=64)
x = qd.ndarray(qd.f32, 768)
x.fill(1.0)

@qd.func
def turned(v, n: qd.template()):
    shared = block.SharedArray((n,), qd.f32)
    shared[block.thread_idx()] = v
    block.sync()
    return shared[n - 1 - block.thread_idx()]

@qd.kernel
def run(x: qd.types.ndarray(qd.f32, ndim=1)):
    qd.loop_config(block_dim=192)
    for i in x:
        x[i] = turned(turned(x[i], 192), 192)
    for i in x:
        big = block.SharedArray((20000,), qd.f32)
        big[i] = x[i]
        block.sync()
        x[i] = subgroup.reduce_add(big[i]) + warp.ballot(1) + block.reduce_all_max(x[i], 64, qd.f32)
        grid.mem_fence()
run(x)
print(subgroup.group_size(), qd.lang.impl.get_max_shared_memory_bytes(is_lowerbound_ok=False))
print(qd.clock_freq_hz())
"""


def test_blocks(run, tmp_path):
    lines, log, _ = run(BLOCKS)
    assert lines == ["32 232448", "1500000000.0"]
    launches = [x for x in log if x.startswith(("launch", "attribute"))]
    # Shared memory of the launch: 20,000 floats, and two for the sums of subgroups.
    assert launches == [
        "attribute task1 8 80016",
        "launch task0 4 x 192",
        "launch task1 12 x 64 + 80016",
    ]
    ptx = (tmp_path / "log.ptx").read_text()
    first, second = ptx.split(".entry task1")
    assert first.count("bar.sync") == 2 and first.count(".b8 qd_$_shared_$_") == 2
    assert second.count("shfl.sync.down.b32") == 10  # a sum and a maximum
    assert "vote.sync.ballot.b32" in second and "membar.gl" in second.replace(
        "fence.sc.gpu", "membar.gl"
    )


def test_dumps_are_of_the_device(run, tmp_path, monkeypatch):
    monkeypatch.setenv("QD_DUMP_IR", "1")
    folder = tmp_path / "dumps"
    run(BLOCKS.replace("qd.init(", f"qd.init(debug_dump_path={str(folder)!r}, "))
    texts = [p.read_text() for p in folder.glob("*_llvm.ll")]
    assert len(texts) == 2
    assert all("nvptx64" in t and " ptx_kernel " in t for t in texts)


def test_shared_arrays_that_no_device_has(run):
    lines, _, _ = run(
        """
from quadrants.lang.simt import block
qd.init(arch=qd.cuda)

@qd.kernel
def much():
    for _ in range(32):
        big = block.SharedArray((100000,), qd.f64)
        big[0] = 1.0

@qd.kernel
def line():
    for _ in range(32):
        block.SharedArray((4, 4), qd.f32)[0] = 1.0

try:
    line()
except IndexError as e:
    print("Shared array with dim 2 accessed with indices of dim 1" in str(e))

try:
    much()
except Exception as e:
    print(type(e).__name__, "800000 bytes; a block of this device has 232448" in str(e))

@qd.real_func
def own() -> qd.f32:
    a = block.SharedArray(4, qd.f32)
    return a[0]

@qd.kernel
def calls() -> qd.f32:
    return own()

try:
    calls()
except qd.QuadrantsCompilationError as e:
    print("cannot be made in a @qd.real_func" in str(e))
"""
    )
    assert lines == ["True", "QuadrantsRuntimeError True", "True"]


def test_nobody_waits_for_a_bound_that_the_device_computes(run):
    program = """
qd.init(arch=qd.cuda)
n, s, x = qd.field(qd.i32, ()), qd.field(qd.i32, ()), qd.field(qd.f32, 100)

@qd.kernel
def run():
    for i in range(n[None] * 2):
        x[i] = 1.0
    for i in range(n[None]):
        s[None] += i
run()
"""
    _, log, _ = run(program)
    # 10 multiprocessors, 2,048 threads each, twice.
    assert [x for x in log if x.startswith("launch")][1:] == [
        "launch task1 320 x 128",
        "launch task2 160 x 256",
        "launch finish2 1 x 256",
    ]
    assert not any(x.startswith("read") for x in log)


ALGORITHMS = """
qd.init(arch=qd.cuda)
A, n = qd.algorithms, 5000
I, U, F = (qd.types.ndarray(t, ndim=1) for t in (qd.i32, qd.u32, qd.f32))
array = lambda t, n=n: qd.ndarray(t, (n,))

@qd.kernel
def scan(a: F, o: F, s: U, n: qd.i32):
    A.exclusive_scan_add(a, o, s, n, qd.f32, 2)

@qd.kernel
def select(a: F, f: I, o: F, c: I, s: U, n: qd.i32):
    A.select(a, f, o, c, s, n, 2)

@qd.kernel
def by_key(k: I, v: F, ko: I, vo: F, c: I, s: U, n: qd.i32):
    A.reduce_by_key_add(k, v, ko, vo, c, s, n, qd.f32, 2)

@qd.kernel
def sort(k: U, kt: U, v: F, vt: F, s: U, n: qd.types.ndarray(qd.i32, ndim=0)):
    A.sort(k, kt, v, vt, s, n, qd.u32, True, 16, 2)

s = array(qd.u32, A.sort_scratch_slots(n))
scan(array(qd.f32), array(qd.f32), s, n)
select(array(qd.f32), array(qd.i32), array(qd.f32), array(qd.i32, 1), s, n)
by_key(array(qd.i32), array(qd.f32), array(qd.i32), array(qd.f32), array(qd.i32, 1), s, n)
sort(array(qd.u32), array(qd.u32), array(qd.f32), array(qd.f32), s, qd.ndarray(qd.i32, ()))
A.PrefixSumExecutor(n).run(qd.field(qd.i32, n))
"""


def test_algorithms_are_a_few_tasks_of_blocks(run):
    _, log, _ = run(ALGORITHMS)
    launches = [x.partition(" + ")[0].split(" ", 2)[2] for x in log if x.startswith("launch")]
    blocks = [x for x in launches if not x.endswith("x 1")]
    tiles, prefixes = "160 x 256", "1 x 1024"  # twice what 10 multiprocessors hold
    three = [tiles, prefixes, tiles]
    zeros = "320 x 128"
    select = [zeros, tiles]
    by_key = [tiles, prefixes, zeros, tiles]
    sort = [zeros, tiles, tiles, tiles, tiles]  # histograms, their sums, two passes
    assert blocks == [*three, *select, *by_key, *sort, *three]
    assert not any(x.startswith("read") for x in log)


TILES = """
qd.init(arch=qd.cuda, log_level=qd.ERROR, print_kernel_asm=False)
T = qd.simt.Tile16x16
x, f = qd.ndarray(qd.f32, (16, 16)), qd.field(qd.f32, (16, 16))
z = qd.ndarray(qd.f32, (2, 16, 16))
def attempt(text):
    name = f"k{attempt.count}"
    attempt.count += 1
    with open(f"{__file__}.{name}.py", "w") as out:
        out.write("import quadrants as qd\\nT = qd.simt.Tile16x16\\nf = None\\n"
                  f"@qd.kernel\\ndef {name}(x: qd.types.ndarray(), z: qd.types.ndarray(), n: qd.i32):\\n"
                  "    qd.loop_config(block_dim=16)\\n    for i in range(16):\\n"
                  "        t = T.eye()\\n" + "".join(f"        {line}\\n" for line in text.split("; ")))
    import importlib.util
    spec = importlib.util.spec_from_file_location(name, f"{__file__}.{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.f = f
    try:
        getattr(module, name)(x, z, 3)
    except Exception as e:
        kinds = [c.__name__ for c in type(e).__mro__]
        kind = "syntax" if "QuadrantsSyntaxError" in kinds else "type" if "TypeError" in kinds else kinds[0]
        print(kind + ": " + " ".join(str(e).split())[-400:])
    else:
        print("fine")
attempt.count = 0
"""

REFUSED_BY_TILES = [
    ("t[:] = x[:n, 0:n]", "syntax", "both start and stop indices are required"),
    ("t[:] = x[0:, 0:n]", "syntax", "both start and stop indices are required"),
    ("t[:] = x[-1:n, 0:n]", "syntax", "Negative indices"),
    ("v = x[0:n, -1]", "syntax", "Negative indices"),
    ("t[:] = f[-1:n, 0:n]", "fine", ""),
    ("t[:] = x[0, 0:n]", "syntax", ""),
    ("t[:] = x[0:n, 0:n, 0:n]", "syntax", ""),
    ("t[:] = z[0:n, 0:n]", "syntax", "a part of an array is x[r0:r1, c0:c1]"),
    ("t[:] = z[0:1, 0:n, 0:n]", "syntax", "a part of an array is x[r0:r1, c0:c1]"),
    ("t[:] = z[1, 0:n, 0:n]; z[0, 0:n, 0:n] = t; t -= qd.outer(z[1, 0:n, 0], 1.0)", "fine", ""),
    ("v = z[-1, 0:n, 0]", "syntax", "Negative indices"),
    ("t[:] = 1.0", "type", ""),
    ("t[:] = t", "type", ""),
    ("t[0] = x[0:n, 0:n]", "type", ""),
    ("t += qd.outer(1.0, 2.0)", "type", "unsupported augmented assignment op"),
    ("t -= 1.0", "type", "unsupported augmented assignment"),
    ("t.solve_triangular_(t, lower=False)", "type", "only lower=True is supported"),
    ("t = x[0:n, 0:n]; t.cholesky_(1.0)", "", ""),
    ("t = x[0:n, 0:n]; x[0:n, 0:n] = t", "type", ""),
    ("v = x[0:n, 0]; y = v + 1.0", "type", "only valid in tile operations"),
    ("v = x[0:n, 0]; y = 1.0 * v", "type", "only valid in tile operations"),
    ("v = x[0:n, 0:n]; y = v[0]", "type", "only valid in tile operations"),
    ("p = qd.outer(1.0, 2.0) + qd.outer(1.0, 2.0)", "type", "does not support composition"),
    ("t.r[n] = 1.0", "syntax", "requires a python-int index"),
    ("y = t.r[n]", "syntax", "requires a python-int index"),
    ("y = t.r[16]", "syntax", ""),
    ("u = T.zeros(qd.f32)", "type", ""),
    ("x[0:n, 0:n] = 1.0", "type", ""),
    ("x[0:n, 0:n] += t", "", ""),
]


def test_what_tiles_refuse(run):
    lines, _, _ = run(TILES + "".join(f"attempt({text!r})\n" for text, _, _ in REFUSED_BY_TILES))
    for got, (text, kind, says) in zip(lines, REFUSED_BY_TILES, strict=True):
        assert got.startswith(kind) and says in got, (text, got)
        assert (got == "fine") == (kind == "fine"), (text, got)


def test_tiles_live_in_registers(run, tmp_path):
    program = """
qd.init(arch=qd.cuda, log_level=qd.ERROR, offline_cache=False)
T = qd.simt.Tile32x32
x = qd.field(qd.f32, (64, 64))
@qd.kernel
def k(n: qd.i32):
    qd.loop_config(block_dim=32)
    for i in range(32):
        t, u = T.eye(), T.zeros()
        t[:] = x[0:n, 0:n]
        for j in range(n):
            v = x[0:n, j]
            t -= qd.outer(v, v)
        t.cholesky_(1e-6)
        u[:] = x[0:n, 32:n]
        t.solve_triangular_(u)
        x[0:n, 32:n] = u
k(20)
"""
    run(program)
    ptx = (tmp_path / "log.ptx").read_text()
    assert ".local" not in ptx and "bar.sync" not in ptx and ".shared" not in ptx
    # An update, a factor and a solution.
    assert ptx.count("shfl.sync") == 32 + 2 * 32 + 2 * (31 * 32 // 2)


WARM_TILES = """
from quadrants._lib import core
qd.init(arch=qd.cuda, log_level=qd.ERROR)
x = qd.field(qd.f32, (64, 64))
@qd.func
def twice(T: qd.template(), n):
    t, u = T.eye(dtype=qd.f32), T.zeros(dtype=qd.f32)
    t[:] = x[0:n, 0:n]
    v = x[0:n, 0]
    t -= qd.outer(v, v)
    t -= qd.outer(v, 1.0)
    t.cholesky_(1e-6)
    t.solve_triangular_(u)
    u = T.zeros(dtype=qd.f32)
    x[0:n, 32:n] = u
@qd.kernel
def k(n: qd.i32):
    qd.loop_config(block_dim=32)
    for i in range(32):
        twice(qd.simt.Tile32x32, n)
        twice(qd.simt.Tile16x16, n)
k(20)
print(core.counters()["lowered"])
"""


def test_tiles_start_warm(run):
    assert [run(WARM_TILES)[0] for _ in range(2)] == [["1"], ["0"]]


@pytest.mark.parametrize("fast_math", [True, False])
def test_quotients_are_approximations_where_that_is_allowed(run, tmp_path, fast_math):
    run(f"""
qd.init(arch=qd.cuda, log_level=qd.ERROR, offline_cache=False, fast_math={fast_math})
x, y = qd.field(qd.f32, 64), qd.field(qd.f64, 64)
@qd.kernel
def k(a: qd.f32, b: qd.f64, n: qd.i32):
    for i in x:
        x[i] = x[i] / a + x[i] / n + x[i] / 8.0 + x[i] // a
        y[i] = y[i] / b
k(1.0, 1.0, 1)
""")
    ptx = (tmp_path / "log.ptx").read_text()
    near, exact = ptx.count("div.full.ftz.f32"), ptx.count("div.rn.ftz.f32")
    assert ptx.count("div.rn.f64") == 1
    # `//` is exact in both.
    assert (near, exact) == ((2, 1) if fast_math else (0, 2))  # `x // a` finds `x / a` there


def test_the_device_times_its_tasks(run):
    lines, log, _ = run("""
qd.init(arch=qd.cuda, log_level=qd.ERROR, kernel_profiler=True)
x, y = qd.field(qd.f32, 2000), qd.field(qd.f32, 3000)
@qd.kernel
def k():
    for i in x: x[i] = i
    for i in y: y[i] = x[i // 2]
for _ in range(4): k()
print(qd.profiler.get_kernel_profiler_total_time(), qd.profiler.query_kernel_profiler_info("k").counter)
""")
    # The stand-in's clock says 0.125 ms between any two moments.
    assert lines == [f"{8 * 0.125e-3} 4"]
    assert log.count("event") == 16


def test_what_never_ends_is_left_behind(run):
    """Ctrl-C comes through, whatever waits; then the GPU is of no use, and other devices are."""
    program = (
        SAXPY
        + """
import os, signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
@qd.kernel
def result() -> qd.f32:
    return x[1]
a = qd.ndarray(qd.f32, 5)
stream, event = qd.create_stream(), qd.create_event()
def tries(f, *args):
    began = time.perf_counter()
    try:
        print(f(*args))
    except BaseException as e:
        print(type(e).__name__, str(e).splitlines()[0] if str(e) else "", "slow" if time.perf_counter() - began > 4 else "")
saxpy(1.0)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
tries(WAIT)
for action in (qd.sync, x.to_numpy, lambda: x[2], lambda: saxpy(2.0), result, lambda: qd.ndarray(qd.i32, 3)):
    tries(action)
del a
tries(qd.init, qd.cuda)
qd.init(arch=qd.cpu, log_level=qd.ERROR)
y = qd.field(qd.f32, 4)
y.fill(2)
print(y[1])
"""
    )
    for wait in ("qd.sync", "result", "stream.synchronize", "event.synchronize"):
        lines, log, _ = run(program.replace("WAIT", wait), "endless")
        assert lines[0] == "KeyboardInterrupt  " and lines[-1] == "2.0"
        assert len(lines) == 9
        for line in lines[1:-1]:
            assert line.startswith("QuadrantsRuntimeError") and "still runs" in line, line
            assert not line.endswith("slow")
        assert "free" not in log  # which would wait


def test_what_ends_soon_after_it_was_left_is_waited_for(run):
    program = """
import os, signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
saxpy(1.0)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    qd.sync()
except KeyboardInterrupt:
    print("left")
qd.sync()
print("fine")
"""
    lines, _, _ = run(SAXPY + program, "soon")
    assert lines == ["left", "fine"]


def test_a_signal_handler_launches_while_its_thread_waits(run):
    program = (
        SAXPY
        + """
import signal
@qd.kernel
def result() -> qd.f32:
    return x[1]
@qd.kernel
def says():
    print(x[1])
seen = []
def handler(*_):
    if not seen:
        seen.append(1)
        saxpy(1.0)
        result()
        says()
        s = qd.create_stream()
        saxpy(2.0, qd_stream=s)
        del s
        seen.append(2)
signal.signal(signal.SIGALRM, handler)
for k in range(3):
    saxpy(1.0), result(), says()
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
for k in range(50):
    result()
    if seen: break
signal.setitimer(signal.ITIMER_REAL, 0)
print(seen, result())
"""
    )
    lines, log, _ = run(program, "late")
    assert lines == ["[1, 2] 0.0"]
    # Of the handler's launches, which have memory of their own.
    assert any(line.startswith("free") for line in log)


def test_graph_kernels_keep_to_the_device(run):
    program = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
@qd.kernel(graph=True)
def k(a: qd.types.ndarray(qd.f32, 1)):
    for i in a: a[i] += 1
    for i in a: a[i] *= 2
prog = qd.lang.impl.get_runtime().prog
for a in (np.ones(3, np.float32), qd.ndarray(qd.f32, 3)):
    try:
        k(a)
        print("fine", prog.get_graph_cache_used_on_last_call(), prog.get_graph_num_nodes_on_last_call())
    except RuntimeError as e:
        print(e)
"""
    lines, _, _ = run(program)
    assert "argument a of kernel k" in lines[0] and lines[1] == "fine True 3"
    lines, _, _ = run(program, QD_GRAPH="0")
    assert lines == ["fine False 0"] * 2
