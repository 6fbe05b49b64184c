"""What Python code does to fields counts as small kernels: files in the cache (chapter 51, 2.1), print_accessor_ir."""

import os
import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd

F = np.float32


def scalar(**options):
    return qd.field(qd.f32, 4, **options)


def vectors():
    return qd.Vector.field(3, qd.f32, 4)


def structs():
    return qd.Struct.field({"a": qd.f32, "v": qd.types.vector(3, qd.f32)}, shape=4)


def arrays():
    return qd.ndarray(qd.f32, 4)


def pair():
    return scalar(), scalar()


def loop(x):
    for i in range(4):
        x[i] = x[i] + i


@qd.kernel
def copy(to: qd.template(), of: qd.template()):
    for i in to:
        to[i] = of[i] + 1


# What is made, what is done to it, and how many kernels that is.
ACTIONS = {
    "nothing": (scalar, lambda x: None, 0),
    "write": (scalar, lambda x: x.__setitem__(1, 2), 1),
    "read": (scalar, lambda x: x[1], 1),
    "read and write": (scalar, loop, 2),
    "both fields": (pair, lambda p: [loop(x) for x in p], 4),
    "gradient": (lambda: scalar(needs_grad=True).grad, loop, 2),
    "write of a vector": (vectors, lambda v: v.__setitem__(1, [1, 2, 3]), 3),
    "write of a component": (vectors, lambda v: setattr(v[1], "y", 2), 1),
    "a vector that nobody looks at": (vectors, lambda v: v[1], 0),
    "read of a component": (vectors, lambda v: v[1][2], 1),
    "read of a vector": (vectors, lambda v: v[1].to_list(), 3),
    "read of a component as a field": (vectors, lambda v: (v.get_scalar_field(1)[0], v[0].y), 1),
    "a member's write": (structs, lambda s: setattr(s[1], "a", 2), 1),
    "a member's read": (structs, lambda s: s[1].a, 1),
    "a member's component": (structs, lambda s: s[1].v[2], 1),
    "equal fills": (scalar, lambda x: (x.fill(1), x.fill(1)), 1),
    "other fills": (scalar, lambda x: (x.fill(1), x.fill(2)), 1),
    "fills of two": (pair, lambda p: [x.fill(1) for x in p], 2),
    "fill of vectors": (vectors, lambda v: v.fill(1), 1),
    "fill of structs": (structs, lambda s: s.fill(1), 2),
    "to_numpy": (scalar, lambda x: (x.to_numpy(), x.to_numpy()), 1),
    "to_numpy without a copy": (scalar, lambda x: x.to_numpy(copy=False), 0),
    "from_numpy": (vectors, lambda v: v.from_numpy(np.ones((4, 3), F)), 1),
    "structs to_numpy": (structs, lambda s: s.to_numpy(), 2),
    "copy_from": (pair, lambda p: p[0].copy_from(p[1]), 1),
    "elements of arrays": (arrays, lambda a: (a.__setitem__(0, 1), a[0]), 0),
    "fill of an array": (arrays, lambda a: a.fill(1), 0),
    "array to_numpy": (arrays, lambda a: a.to_numpy(), 1),
    "arrays of one kind": (lambda: (arrays(), qd.ndarray(qd.f32, 9)), lambda p: [a.to_numpy() for a in p], 1),
    "arrays of two kinds": (lambda: (arrays(), qd.ndarray(qd.f32, (2, 2))), lambda p: [a.to_numpy() for a in p], 2),
    # Code knows layouts, not places: one file serves all fields of one layout. (The established package
    # has one for each field that a kernel is called with; chapter 51 leaves the number open.)
    "a kernel over fields of one layout": (pair, lambda p: (copy(*p), copy(*reversed(p))), 1),
    "a kernel over fields of two layouts": (
        lambda: (*pair(), qd.field(qd.f32, 8)), lambda t: (copy(t[0], t[1]), copy(t[0], t[2])), 2),
    "a kernel over fields at another place": (
        lambda: (*pair(), vectors(), *pair()), lambda t: (copy(*t[:2]), copy(*t[3:])), 1),
}  # fmt: skip


