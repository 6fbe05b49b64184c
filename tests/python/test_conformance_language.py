"""Small programs whose results and messages users of the interface rely on."""

import dataclasses

import numpy as np
import pytest

import quadrants as qd
from helpers import raises

F32 = qd.f32


def test_recursive_real_functions(backend):
    @qd.real_func
    def factorial(n: qd.i32) -> qd.i32:
        if n <= 1:
            return 1
        return n * factorial(n - 1)

    @qd.real_func
    def even(n: qd.i32) -> qd.i32:
        r = 1
        if n > 0:
            r = odd(n - 1)
        return r

    @qd.real_func
    def odd(n: qd.i32) -> qd.i32:
        r = 0
        if n > 0:
            r = even(n - 1)
        return r

    @qd.kernel
    def k(n: qd.i32) -> (qd.i32, qd.i32):
        return factorial(n), even(n)

    assert k(6) == (720, 1)
    assert k(7) == (5040, 0)


def test_what_a_real_function_writes_is_read_anew(backend):
    x, seen = qd.field(qd.i32, 4), qd.field(qd.i32, 2)

    @qd.real_func
    def count_down(n: qd.i32) -> qd.i32:
        if n > 0:
            return count_down(n - 1)
        x[1] += 5
        return x[1]

    @qd.kernel
    def k(i: qd.i32) -> qd.i32:
        before = x[i]
        count_down(3)
        return x[i] - before

    @qd.real_func
    def around(n: qd.i32) -> qd.i32:
        before = x[1]
        if n > 0:
            return around(n - 1)
        count_down(2)
        return x[1] - before

    @qd.kernel
    def in_functions():
        seen[0] = around(1)

    assert k(1) == 5 and k(0) == 0
    in_functions()
    assert seen[0] == 5 and x[1] == 15


def test_real_function_returns_from_a_loop(backend):
    @qd.real_func
    def first(x: F32, v: qd.types.vector(2, F32)) -> (F32, qd.types.vector(2, F32)):
        for i in range(10):
            if i == 3:
                return x * i, v * i
        return x, v

    @qd.kernel
    def k() -> F32:
        p, q = first(2, qd.Vector([1.0, 2.0]))
        return p + q[1]

    assert k() == 12


def test_addresses(backend):
    f = qd.field(qd.f64, (3, 4))

    @qd.kernel
    def k() -> qd.i64:
        return qd.cast(qd.get_addr(f, [1, 2]) - qd.get_addr(f, [0, 0]), qd.i64)

    assert k() == 8 * 6


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}])
def test_templates_refuse_containers(backend, value):
    @qd.kernel
    def k(x: qd.template()):
        pass

    with raises(TypeError, "exception while trying to ensure compiled"):
        k(value)


@pytest.mark.parametrize("value", [np.zeros(3), {1}, (1, [2])], ids=["array", "set", "nested"])
def test_templates_refuse_what_has_no_hash(backend, value):
    @qd.kernel
    def k(x: qd.template()):
        pass

    with raises(TypeError, "exception while trying to ensure compiled"):
        k(value)


def test_a_number_in_the_place_of_a_dataclass(backend):
    @dataclasses.dataclass
    class Pair:
        a: qd.i32
        b: qd.i32

    @qd.kernel
    def k(x: Pair):
        pass

    with raises(qd.QuadrantsRuntimeTypeError, "exception while trying to ensure compiled", "Pair"):
        k(3)


def test_references_matter_to_real_functions_only(backend):
    @qd.func
    def by_value(x: qd.ref(qd.i32)):
        x = x + 1

    @qd.real_func
    def by_reference(x: qd.ref(qd.i32)):
        x = x + 1

    @qd.kernel
    def k() -> (qd.i32, qd.i32):
        a = 1
        b = 1
        by_value(a)
        by_reference(b)
        return a, b

    assert k() == (1, 2)


