"""`qd.perf_dispatch`: which implementation runs, when, and what is refused."""

import pytest

import quadrants as qd
from quadrants.lang import _perf_dispatch


@pytest.fixture(autouse=True)
def started():
    qd.init(arch=qd.cpu)


def dispatcher(**options):
    log = []

    @qd.perf_dispatch(get_geometry_hash=lambda a, n: (log.append("hash"), n)[1], **options)
    def f(a: int, n: int): ...

    return f, log


def implement(f, log, name, **options):
    def run(a, n):
        log.append(name)
        return name

    run.__name__ = name
    return f.register(**options)(run)


def test_nothing_registered():
    f, _ = dispatcher()
    with pytest.raises(qd.QuadrantsRuntimeError, match="No suitable functions were found"):
        f(1, 2)


def test_one_candidate_is_chosen_without_timing():
    f, log = dispatcher()
    one = implement(f, log, "one")
    a = object()
    assert [f(a, 2) for _ in range(3)] == ["one"] * 3
    assert log.count("hash") <= 2  # the same objects again are not hashed
    assert f._fastest_dispatch_impl_by_geometry_hash == {2: one}
    assert not f._first_eval_completed
    assert one(1, 2) == "one"


@pytest.mark.parametrize("first_warmup, active", [(1, 1), (0, 1), (2, 3)])
def test_an_evaluation_takes_each_candidate_in_turn(first_warmup, active):
    f, log = dispatcher(first_warmup=first_warmup, active=active)
    both = [implement(f, log, "one"), implement(f, log, "two")]
    trials = first_warmup + active
    seen = [f(1, 7) for _ in range(2 * trials)]
    assert sorted(seen) == ["one"] * trials + ["two"] * trials
    counts = f._trial_count_by_dispatch_impl_by_geometry_hash[7]
    assert counts == dict.fromkeys(both, trials)
    assert f._first_eval_completed == {7}
    winner = f(1, 7)
    assert {f(1, 7) for _ in range(5)} == {winner}
    assert f(1, 8)
    assert set(f._trial_count_by_dispatch_impl_by_geometry_hash) == {7, 8}


def test_incompatible_candidates_stay_out():
    f, log = dispatcher()
    implement(f, log, "one", is_compatible=lambda a, n: a < 5)
    implement(f, log, "two", is_compatible=lambda a, n: a < 3)
    assert [f(4, 1) for _ in range(3)] == ["one"] * 3
    assert {f(2, 2) for _ in range(4)} == {"one", "two"}
    with pytest.raises(qd.QuadrantsRuntimeError, match="No suitable"):
        f(9, 3)


def test_a_count_restarts_the_evaluation_without_warmup():
    f, log = dispatcher(repeat_after_count=2)
    implement(f, log, "one")
    implement(f, log, "two")
    for _ in range(4):
        f(1, 1)
    assert 1 in f._fastest_dispatch_impl_by_geometry_hash
    f(1, 1)
    implement(f, log, "three")
    log.clear()
    assert sorted(f(1, 1) for _ in range(3)) == ["one", "three", "two"]
    assert 1 in f._fastest_dispatch_impl_by_geometry_hash


@pytest.mark.parametrize(
    "options, count, seconds",
    [
        ({}, 300, None),
        ({"repeat_after_seconds": 2.0}, None, 2.0),
        ({"repeat_after_count": 5}, 5, None),
        ({"repeat_after_count": 5, "repeat_after_seconds": 0}, 5, 0),
    ],
)
def test_triggers(options, count, seconds):
    f, _ = dispatcher(**options)
    assert (f.repeat_after_count, f.repeat_after_seconds) == (count, seconds)


def test_elapsed_seconds_restart_the_evaluation():
    f, log = dispatcher(repeat_after_seconds=1e-9)
    implement(f, log, "one")
    implement(f, log, "two")
    for _ in range(4):
        f(1, 1)
    assert {f(1, 1) for _ in range(2)} == {"one", "two"}


def test_kernels_as_implementations():
    x = qd.field(qd.i32, 4)

    @qd.perf_dispatch(get_geometry_hash=lambda n: n)
    def fill(n: qd.i32) -> qd.i32: ...

    @fill.register
    @qd.kernel
    def forward(n: qd.i32) -> qd.i32:
        for i in x:
            x[i] = n
        return 1

    @fill.register
    @qd.kernel
    def backward(n: qd.i32) -> qd.i32:
        for i in range(4):
            x[3 - i] = n
        return 2

    for k in range(6):
        assert fill(k // 6) in (1, 2)
        assert (x.to_numpy() == k // 6).all()


def test_other_parameters_are_refused():
    f, _ = dispatcher()
    f.register(lambda n, a: 0)  # the order is free
    for other in (lambda a: 0, lambda a, m: 0):
        with pytest.raises(
            qd.QuadrantsSyntaxError, match="PERFDISPATCH_ANNOTATION_SEQUENCE_MISMATCH"
        ):
            f.register(other)
    with pytest.raises(qd.QuadrantsSyntaxError, match="KERNEL_ANNOTATION_ORDER"):

        @qd.kernel
        @f.register
        def k(a: qd.i32, n: qd.i32):
            pass


@pytest.mark.parametrize(
    "raw, forced",
    [
        (None, {}),
        ("", {}),
        ("a:b, c : d,,", {"a": "b", "c": "d"}),
    ],
)
def test_force_map(raw, forced):
    assert _perf_dispatch._parse_force_map(raw) == forced


def test_a_malformed_force_entry():
    with pytest.raises(ValueError, match="Malformed"):
        _perf_dispatch._parse_force_map("abc")


@pytest.mark.parametrize("wanted, found", [("two", True), ("absent", False)])
def test_forced_implementations(monkeypatch, capsys, wanted, found):
    monkeypatch.setattr(_perf_dispatch, "_FORCE_MAP", {"f": wanted})
    monkeypatch.setattr(_perf_dispatch, "_ANY_FORCE_ACTIVE", True)
    f, log = dispatcher()
    implement(f, log, "one")
    implement(f, log, "two")
    seen = {f(1, 2) for _ in range(4)}
    assert seen == ({"two"} if found else {"one", "two"})
    text = capsys.readouterr().out
    assert "available implementations: ['one', 'two']" in text
    assert ("WARNING" in text) == (not found)
