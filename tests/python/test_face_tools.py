"""`qd.tools` and `qd.profiler`."""

import re

import numpy as np
import pytest

import quadrants as qd


def writer():
    w = qd.tools.PLYWriter(3, 1, comment="three points")
    w.add_vertex_pos(np.zeros(3), np.ones(3), np.arange(3))
    w.add_vertex_id()
    w.add_faces([0, 1, 2])
    w.add_face_piece()
    return w


def test_ply_leaves_out_channels_of_unknown_types(tmp_path, capsys):
    w = writer()
    w.add_vertex_channel("q", "zz", [1, 2, 3])
    w.add_face_channel("r", "yy", [1])
    out = capsys.readouterr().out.splitlines()
    assert out == [f"Unknown type {t} detected, skipping this channel" for t in ("zz", "yy")]
    w.export_ascii(str(tmp_path / "a.ply"))
    writer().export_ascii(str(tmp_path / "b.ply"))
    assert (tmp_path / "a.ply").read_text() == (tmp_path / "b.ply").read_text()


def test_ply(tmp_path):
    for path in ("mesh", "other.ply"):
        writer().export_frame_ascii(7, str(tmp_path / path))
    assert (tmp_path / "other_000007.ply").exists()
    lines = (tmp_path / "mesh_000007.ply").read_text().split("\n")
    header = lines[: lines.index("end_header") + 1]
    assert header[:4] == ["ply", "format ascii 1.0", "comment three points", "element vertex 3"]
    assert "property list uchar int vertex_indices" in header and "property int piece" in header
    body = [line.split() for line in lines[len(header) :] if line]
    assert body == [
        ["0.0", "1.0", "0.0", "0"],
        ["0.0", "1.0", "1.0", "1"],
        ["0.0", "1.0", "2.0", "2"],
    ] + [["3", "0", "1", "2", "1"]]
    writer().export(str(tmp_path / "b.ply"))
    data = (tmp_path / "b.ply").read_bytes().split(b"end_header\n")[1]
    assert len(data) == 3 * 16 + 1 + 3 * 4 + 4
    assert np.frombuffer(data[:16], "f4")[:3].tolist() == [0, 1, 0]
    with pytest.raises(AssertionError, match="needs 3 numbers"):
        writer().add_vertex_alpha([1, 2])


def test_ply_with_two_channels_of_one_name(tmp_path, capsys):
    w = writer()
    w.add_vertex_channel("id", "double", np.array([0.1, 0.2, 1 / 3]))
    w.add_face_channel("piece", "uchar", np.array([7]))
    keys = "id", "piece"
    warnings = [f"WARNING: duplicate key {key} detected" for key in keys]
    assert capsys.readouterr().out.splitlines() == warnings
    w.export_ascii(str(tmp_path / "a.ply"))
    header, body = (tmp_path / "a.ply").read_text().split("end_header\n")
    assert header.count("property int id\n") == header.count("property double id\n") == 1
    assert body.splitlines()[2:] == ["0.0 1.0 2.0 2 0.3333333333333333 ", "3 0 1 2 1 7 "]
    w.export(str(tmp_path / "b.ply"))
    header, body = (tmp_path / "b.ply").read_bytes().split(b"end_header\n")
    assert header.count(b" id\n") == header.count(b" piece\n") == 2
    vertex = np.frombuffer(body[48:72], [("pos", "<f4", 3), ("id", "<i4"), ("again", "<f8")])
    assert (vertex["id"], vertex["again"]) == (2, 1 / 3)
    assert body[72:] == bytes([3, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 7])


def test_ply_numbers_are_as_short_as_their_type_allows(tmp_path):
    w = qd.tools.PLYWriter(3)
    w.add_vertex_pos(np.array([0.1, 1e-7, 1e10]), np.arange(3) / 3, np.array([np.nan, np.inf, 2]))
    w.export_ascii(str(tmp_path / "a.ply"))
    body = (tmp_path / "a.ply").read_text().split("end_header\n")[1]
    assert body == "0.1 0.0 nan \n1e-07 0.33333334 inf \n1e+10 0.6666667 2.0 \n"


@pytest.mark.parametrize("corners", [[0, 1, 3], [0, 1, -1], None])
def test_ply_that_is_refused_leaves_no_file(tmp_path, corners):
    w = qd.tools.PLYWriter(3, 1)
    w.add_vertex_pos(np.zeros(3), np.zeros(3), np.zeros(3))
    if corners is not None:
        w.add_faces(np.array(corners))
    for export in w.export, w.export_ascii:
        with pytest.raises(AssertionError, match="The face indices are invalid"):
            export(str(tmp_path / "a.ply"))
    assert not list(tmp_path.iterdir())


def test_names_of_tools_and_linalg():
    for module in qd.tools, qd.linalg:
        names = dir(module)
        assert len(names) == len(set(names)) and set(module.__all__) <= set(names)
    assert {"PLYWriter", "write_vtk"} <= set(dir(qd.tools))


def test_profiler_is_off(capfd):
    qd.init(arch=qd.cpu)  # which lets warnings through
    p = qd.profiler
    assert p.query_kernel_profiler_info("k") is None and p.get_kernel_profiler_total_time() == 0.0
    p.print_kernel_profiler_info()
    err = capfd.readouterr().err
    assert err.count("use 'qd.init(kernel_profiler = True)' to turn on KernelProfiler.") == 3
    p.print_kernel_profiler_info("other")  # nothing is printed, so no mode is wrong
    assert "to turn on KernelProfiler." in capfd.readouterr().err
    assert p.get_predefined_cupti_metrics("unknown") is None
    assert p.CuptiMetric("a", scale=2.0).scale == 2.0