@pytest.mark.parametrize("full", [False, True])
def test_floats_in_templates_can_be_refused(backend, full):
    captured = 2.5

    @qd.kernel
    def by_name() -> F32:
        return captured

    @qd.kernel
    def by_argument(x: qd.template()) -> F32:
        return x

    backend.init(raise_on_templated_floats=True, print_full_traceback=full)
    with raises(ValueError if full else qd.QuadrantsCompilationError,
                "Not permitted to access floats as global values"):  # fmt: skip
        by_name()
    with raises(ValueError, "exception while trying to ensure compiled"):
        by_argument(1.5)
    assert by_argument(2) == 2
    backend.init()
    assert by_name() == 2.5


def test_array_mistakes_say_what_was_done(backend):
    @qd.kernel
    def k(x: qd.types.ndarray(qd.f32, 1)):
        pass

    with raises(ValueError, "exception while trying to ensure compiled", "x"):
        k(np.zeros(3, np.int32))


@pytest.mark.oracle_differs("takes the process down or reads beyond the vector", run=False)
def test_constant_index_out_of_range(backend):
    @qd.kernel
    def load() -> qd.i32:
        v = qd.Vector([1, 2, 3])
        return v[3]

    @qd.kernel
    def store():
        m = qd.Matrix([[1, 2], [3, 4]])
        m[2, 0] = 1

    for k in (load, store):
        with raises(IndexError, "Out of bound access to a ["):
            k()


@qd.dataclass
class Holder:
    m: qd.types.matrix(2, 2, qd.f32)


@pytest.mark.oracle_differs("takes the next row", run=False)
def test_constant_matrix_index_out_of_range(backend):
    mat2 = qd.types.matrix(2, 2, F32)
    field, holders = qd.Matrix.field(2, 2, F32, 3), Holder.field(shape=3)
    array = qd.Matrix.ndarray(2, 2, F32, 3)
    matrix = mat2([[1, 2], [3, 4]])

    @qd.kernel
    def of_variable(a: qd.types.ndarray(mat2, 1), p: mat2) -> F32:
        m = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
        return m[0, 2]

    @qd.kernel
    def of_argument(a: qd.types.ndarray(mat2, 1), p: mat2) -> F32:
        return p[0, 2]

    @qd.kernel
    def of_field(a: qd.types.ndarray(mat2, 1), p: mat2):
        field[1][0, 2] = 3

    @qd.kernel
    def of_array(a: qd.types.ndarray(mat2, 1), p: mat2):
        a[1][0, 2] += 3

    @qd.kernel
    def of_member(a: qd.types.ndarray(mat2, 1), p: mat2) -> F32:
        return holders[0].m[0, 2]

    @qd.kernel
    def of_value(a: qd.types.ndarray(mat2, 1), p: mat2) -> F32:
        return (p + a[0])[0, 2]

    @qd.kernel
    def in_a_static_loop(a: qd.types.ndarray(mat2, 1), p: mat2) -> F32:
        total = 0.0
        for k in qd.static(range(3)):
            total += a[0][0, k]
        return total

    @qd.kernel
    def below_the_last_row(a: qd.types.ndarray(mat2, 1), p: mat2) -> F32:
        return p[2, 1]

    @qd.kernel
    def in_any_row(a: qd.types.ndarray(mat2, 1), p: mat2) -> F32:
        i = 1 if p[0, 0] > 0 else 0
        return p[i, 2]

    written = {below_the_last_row: "2, 1", in_any_row: "?, 2"}
    for k in (of_variable, of_argument, of_field, of_array, of_member, of_value, in_a_static_loop,
              below_the_last_row, in_any_row):  # fmt: skip
        text = f"Out of bound access to a [2, 2] matrix with index [{written.get(k, '0, 2')}]"
        with raises(IndexError, text, "indices go from 0, 0 to 2 - 1, 2 - 1"):
            k(array, matrix)


def test_constant_index_out_of_range_in_a_dead_branch(backend):
    @qd.kernel
    def k(n: qd.template(), p: qd.types.matrix(2, 2, F32)) -> F32:
        x = p[1, 1]
        if n > 2:
            x = p[0, 2]
        return x

    assert k(2, qd.Matrix([[1.0, 2.0], [3.0, 4.0]])) == 4


