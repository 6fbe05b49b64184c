"""Rows of chapter 20 that fresh eyes found short: fills, axes, signatures, nodes, refusals."""

import inspect

import numpy as np
import pytest

import quadrants as qd


@pytest.mark.parametrize("value", [0.5, float("nan"), -0.25, np.float32(0.5), True, 3])
def test_fractions_are_true(backend, value):
    for made in (qd.field(qd.u1, 3), qd.ndarray(qd.u1, 3), qd.Vector.field(2, qd.u1, 3)):
        made.fill(value)
        assert made.to_numpy().all()
        made.fill(0.0)
        assert not made.to_numpy().any()
    vectors = qd.Vector.ndarray(2, qd.u1, 3)
    vectors.fill([value, 0])
    assert vectors.to_numpy().tolist() == [[True, False]] * 3


def test_an_axis_twice_in_one_node(backend):
    line, plane = qd.field(qd.i32), qd.field(qd.i32)
    node = qd.root.dense(qd.i + qd.i, (2, 3))
    node.place(line)
    qd.root.dense(qd.i + qd.j + qd.i, (2, 3, 2)).place(plane)
    line[5] = 1
    plane[3, 2] = 2
    assert line.shape == node.shape == line.to_numpy().shape == (6,)
    assert plane.shape == plane.to_numpy().shape == (4, 3)
    assert line.to_numpy().tolist() == [0] * 5 + [1]


def test_fields_of_types_take_their_layout(backend):
    vec3, mat3 = qd.types.vector(3, qd.f32), qd.types.matrix(3, 3, qd.f32)
    fields = (
        qd.field(vec3, shape=4, layout=qd.Layout.SOA),
        qd.field(vec3, 4, None, "", None, False, False, qd.Layout.SOA),
        qd.field(mat3, 4, layout=qd.Layout.SOA, needs_grad=True),
        qd.field(mat3, shape=4, ndim=2),
    )
    for field in fields:
        field[1] = np.arange(9).reshape(3, 3) if field.m > 1 else [1, 2, 3]
        assert field.shape == (4,) and field.to_numpy()[1].sum() in (6, 36)
    apart = [
        field.get_scalar_field(*at).parent() for field, at in ((fields[0], (0,)), (fields[0], (1,)))
    ]
    assert apart[0] != apart[1]
    with pytest.raises(TypeError, match="unexpected keyword argument 'layout'"):
        qd.field(qd.f32, 3, layout=qd.Layout.SOA)
    with pytest.raises(TypeError, match="from 1 to 7 positional arguments but 8"):
        qd.field(qd.f32, 3, None, "", None, False, False, qd.Layout.SOA)
    with pytest.raises(TypeError, match="positional arguments but 10"):
        qd.field(mat3, 3, None, "", None, False, False, qd.Layout.SOA, 2, 1)


def test_single_elements_have_a_node_without_axes(backend):
    declared, with_grad = qd.field(qd.f32, ()), qd.field(qd.f32, (), needs_grad=True)
    placed, beside = qd.field(qd.f32), qd.field(qd.f32)
    qd.root.place(placed, beside)
    unplaced = qd.field(qd.f32)
    assert unplaced.parent() is None
    qd.root.dense(qd.i, 2).place(unplaced)
    declared[None] = 3
    for field in (declared, with_grad, placed, beside):
        assert str(field.snode) == "qd.root => dense [] => place []"
        assert field.parent() != qd.root and field.parent(2) == qd.root
        assert field.parent()._snode.ptr.get_num_ch() == 1
        assert field.parent().shape == field.shape == ()
    assert placed.parent() != beside.parent()
    with pytest.raises(RuntimeError):
        qd.root.place(placed)  # is placed; no empty node is left

    @qd.kernel
    def add(x: qd.template()):
        x[None] += declared[None]
        for i in range(4):
            x[None] += i

    for field in (with_grad, placed, beside):
        add(field)
        assert field[None] == 9


def test_unpacked_vectors_are_members_alone(backend):
    unpacked = qd.types.vector(3, qd.f32, unpacked=True)

    @qd.kernel
    def make():
        unpacked(1.0)

    with pytest.raises(qd.QuadrantsSyntaxError, match=r"unpacked=True.*@qd\.dataclass"):
        make()
    for decorate in (qd.kernel, qd.func, qd.real_func):
        with pytest.raises(
            qd.QuadrantsSyntaxError, match=r"cannot return a vector .*unpacked=True"
        ):

            @decorate
            def give() -> unpacked:
                return qd.Vector([1.0, 2.0, 3.0])


