"""`qd.tools` and `qd.profiler`."""

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


def test_profiler_is_off(capfd):
    p = qd.profiler
    assert p.query_kernel_profiler_info("k") is None and p.get_kernel_profiler_total_time() == 0.0
    p.print_kernel_profiler_info()
    err = capfd.readouterr().err
    assert err.count("use 'qd.init(kernel_profiler = True)' to turn on KernelProfiler.") == 3
    with pytest.raises(ValueError):
        p.print_kernel_profiler_info("other")
    assert p.get_predefined_cupti_metrics("unknown") is None
    assert p.CuptiMetric("a", scale=2.0).scale == 2.0