def test_fields_are_no_operands(backend):
    f = qd.field(qd.i32, 3)

    @qd.kernel
    def k():
        a = f * 3

    with raises(
        qd.QuadrantsTypeError, "unsupported operand type(s) for *: 'ScalarField' and 'int'"
    ):
        k()


def test_assert_without_a_message_shows_its_condition(debug_backend):
    @qd.kernel
    def k(x: qd.i32):
        assert x + 1 > 5

    k(5)
    with raises(qd.QuadrantsAssertionError, "x + 1 > 5"):
        k(1)


def test_negative_exponent_keeps_its_class(backend):
    @qd.kernel
    def k(n: qd.i32) -> qd.i32:
        return n**-2

    with raises(qd.QuadrantsRuntimeError, "Negative exponent in pow(int, int) is not allowed."):
        k(2)


def test_gradient_that_does_not_exist(backend):
    @qd.func
    def gradient(x: qd.template()):
        return x.grad[0]

    @qd.kernel
    def k(x: qd.types.ndarray()) -> F32:
        return gradient(x)

    assert k(qd.ndarray(F32, 3, needs_grad=True)) == 0
    with raises(qd.QuadrantsCompilationError, "the array has no gradient"):
        k(qd.ndarray(F32, 3))


def test_element_of_a_two_dimensional_vector_field(backend):
    f = qd.Vector.field(2, F32, (2, 3))
    f[1, 2] = [3, 4]
    assert f[1, 2].to_list() == [3, 4] and f[1, 2][1] == 4


def test_members_of_dataclass_arguments_are_immutable(backend):
    @dataclasses.dataclass
    class Arguments:
        x: qd.types.ndarray(F32, 1)
        y: F32

    @qd.kernel
    def k(a: Arguments):
        a.y = 3

    @qd.kernel
    def augmented(a: Arguments):
        a.y += 3

    @qd.kernel
    def divided(a: Arguments):
        a.y /= 3

    for f in (k, augmented, divided):
        with raises(qd.QuadrantsSyntaxError, "is immutable in the kernel"):
            f(Arguments(qd.ndarray(F32, 2), 1.0))


def test_kernel_argument_is_no_target_through_a_template(backend):
    @qd.func
    def add(x: qd.template()):
        x = x + 5

    @qd.kernel
    def k(x: qd.i32):
        add(x)

    with raises(qd.QuadrantsSyntaxError, "cannot use a non-writable target"):
        k(3)


def test_typed_bounds_warn(backend):
    @qd.kernel
    def k() -> qd.i32:
        s = 0
        for i in range(qd.i64(5)):
            s += i
        return s

    with pytest.warns(Warning, match="Casting range_for boundary values from i64 to i32"):
        assert k() == 10


def test_too_many_arguments_names_the_parameters(backend):
    @qd.kernel
    def k(a: qd.i32, b: qd.i32):
        pass

    with raises(qd.QuadrantsSyntaxError, "Expected (a : i32, b : i32), got (1, 2, 3)."):
        k(1, 2, 3)


@pytest.mark.parametrize("dtype", [qd.i8, qd.u8, qd.i64, qd.u64])
def test_overflow_of_every_width(debug_backend, capfd, dtype):
    bits, signed = {qd.i8: (8, 1), qd.u8: (8, 0), qd.i64: (64, 1), qd.u64: (64, 0)}[dtype]
    largest = 2 ** (bits - signed) - 1

    @qd.kernel
    def k(a: dtype, b: dtype, out: qd.types.ndarray(dtype, 1)):
        out[0] = a + b
        out[1] = a * b

    out = qd.ndarray(dtype, 2)
    if dtype is not qd.u64:
        k(largest, 2, out)
        qd.sync()
        text = capfd.readouterr().out
        assert "Addition overflow detected in File" in text
        assert "Multiplication overflow detected in File" in text
    k(3, 4, out)
    qd.sync()
    assert "overflow" not in capfd.readouterr().out
    assert out.to_numpy().tolist() == [7, 12]


def test_numpy_scalars_and_small_integers(backend):
    @qd.kernel
    def k(x: qd.u8, y: F32) -> F32:
        return x + y

    assert k(256, np.float64(2.5)) == 2.5
    assert k(np.int64(7), np.int32(3)) == 10