def files(path):
    folder = path / "kernel_compilation_manager"
    names = [f.name for f in folder.iterdir()] if folder.exists() else []
    return sum(name.endswith(".qdc") for name in names)


def run(path, make, use, **options):
    qd.init(arch=qd.cpu, offline_cache_file_path=str(path), **options)
    use(make())
    assert files(path) == 0 or (path / "again").exists()
    qd.reset()


@pytest.mark.parametrize("name", ACTIONS)
def test_files(tmp_path, name):
    make, use, count = ACTIONS[name]
    run(tmp_path, make, use)
    assert files(tmp_path) == count
    (tmp_path / "again").touch()
    run(tmp_path, make, use)  # the same once more
    assert files(tmp_path) == count


def test_without_the_cache(tmp_path):
    run(tmp_path, scalar, loop, offline_cache=False)
    assert files(tmp_path) == 0


def test_other_fields_and_options_are_others(tmp_path):
    run(tmp_path, scalar, loop)
    (tmp_path / "again").touch()
    run(tmp_path, lambda: qd.field(qd.i32, 4), loop)
    assert files(tmp_path) == 4
    run(tmp_path, lambda: qd.field(qd.f32, 5), loop)
    assert files(tmp_path) == 6
    run(tmp_path, scalar, loop, debug=True)
    assert files(tmp_path) == 8
    run(tmp_path, lambda: pair()[1], loop)  # another place in the tree
    assert files(tmp_path) == 10


def test_damaged_ones_come_again(tmp_path):
    run(tmp_path, scalar, loop)
    (tmp_path / "again").touch()
    (one, two) = sorted((tmp_path / "kernel_compilation_manager").glob("*.qdc"))
    content = one.read_bytes()
    one.write_bytes(content[:-3])
    two.unlink()
    run(tmp_path, scalar, loop)
    assert files(tmp_path) == 2 and one.read_bytes() == content


def test_use_counts(tmp_path):
    """A full cache evicts what was used longest ago, accessors too."""
    run(tmp_path, scalar, lambda x: x[1])
    (tmp_path / "again").touch()
    run(tmp_path, vectors, lambda v: v[1].to_list())
    folder = tmp_path / "kernel_compilation_manager"
    for n, file in enumerate(sorted(folder.glob("*.qdc"))):
        os.utime(file, (1000 + n, 1000 + n))
    run(tmp_path, scalar, lambda x: x[1])  # there: looked at, not written
    used = max(folder.glob("*.qdc"), key=lambda f: f.stat().st_atime)
    assert used.stat().st_mtime < 2000 < used.stat().st_atime
    run(tmp_path, arrays, lambda a: a.to_numpy(),
        offline_cache_max_size_of_files=1, offline_cache_cleaning_factor=0.75)  # fmt: skip
    assert used.exists() and files(tmp_path) == 2


PROGRAM = """
import quadrants as qd
qd.init(arch=qd.cpu, print_ir=True, print_accessor_ir={shown}, offline_cache=False)
x, v = qd.field(qd.f32, shape=(4, 2)), qd.Matrix.field(2, 2, qd.i32, shape=3, offset=-1)
x[1, 1] = 3
x[1, 1]
v[0][1, 0] = 7
v[0][1, 0]
"""


@pytest.mark.parametrize("shown", [True, False])
def test_print_accessor_ir(shown):
    program = [sys.executable, "-c", PROGRAM.format(shown=shown)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Initial IR:") == (4 if shown else 0)
    for what in ("snode_writer_", "snode_reader_"):
        assert (what in done.stderr) == shown
    for line in ("= argload[2]", ": global store [$3 <- $2]", "index [$0, $1]"):
        assert (line in done.stdout) == shown
