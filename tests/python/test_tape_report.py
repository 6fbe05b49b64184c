"""`QD_DEBUG_ADSTACK=1`: a line on stderr for each task and launch that keeps something for the way back."""

import re

import pytest

import quadrants as qd

LINE = re.compile(
    r"\[adstack_heap\] arch=llvm kind=FI src=(\w+) num_threads=(\d+) stride=(\d+) "
    r"required_bytes=(\d+) \((\d+\.\d\d) MB\) task=(\S+)"
)
pytestmark = pytest.mark.oracle_differs("has heaps of a size that it computes beforehand")


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    monkeypatch.setenv("QD_DEBUG_ADSTACK", "1")


def init(threads=1, **options):
    qd.init(arch=qd.cpu, cpu_max_num_threads=threads, ad_stack_experimental_enabled=True, **options)


def a_recurrence(iterations=4):
    """A kernel that keeps a number for each turn of its inner loop, and what it starts from."""
    x = qd.field(qd.f32, iterations, needs_grad=True)
    y = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            a = x[i]
            for _ in range(n):
                a = qd.sin(a) + 1.0
            y[None] += a

    y.grad[None] = 1
    return k, x


def lines(capfd):
    err = capfd.readouterr().err
    told = [LINE.fullmatch(line).groups() for line in err.splitlines() if "adstack_heap" in line]
    for source, threads, stride, required, mb, _ in told:
        assert source == "high_water_mark" and int(required) == int(threads) * int(stride) > 0
        assert mb == f"{int(required) / 2**20:.2f}"
    return told


def stride_of(capfd):
    (told,) = lines(capfd)
    assert told[1] == "1"
    return int(told[2])


def test_strides_are_what_was_written(capfd):
    init()
    k, x = a_recurrence()
    k(3)
    assert lines(capfd) == []  # the way there alone keeps nothing
    strides = []
    for n in (3, 7, 11):
        k.grad(n)
        strides.append(stride_of(capfd))
    each, rest = divmod(strides[1] - strides[0], 4)
    assert rest == 0 and each in (4, 8) and strides[2] - strides[1] == 4 * each
    k.grad(3)  # each launch says its own
    assert stride_of(capfd) == strides[0]
    k.grad(0)
    assert lines(capfd) == []
    n = 1 << 20
    k.grad(n)
    written = n * each + strides[0] - 3 * each
    assert written <= stride_of(capfd) <= written + 8192  # pages
    k.grad(3)
    assert stride_of(capfd) == strides[0]


def test_threads_that_have_a_tape(capfd):
    init(threads=2)
    k, _ = a_recurrence(iterations=1000)
    k.grad(2000)
    (told,) = lines(capfd)
    assert told[1] in ("1", "2")
    small, _ = a_recurrence(iterations=1)
    small.grad(5)
    assert stride_of(capfd) > 0


def test_tasks(capfd):
    init()
    x = qd.field(qd.f32, 4, needs_grad=True)
    y = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def two(n: qd.i32):
        for i in x:
            y[None] += x[i] * x[i]
        for i in x:
            a = x[i]
            for _ in range(n):
                a = qd.sin(a) + 1.0
            y[None] += a
        for i in x:
            a = x[i]
            for _ in range(n + 2):
                a = qd.sin(a) + 1.0
            y[None] += a

    @qd.kernel
    def serial(n: qd.i32):
        qd.loop_config(serialize=True)
        for i in range(4):
            a = x[i]
            for _ in range(n):
                a = qd.sin(a) + 1.0
            y[None] += a

    two.grad(3)
    first, second = lines(capfd)  # that of the last loop comes first
    assert int(first[2]) > int(second[2]) and first[5] != second[5]
    for told in (first, second):
        assert re.fullmatch(r"two\w*_kernel_\d+_range_for", told[5]), told
    serial.grad(3)
    (told,) = lines(capfd)
    assert re.fullmatch(r"serial\w*_kernel_\d+_(serial|range_for)", told[5]), told


@pytest.mark.parametrize("tier", ["0", "1"])
def test_warm_starts_and_tiers(capfd, tmp_path, monkeypatch, tier):
    monkeypatch.setenv("QD_CPU_TIER", tier)
    seen = []
    for _ in range(2):
        init(offline_cache_file_path=str(tmp_path))
        k, _ = a_recurrence()
        k.grad(3)
        (told,) = lines(capfd)
        seen.append(int(told[2]))
        assert re.fullmatch(r"k\w*_reverse_grad_kernel_\d+_range_for", told[5]), told
        qd.reset()
    assert seen[0] == seen[1] > 0


@pytest.mark.parametrize("value", ["", "0", None])
def test_nothing_without_being_asked(capfd, monkeypatch, value):
    init()
    k, x = a_recurrence()
    if value is None:
        monkeypatch.delenv("QD_DEBUG_ADSTACK")
    else:
        monkeypatch.setenv("QD_DEBUG_ADSTACK", value)
    k.grad(3)
    before = x.grad.to_numpy().tolist()
    assert lines(capfd) == []
    monkeypatch.setenv("QD_DEBUG_ADSTACK", "1")  # at any time; the numbers are the same
    x.grad.fill(0)
    k.grad(3)
    assert len(lines(capfd)) == 1 and x.grad.to_numpy().tolist() == before


def test_segments_that_are_recorded_again(capfd):
    def run(**options):
        init(**options)
        k, x = a_recurrence(iterations=2)
        k.grad(5000)
        gradients = x.grad.to_numpy().tolist()
        err = capfd.readouterr().err
        again = re.findall(
            r"\[adstack_again\] segments=(\d+) task=(k\S+_kernel_0_range_for)\n", err
        )
        (heap,) = [
            LINE.fullmatch(line).groups() for line in err.splitlines() if "adstack_heap" in line
        ]
        assert all(task == heap[5] for _, task in again)
        return gradients, [int(n) for n, _ in again], int(heap[2])

    all_fits = run()
    assert all_fits[1] == []
    counts = []
    for room in (32000, 8000, 4000):
        gradients, again, peak = run(ad_tape_bytes=room)
        assert gradients == all_fits[0] and len(again) == 1 and room / 2 < peak <= room
        assert again[0] % 2 == 0  # each of two iterations as often
        counts += again
    assert 0 < counts[0] < counts[1] < counts[2]
    assert run(ad_tape_bytes=100000) == all_fits  # each launch counts its own