def test_tensors_of_other_elements_are_refused(backend):
    scalar, vector, matrix = (
        qd.ndarray(qd.f32, 2), qd.Vector.ndarray(2, qd.f32, 2), qd.Matrix.ndarray(2, 2, qd.f32, 2)
    )  # fmt: skip
    for impl in (scalar, matrix, qd.field(qd.f32, 2)):
        with pytest.raises(TypeError, match="VectorTensor requires a vector-element impl; got"):
            qd.VectorTensor(impl)
    for impl in (scalar, vector, qd.Vector.field(2, qd.f32, 2)):
        with pytest.raises(TypeError, match="MatrixTensor requires a matrix-element impl; got"):
            qd.MatrixTensor(impl)
    assert qd.VectorTensor(vector).element_shape == (2,)
    assert qd.MatrixTensor(qd.Matrix.field(2, 2, qd.f32, 2)).element_shape == (2, 2)


def test_members_of_no_type():
    local = "f32"
    with pytest.raises(ValueError, match="Invalid data type nonsense"):

        @qd.dataclass
        class Unknown:
            a: "nonsense"  # noqa: F821

    with pytest.raises(ValueError):

        @qd.dataclass
        class Text:
            a: local


def test_order_may_be_a_list(backend):
    field = qd.field(qd.i32, (2, 3), order=["j", "i"])
    field[1, 2] = 4
    assert field.layout == (1, 0) and field.to_numpy()[1, 2] == 4


def test_vectors_of_any_items():
    assert qd.math.vec3(range(3)).to_list() == [0.0, 1.0, 2.0]
    assert qd.math.vec3(2).to_list() == [2.0] * 3


def test_signatures_and_numbers():
    names = "members methods shape name offset needs_grad needs_dual layout"
    assert list(inspect.signature(qd.Struct.field).parameters) == names.split()
    assert qd.types.ndarray().boundary == 0
    assert int(qd.types.ndarray(boundary="clamp").boundary) == 1