# --- kernel timings --------------------------------------------------------------------------------


@pytest.fixture
def profiled():
    """Two kernels of which the first, of two tasks, ran three times and the second once."""
    qd.init(arch=qd.cpu, kernel_profiler=True, offline_cache=False)
    f = qd.field(qd.f32, 100)

    @qd.kernel
    def fill_all():
        qd.loop_config(name="rows")
        for i in f:
            f[i] = i
        for i in range(10):
            f[i] += 1

    @qd.kernel
    def read_one(i: qd.i32) -> qd.f32:
        return f[i]

    for _ in range(3):
        fill_all()
    assert read_one(3) == 4
    yield fill_all
    qd.reset()


def test_profiled_tasks(profiled, capfd):
    p = qd.profiler
    fill, read = map(p.query_kernel_profiler_info, ("fill_all", "read_one"))
    assert (fill.counter, read.counter) == (3, 1)
    assert 0 < fill.min <= fill.avg <= fill.max
    assert p.query_kernel_profiler_info("nothing").counter == 0
    assert p.get_kernel_profiler_total_time() >= fill.avg * 3 / 1e3 * 0.99
    capfd.readouterr()
    p.query_kernel_profiler_info("")
    assert ".counter(3) != read_one_c" in capfd.readouterr().err
    p.print_kernel_profiler_info()
    counted = [line for line in capfd.readouterr().out.splitlines() if " ms] " in line]
    assert sorted(re.sub(r".*\] |_c\d+_\d+", "", line) for line in counted) == [
        "fill_all_kernel_0_rows_range_for",
        "fill_all_kernel_1_range_for",
        "read_one_kernel_0_serial",
    ]
    p.print_kernel_profiler_info("trace")
    assert "Number of records:  7" in capfd.readouterr().out
    p.clear_kernel_profiler_info()
    assert p.get_kernel_profiler_total_time() == 0
    profiled()
    assert p.query_kernel_profiler_info("fill_all").counter == 1
    with p.collect_kernel_profiler_metrics(p.get_predefined_cupti_metrics("global_access")):
        profiled()
    assert p.query_kernel_profiler_info("fill_all").counter == 0
    with p.collect_kernel_profiler_metrics() as kernels:
        profiled()
        assert kernels.query_info("fill_all").counter == 1 and kernels.get_total_time() > 0
        kernels.print_info(kernels.TRACE)
        assert "Number of records:" in capfd.readouterr().out
    assert kernels is p.kernel_profiler.get_default_kernel_profiler()
    assert kernels.get_kernel_profiler_mode()
    assert p.set_kernel_profiler_toolkit("cupti") is False
    with pytest.raises(ValueError):
        p.print_kernel_profiler_info("other")


def test_profiles_end_with_their_runtime(profiled):
    qd.init(arch=qd.cpu, kernel_profiler=True)
    assert qd.profiler.get_kernel_profiler_total_time() == 0
    qd.init(arch=qd.cpu)
    assert qd.profiler.query_kernel_profiler_info("fill_all") is None


def test_predefined_metrics():
    for (
        group
    ) in "global_access shared_access atomic_access cache_hit_rate device_utilization".split():
        metrics = qd.profiler.get_predefined_cupti_metrics(group)
        assert metrics and len({m.name for m in metrics}) == len({m.header for m in metrics})
        for m in metrics:
            assert "__" in m.name and len(m.header) == len(m.val_format.format(1234.5 * m.scale))
    assert qd.profiler.get_predefined_cupti_metrics("cache") is None


def test_other_profiles(profiled, capfd):
    qd.profiler.print_memory_profiler_info()
    assert "[Memory Profiler]" in capfd.readouterr().out
    qd.profiler.clear_scoped_profiler_info()
    qd.profiler.print_scoped_profiler_info()
    assert capfd.readouterr().out

    @qd.kernel
    def unseen() -> qd.i32:
        return 20261122

    assert unseen() == 20261122
    qd.profiler.print_scoped_profiler_info()
    rows = tree(capfd.readouterr().out)
    assert "[1 x" in rows["first calls", "trace"][1]
    assert "[1 x" in rows["compiler, all threads", "passes", "deserialise"][1]
    assert any(path[2:] == ("code generation",) for path in rows)
    for path, (ms, _) in rows.items():
        below = [rows[p][0] for p in rows if p[:-1] == path]
        assert not below or abs(sum(below) - ms) < 0.001 * (len(below) + 1)
    qd.profiler.clear_scoped_profiler_info()
    qd.profiler.print_scoped_profiler_info()
    assert "[1 x" not in capfd.readouterr().out


def tree(text):
    """Path -> (milliseconds, line) of the printed tree."""
    rows, path = {}, []
    for line in text.splitlines():
        found = re.match(r"( +)([\d.]+) ms +(?:[\d.]+%  )?(\[?[A-Za-z][^\[]*?) *(?:\[\d|$)", line)
        if found is None:
            continue
        depth = (len(line) - len(line.lstrip()) + len(found[2]) - 10) // 4
        path = [*path[: depth - 1], found[3]]
        rows[tuple(path)] = float(found[2]), line
    return rows
