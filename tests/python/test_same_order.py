"""Sets of public objects have one order in every process: several processes that collect tests agree."""

import os
import subprocess
import sys

COLLECTED = """\
import pytest
import quadrants as qd
from quadrants.types import primitive_types

vectors = {qd.types.vector(n, dt) for n in (2, 3, None) for dt in (qd.f32, qd.i32, float, None)}
matrices = {qd.types.matrix(n, 2, qd.f64) for n in (1, 2, 3)}
structs = {qd.types.struct(**{name: qd.f32, "v": qd.types.vector(2, int)}) for name in "abcdefgh"}


@qd.dataclass
class Point:
    x: qd.f32
    y: qd.f32


def elements():
    qd.init(arch=qd.cpu)
    made = {qd.ndarray(t, 2).element_type for t in (qd.types.vector(3, qd.f32), qd.types.matrix(2, 2, qd.i8), qd.u8)}
    qd.reset()
    return made


SETS = {
    "dtypes": {qd.f16, qd.f32, qd.f64, qd.i8, qd.i16, qd.i32, qd.i64, qd.u1, qd.u8, qd.u16, qd.u32, qd.u64},
    "all": primitive_types.all_types,
    "integers": primitive_types.integer_types,
    "reals": primitive_types.real_types,
    "vectors": vectors,
    "matrices": matrices,
    "structs": structs | {Point},
    "elements": elements(),
    "archs": {qd.x64, qd.arm64, qd.cuda, qd.metal, qd.vulkan, qd.amdgpu, qd.python},
    "layouts": {qd.Layout.AOS, qd.Layout.SOA, qd.Layout.NULL},
    "backends": {qd.Backend.FIELD, qd.Backend.NDARRAY},
    "extensions": set(qd.extension),
    "formats": set(qd.Format),
    "axes": {*qd.ijkl},
    "quantised": {
        t
        for n in (3, 5, 7)
        for t in (
            qd.types.quant.int(n, n == 5),
            qd.types.quant.fixed(n, max_value=2.0),
            qd.types.quant.float(n - 1, n),
        )
    },
    "pairs": {(a, t) for a in (qd.x64, qd.arm64) for t in (qd.f32, qd.i64)},
}


def shown(t):
    if hasattr(t, "members"):
        return " ".join(t.members)
    if isinstance(t, tuple):
        return " ".join(map(str, t))
    return t.to_string() if hasattr(t, "to_string") else getattr(t, "__name__", str(t))


ROWS = [(name, item) for name, items in SETS.items() for item in items]


@pytest.mark.parametrize("row", ROWS, ids=[f"{name}-{shown(item)}" for name, item in ROWS])
def test_it(row):
    pass
"""


def collected(path, seed):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "-p",
            "no:cacheprovider",
            str(path),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_collections_agree(tmp_path):
    path = tmp_path / "test_collected.py"
    path.write_text(COLLECTED)
    first = collected(path, 1)
    assert len(first) > 140
    for seed in (2, 3):
        assert collected(path, seed) == first