def test_meshes_without_positions(tmp_path):
    from quadrants.tools import PLYWriter

    for count in (0, -1):
        with pytest.raises(AssertionError, match="num_vertices should be greater than 0"):
            PLYWriter(count)
    writer = PLYWriter(2)
    for export in (writer.export, writer.export_ascii):
        with pytest.raises(AssertionError, match="vertex pos channel is missing"):
            export(str(tmp_path / "out.ply"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "dt, name", [(qd.i32, "int32"), (qd.u8, "uint8"), (qd.u64, "uint64"), (qd.i64, "int64")]
)
def test_components_that_do_not_fit(backend, dt, name):
    @qd.kernel
    def first(v: qd.types.vector(2, dt)) -> dt:
        return v[0]

    bits = int(name.lstrip("uint"))
    low, high = (0, 2**bits) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    for good in (low, high - 1, 3):
        assert first([good, 1]) == good
    for wrong in (low - 1, high, 2**70):
        with pytest.raises(OverflowError, match=f"Python integer {wrong} out of bounds for {name}"):
            first([wrong, 1])
    if bits < 64:
        with pytest.raises(OverflowError):
            first(np.array([high, 1]))
        with pytest.raises(OverflowError):
            first((np.int64(high), 1))
    assert first([3, 1]) == 3


# --- chapters 10 and 30 -----------------------------------------------------------------------------


def test_extremes_and_choices_of_constants_are_promoted(backend, capfd):
    @qd.kernel
    def larger(a: qd.template()) -> qd.f32:
        y = qd.max(a, 0.5)
        y *= 1.5
        return y

    @qd.kernel
    def smaller() -> qd.f32:
        y = min(1, 2.5)
        y += 0.5
        return y

    @qd.kernel
    def chosen() -> qd.f32:
        x = qd.select(1, 2, 3.5)
        x += 0.5
        return x

    @qd.kernel
    def shown():
        print(min(1, 2.5), max(3, 2.5), qd.select(1, 2, 3.5), min(1, 2), max(True, 3), min(True, 3))

    @qd.kernel
    def sizes() -> qd.i32:
        s = 0
        for i in range(min(3, 5)):
            s += i
        for i in qd.static(range(max(2, 1))):
            s += 10 * i
        return s + qd.static(max(2, 0.5)) * 100

    assert (larger(3), smaller(), chosen(), sizes()) == (4.5, 1.5, 2.5, 213)
    shown()
    qd.sync()
    assert capfd.readouterr().out.splitlines()[-1] == "1.000000 3.000000 2.000000 1 3 1"


def test_slices_without_elements(backend, capfd):
    @qd.kernel
    def run(n: qd.template()):
        print(qd.Vector([1, 2, 3])[:n], len(qd.Vector([1, 2, 3])[5:]))

    run(0)
    run(2)
    qd.sync()
    assert capfd.readouterr().out.splitlines()[-2:] == ["[] 0", "[1, 2] 0"]


@pytest.mark.parametrize("whole", [False, True])
def test_lists_with_indices_of_run_time(backend, whole):
    backend.init(print_full_traceback=whole)

    @qd.kernel
    def run() -> qd.i32:
        a = [1, 2, 3]
        s = 0
        for i in range(3):
            s += a[i]
        return s

    with pytest.raises(TypeError, match="list indices"):
        run()


def test_vectors_and_texts(backend):
    v = qd.Vector([1, 2])
    assert (v == "x").to_list() == [False, False] and (v != "x").to_list() == [True, True]
    with pytest.raises(qd.QuadrantsCompilationError, match="not an integer: 2.5 of type float"):
        qd.Matrix.diag(2.5, 1)


def test_variables_are_annotated_with_dtypes(backend):
    @qd.kernel
    def run():
        x: qd.types.vector(2, qd.f32) = [1, 2]

    with pytest.raises(qd.QuadrantsTypeError, match="Invalid constant scalar data type"):
        run()


# --- chapters 40, 41, 50, 51 and 60 -----------------------------------------------------------------


def test_what_fails_is_not_the_fastest(backend):
    @qd.perf_dispatch(get_geometry_hash=lambda x: 0)
    def either(x): ...

    @either.register
    def fails(x):
        raise ValueError("unsupported here")

    @either.register
    def works(x):
        return 1

    seen = ""
    for _ in range(20):
        try:
            either(1)
            seen += "w"
        except ValueError:
            seen += "f"
    assert seen == "fwfw" + 16 * "w"
    assert next(iter(inspect.signature(either.register).parameters)) == "implementation"


@pytest.mark.parametrize("options", [{"check_out_of_bound": True}, {"debug": True}], ids=str)
def test_elements_out_of_bounds_are_refused(backend, options):
    backend.init(**options)
    f, g = qd.field(qd.f32, (3, 4)), qd.field(qd.f32, (3, 4))
    g.fill(5)
    for key in ((3, 0), (0, 4), (-1, 0), (4, 3)):
        with pytest.raises(AssertionError, match="Accessing field"):
            f[key]
        with pytest.raises(AssertionError, match="Accessing field"):
            f[key] = 99.0
    assert (g.to_numpy() == 5).all() and not f.to_numpy().any()


def test_boxes_inside_loops_have_gradients(backend):
    x, y = (qd.field(qd.f32, 4, needs_grad=True) for _ in range(2))

    @qd.kernel
    def linear():
        for i in x:
            for j, m in qd.ndrange(3, 2):
                y[i] += x[i] * x[i] * j

    @qd.kernel
    def carried():
        for i in x:
            s = x[i]
            for j, m in qd.ndrange(2, 2):
                s = s * s * 0.5
            y[i] += s

    @qd.kernel
    def plain():
        for i in x:
            for j in range(i):
                y[i] += x[i] * j

    @qd.kernel
    def cells():
        for i in x:
            for j in x:
                y[i] += x[j]

    x.fill(2)
    for kernel, slope in ((linear, 24.0), (carried, 16.0)):
        x.grad.fill(0)
        y.grad.fill(1)
        kernel.grad()
        np.testing.assert_allclose(x.grad.to_numpy(), slope, rtol=1e-6)
    with pytest.raises(qd.QuadrantsCompilationError, match="non static range"):
        plain.grad()
    with pytest.raises(RuntimeError, match="loop over a field inside another loop"):
        cells.grad()


def test_halves_of_an_array_have_gradients(backend):
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no f64")

    def make(trips, apart):
        @qd.kernel
        def square(a: qd.types.ndarray()):
            for i in range(trips):
                a[i + apart] = a[i] * a[i]

        return square

    a = qd.ndarray(qd.f64, 8, needs_grad=True)
    for trips, apart in ((3, 3), (3, 5), (1, 1)):
        a.from_numpy(np.arange(1, 9.0))
        square = make(trips, apart)
        square(a)
        a.grad.fill(1)
        square.grad(a)
        expected = [
            1 + 2 * (i + 1) if i < trips else float(not apart <= i < apart + trips)
            for i in range(8)
        ]
        assert a.grad.to_numpy().tolist() == expected
    with pytest.raises(RuntimeError, match="Cross-iteration read-after-write"):
        make(4, 3).grad(a)


@pytest.mark.parametrize("name", ["popcnt", "clz", "ffs"])
def test_counts_of_bits_are_not_differentiated(backend, name):
    x, y = qd.field(qd.f32, 4, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)
    count = getattr(qd.math, name)

    def make():
        @qd.kernel
        def weigh():
            for i in range(4):
                y[None] += x[i] * count(i)

        return weigh

    with pytest.raises(RuntimeError, match="Not supported"):
        make().grad()
    backend.init(ad_general_control=True)
    x, y = qd.field(qd.f32, 4, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)
    y.grad.fill(1)
    make().grad()
    assert x.grad.to_numpy()[2] == {"popcnt": 1, "clz": 30, "ffs": 2}[name]


def test_keywords_of_loops_stand_there(backend):
    options = {"block_dim": 32}

    @qd.kernel
    def run():
        qd.loop_config(**options)
        for _ in range(4):
            pass

    with pytest.raises(qd.QuadrantsCompilationError, match=r"no \*\*dict"):
        run()


def test_integer_members_have_no_gradients(backend):
    with pytest.raises(
        qd.QuadrantsRuntimeError, match="i32 is not supported for field with `needs_grad=True`"
    ):
        qd.Vector.field(2, [qd.f32, qd.i32], (), needs_grad=True)


def test_calls_of_tapes_have_their_arguments_in_order(backend):
    x, y = (qd.field(qd.f32, (), needs_grad=True) for _ in range(2))

    @qd.kernel
    def scale(a: qd.f32, c: qd.f32):
        y[None] += x[None] * a * c

    with qd.ad.Tape(y) as tape:
        scale(2.0, c=3.0)
        scale(c=1.0, a=4.0)
    assert [call[1] for call in tape.calls] == [(2.0, 3.0), (4.0, 1.0)]
    assert x.grad[None] == 10


def test_threads_that_call_first_compile_once(backend):
    import threading

    backend.init(offline_cache=False)

    @qd.kernel
    def sevenfold(n: qd.i32) -> qd.i32:
        return n * 7

    before = qd.lang.impl.get_runtime().get_num_compiled_functions()
    barrier, results = threading.Barrier(8), []

    def run(n):
        barrier.wait()
        results.append((n, sevenfold(n)))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(results) == [(n, 7 * n) for n in range(8)]
    assert qd.lang.impl.get_runtime().get_num_compiled_functions() == before + 1
    assert len(sevenfold._primal.materialized_kernels) == 1


def test_small_promises(backend):
    runtime = qd.lang.impl.get_runtime()
    capability = qd._lib.core.DeviceCapability.spirv_has_shader_clock
    assert runtime.prog.get_device_caps().get(capability) == 0
    for f, names in (
        (qd.checkpoint, ("cp_id", "yield_on")),
        (qd.lang.impl.get_max_shared_memory_bytes, ("is_lowerbound_ok",)),
    ):
        for name in names:
            assert inspect.signature(f).parameters[name].default is inspect.Parameter.empty
    supported = qd.lang.misc.is_extension_supported
    assert supported(qd.amdgpu, qd.extension.adstack) and supported(qd.vulkan, qd.extension.adstack)
    assert not supported(qd.metal, qd.extension.data64)
    with pytest.raises(Exception, match="require_version should be formatted"):
        backend.init(require_version="1.3.")
    backend.init(require_version="1.3.0")
    qd.reset()
    with pytest.raises(qd.QuadrantsRuntimeError):
        qd.deactivate_all_snodes()
