"""Lists and dicts of kernels that are changed in another place than the one that made them."""

import pytest

import quadrants as qd

pytestmark = pytest.mark.filterwarnings("ignore:Calling non-quadrants function")


@pytest.fixture(autouse=True)
def runtime():
    qd.init(arch=qd.cpu, log_level="error")


@qd.func
def append(items: qd.template()):
    items.append(4)


@qd.func
def append_by_another(items: qd.template()):
    append(items)
    items[0] = 7


@qd.func
def append_in_loop(items: qd.template()):
    for _ in range(3):
        items.append(1)


@qd.func
def append_to_copy(items):
    items.append(4)
    return len(items)


def python_helper(items):
    items.append(4)


def test_parallel_loop_changes():
    @qd.kernel
    def k() -> qd.types.vector(6, qd.i32):
        appended, popped, cleared, nested, helped = [1], [1, 2, 3], [1, 2], [[1], [2]], [1]
        named = {"a": 1}
        for i in range(4):
            appended.append(5)
            popped.pop()
            cleared.clear()
            nested[0].append(4)
            named.update(b=2)
            python_helper(helped)
        return [len(appended), len(popped), len(cleared), len(nested[0]), len(named), len(helped)]

    assert k().to_list() == [2, 2, 0, 2, 2, 2]


def test_variables_stay_the_same_after_a_loop_moved_them():
    @qd.kernel
    def k() -> qd.i32:
        items = [1, 2, 3]
        for i in range(4):
            items.insert(0, 9)
            items[1] += 1
        items[2] += 5
        return items[1] * 100 + items[2] * 10 + items[3]

    assert k() == 573


def test_next_loop_sees_what_happened_between():
    y = qd.field(qd.i32, 4)

    @qd.kernel
    def k():
        items = [1]
        for i in range(4):
            y[i] = items[0]
        items.append(5)
        for i in range(4):
            y[i] = items[1]

    k()
    assert y.to_numpy().tolist() == [5, 5, 5, 5]


def test_sums_of_elements_stay_atomic():
    @qd.kernel
    def k() -> qd.i32:
        items = [0]
        for _ in range(1000):
            items.append(3)
        for _ in range(1000):
            items[0] += items[1]
        return items[0]

    assert k() == 3000


def test_funcs_change_what_they_get_by_template():
    @qd.kernel
    def k() -> qd.types.vector(5, qd.i32):
        direct, through, looped, copied, inside = [1], [1, 2], [1], [1], [1]
        append(direct)
        append_by_another(through)
        append_in_loop(looped)
        told = append_to_copy(copied)
        for _ in range(3):
            append_by_another(inside)
        return [
            len(direct),
            len(through) * 10 + through[0],
            len(looped),
            told * 10 + len(copied),
            len(inside),
        ]

    assert k().to_list() == [2, 37, 2, 21, 2]


def test_every_call_changes_its_own_list():
    @qd.kernel
    def k() -> qd.i32:
        a, b, c = [], [], []
        append(a)
        append(a)
        append(b)
        append(c)
        return len(a) * 100 + len(b) * 10 + len(c)

    assert k() == 211

    @qd.kernel
    def again() -> qd.i32:
        a = []
        append(a)
        return len(a)

    assert again() == 1


def test_real_function_refuses_to_change():
    @qd.real_func
    def f(items: qd.template()) -> qd.i32:
        items.append(3)
        return 1

    @qd.kernel
    def k() -> qd.i32:
        items = [1]
        return f(items)

    with pytest.raises(qd.QuadrantsSyntaxError, match="passed to a real function"):
        k()


def test_real_function_reads_them():
    @qd.real_func
    def f(items: qd.template(), table: qd.template()) -> qd.i32:
        return items[0] + items[1][0] * 10 + table["a"] * 100

    @qd.kernel
    def k(n: qd.i32) -> qd.i32:
        items = [n, (2, n)]
        return f(items, {"a": n + 2})

    assert k(1) == 321


@qd.func
def put(items: qd.template(), value):
    items.append(value)


@qd.func
def first_and_length(items: qd.template()):
    return items[0] * 10 + len(items)


def test_a_value_of_a_loop_in_a_list_spoils_only_itself():
    @qd.kernel
    def k(n: qd.i32) -> qd.types.vector(5, qd.i32):
        twice, mixed, by_func, computed, told = [n], [n], [n], [n], 0
        for i in range(3):
            twice.append(i)
        for i in range(3):
            twice.append(i)
        for i in range(3):
            mixed.append(i + n)
        mixed.append(7)
        mixed[1] = 3
        for i in range(3):
            put(by_func, i)
        for i in range(3):
            put(by_func, i)
            told += by_func[0]
        for i in range(2):
            computed.append(i * 2)
        return [
            twice[0] * 10 + len(twice),
            mixed[0] * 100 + mixed[1] * 10 + mixed[2],
            told,
            first_and_length(by_func),
            first_and_length(computed),
        ]

    assert k(5).to_list() == [53, 537, 15, 53, 52]


def test_the_value_of_a_loop_itself_is_refused_behind_it():
    @qd.kernel
    def direct() -> qd.i32:
        items = [1]
        for i in range(3):
            items.append(i)
        return items[1]

    @qd.kernel
    def in_a_loop() -> qd.i32:
        items, total = [1], 0
        for i in range(3):
            items.append(i)
        for i in range(3):
            total += items[1]
        return total

    @qd.kernel
    def by_a_func() -> qd.i32:
        items = [1]
        for i in range(3):
            items.insert(0, i)
        return first_and_length(items)

    for k in (direct, in_a_loop, by_a_func):
        with pytest.raises(qd.QuadrantsCompilationError, match="outside of the function, branch"):
            k()
