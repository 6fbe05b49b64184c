"""Meshes: elements, attributes and relations, in kernels and on the host."""

import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd
from helpers import raises
from mesh_metadata import box, metadata, sheet

pytestmark = pytest.mark.usefixtures("backend")
ORDERS = ["verts", "edges", "faces", "cells"]
KINDS = {"tets": (box, (2, 2, 1)), "triangles": (sheet, (3, 2))}


def made(kind="tets", patches=3, seed=None, **attributes):
    """A mesh, its rows, its positions and the owners of its elements."""
    make, size = KINDS[kind]
    x, top = make(*size)
    patch_of = np.arange(len(top)) * patches // len(top)
    if seed is not None:
        np.random.default_rng(seed).shuffle(patch_of)
    data, rows, owner = metadata(x, top, patch_of)
    builder = qd.lang.mesh._TetMesh() if kind == "tets" else qd.lang.mesh._TriMesh()
    for name, members in attributes.items():
        getattr(builder, name).place(members)
    return builder.build(qd.Mesh.generate_meta(data)), rows, x, owner


def orders_of(kind):
    return ORDERS if kind == "tets" else ORDERS[:3]


# --- relations ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("patches", [1, 2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_every_relation(kind, patches):
    names = orders_of(kind)
    attributes = {name: {"count": qd.i32, "code": qd.i32} for name in names}
    mesh, rows, _, _ = made(kind, patches, seed=patches, **attributes)
    for a, b in itertools.product(range(len(names)), repeat=2):

        @qd.kernel
        def by_index():
            for e in getattr(mesh, names[a]):
                near = getattr(e, names[b])
                e.count = near.size
                code = 0
                for k in range(near.size):
                    code = code * 31 + near[k].id
                e.code = code

        @qd.kernel
        def by_loop():
            for e in getattr(mesh, names[a]):
                code = 0
                for other in getattr(e, names[b]):
                    code = code * 31 + other.id
                e.code = -code

        elements = getattr(mesh, names[a])
        codes = []
        for row in rows[a, b]:
            code = 0
            for k in row:
                code = (code * 31 + k) & 0xFFFFFFFF
            codes.append(code - (1 << 32) if code >> 31 else code)
        by_index()
        assert elements.count.to_numpy().tolist() == [len(row) for row in rows[a, b]]
        assert elements.code.to_numpy().tolist() == codes, (names[a], names[b])
        by_loop()
        assert (-elements.code.to_numpy()).tolist() == codes


def test_chains_of_relations():
    mesh, rows, _, _ = made(verts={"n": qd.i32}, cells={"n": qd.i32})

    @qd.kernel
    def walk():
        for v in mesh.verts:
            for c in v.cells:
                for f in c.faces:
                    v.n += f.verts[0].id + f.cells.size

    walk()
    faces = lambda v: (f for c in rows[0, 3][v] for f in rows[3, 2][c])
    want = [sum(rows[2, 0][f][0] + len(rows[2, 3][f]) for f in faces(v)) for v in range(18)]
    assert mesh.verts.n.to_numpy().tolist() == want


def test_rows_of_one_length_unroll():
    mesh, rows, _, _ = made(verts={"n": qd.i32}, faces={"n": qd.i32})

    @qd.kernel
    def count():
        for f in mesh.faces:
            for k in qd.static(range(f.verts.size)):
                f.verts[k].n += 1
            f.n = f.edges[2].id

    count()
    want = np.bincount(np.array(rows[2, 0]).ravel())
    assert mesh.verts.n.to_numpy().tolist() == want.tolist()
    assert mesh.faces.n.to_numpy().tolist() == [row[2] for row in rows[2, 1]]


# --- loops -------------------------------------------------------------------------------------------


def test_patches():
    mesh, _, _, owner = made(patches=4, seed=1, edges={"patch": qd.i32})

    @qd.kernel
    def note():
        for e in mesh.edges:
            e.patch = 10 + qd.mesh_patch_idx()

    note()
    assert (mesh.edges.patch.to_numpy() == owner[1] + 10).all()


def test_loops_that_are_no_tasks():
    mesh, _, _, _ = made(verts={"n": qd.i32})

    @qd.kernel
    def total(twice: qd.i32) -> qd.i32:
        t = 0
        if twice > 0:
            for v in mesh.verts:
                for w in mesh.verts:
                    if v.id == w.id:
                        continue
                    t += 1
        return t

    assert total(1) == 18 * 17 and total(0) == 0

    @qd.kernel
    def largest() -> qd.i32:
        most = 0
        for v in mesh.verts:
            qd.atomic_max(most, v.id)
        return most + len(mesh.edges)

    assert largest() == 17 + len(mesh.edges)


def test_elements_go_to_functions_and_variables():
    mesh, rows, _, _ = made(cells={"n": qd.i32}, verts={"n": qd.i32})

    @qd.func
    def corner(c, k):
        return c.verts[k].id

    @qd.func
    def mark(v: qd.template(), by):
        v.n += by

    @qd.kernel
    def walk():
        for c in mesh.cells:
            last = c.verts[0]
            for k in range(c.verts.size):
                if corner(c, k) > last.id:
                    last = c.verts[k]
            mark(last, 1)
            c.n = corner(c, 3)

    walk()
    want = np.bincount([max(row) for row in rows[3, 0]], minlength=18)
    assert mesh.verts.n.to_numpy().tolist() == want.tolist()
    assert mesh.cells.n.to_numpy().tolist() == [row[3] for row in rows[3, 0]]


def test_meshes_and_their_elements_are_templates():
    mesh, _, _, _ = made(verts={"n": qd.i32})
    other, _, _, _ = made("triangles", verts={"n": qd.i32})

    @qd.kernel
    def of_mesh(m: qd.template(), by: qd.i32):
        for v in m.verts:
            v.n = v.id * by

    @qd.kernel
    def of_elements(elements: qd.template()):
        for v in elements:
            v.n += v.edges.size

    @qd.data_oriented
    class Held:
        def __init__(self, mesh):
            self.mesh = mesh

        @qd.kernel
        def clear(self):
            for v in self.mesh.verts:
                v.n = -v.id

    for m in (mesh, other):
        of_mesh(m, 3)
        assert (m.verts.n.to_numpy() == 3 * np.arange(len(m.verts))).all()
        Held(m).clear()
        assert (m.verts.n.to_numpy() == -np.arange(len(m.verts))).all()
        of_elements(m.verts)
        assert m.verts.n.to_numpy().sum() == 2 * len(m.edges) - np.arange(len(m.verts)).sum()


# --- attributes --------------------------------------------------------------------------------------


def test_attributes_of_every_kind():
    Pair = qd.types.struct(a=qd.i32, b=qd.types.vector(2, qd.f32))
    members = {
        "x": qd.types.vector(3, qd.f32),
        "m": qd.types.matrix(2, 2, qd.f32),
        "p": Pair,
        "t": qd.i16,
        "w": float,
    }
    mesh, _, x, _ = made(patches=2, seed=3, verts=members)
    mesh.verts.x.from_numpy(mesh.get_position_as_numpy().astype(np.float32))
    assert (mesh.get_position_as_numpy() == x).all()
    assert mesh.verts.keys == list(members) and mesh.verts.get_member_field("w") is mesh.verts.w

    @qd.kernel
    def fill():
        for v in mesh.verts:
            v.x *= 2
            v.x.y = v.id
            v.m[0, 1] = v.id
            v.p.a = -v.id
            v.p.b = [v.id, 1]
            v.t = v.id - 40
            v.w = v.x.norm_sqr()

    fill()
    ids = np.arange(18)
    want = 2 * x
    want[:, 1] = ids
    assert (mesh.verts.x.to_numpy() == want).all()
    assert (mesh.verts.m.to_numpy()[:, 0, 1] == ids).all()
    assert (mesh.verts.p.a.to_numpy() == -ids).all()
    assert (mesh.verts.p.b.to_numpy() == np.stack([ids, np.ones(18)], 1)).all()
    assert (mesh.verts.t.to_numpy() == ids - 40).all()
    assert np.allclose(mesh.verts.w.to_numpy(), (want**2).sum(1))
    assert (mesh.verts.x[3].to_numpy() == want[3]).all()


def test_two_meshes_of_one_builder():
    x, top = box(1, 1, 1)
    meta = qd.Mesh.generate_meta(metadata(x, top, np.arange(6) // 3)[0])
    builder = qd.lang.mesh._TetMesh()
    builder.verts.place({"n": qd.i32}, reorder=True)
    one, two = builder.build(meta), builder.build(meta)
    assert isinstance(one, qd.MeshInstance) and len(one.verts) == 8 and len(one.cells) == 6

    @qd.kernel
    def across():
        qd.mesh_local(one.verts.n)
        for v in one.verts:
            v.n = v.id + 1
            two.verts.n[v.id] = v.id * 2

    across()
    assert one.verts.n.to_numpy().tolist() == list(range(1, 9))
    assert two.verts.n.to_numpy().tolist() == list(range(0, 16, 2))


def test_gradients_of_volumes():
    x, top = box(2, 1, 1)
    builder = qd.lang.mesh._TetMesh()
    builder.verts.place({"x": qd.types.vector(3, qd.f64)}, needs_grad=True)
    mesh = builder.build(qd.Mesh.generate_meta(metadata(x, top, np.arange(12) // 5)[0]))
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.func
    def edge(c, k: qd.template()):
        return c.verts[k].x - c.verts[0].x

    @qd.kernel
    def volume():
        for c in mesh.cells:
            sides = qd.Matrix.cols([edge(c, 1), edge(c, 2), edge(c, 3)])
            loss[None] += sides.determinant() ** 2 / 36

    start = x + 0.1 * np.sin(np.arange(x.size)).reshape(x.shape)

    def value(p):
        sides = np.stack([p[top[:, k]] - p[top[:, 0]] for k in (1, 2, 3)], 2)
        return (np.linalg.det(sides) ** 2).sum() / 36

    mesh.verts.x.from_numpy(start)
    with qd.ad.Tape(loss):
        volume()
    assert np.isclose(loss[None], value(start))
    grad = mesh.verts.x.grad.to_numpy()
    for at in np.ndindex(4, 3):
        step = np.zeros_like(start)
        step[at] = 1e-5
        slope = (value(start + step) - value(start - step)) / 2e-5
        assert np.isclose(grad[at], slope, rtol=1e-5, atol=1e-8)


# --- what users get wrong ----------------------------------------------------------------------------


def test_names_that_meshes_have_themselves():
    for name in (*ORDERS, "id", "keys", "_x"):
        with raises(qd.QuadrantsSyntaxError, "has been reserved"):
            qd.lang.mesh._TetMesh().verts.place({name: qd.i32})
    with raises(qd.QuadrantsTypeError, "takes a dict"):
        qd.lang.mesh._TetMesh().verts.place(3)


def test_a_build_that_fails_leaves_nothing():
    x, top = box(1, 1, 1)
    meta = qd.Mesh.generate_meta(metadata(x, top, np.arange(6) // 3)[0])
    for kind, needs_grad in (("f32", False), (None, False), (qd.i32, True)):
        builder = qd.lang.mesh._TetMesh()
        builder.verts.place({"a": kind}, needs_grad=needs_grad)
        with pytest.raises((ValueError, RuntimeError)):
            builder.build(meta)
    mesh, _, _, _ = made(verts={"n": qd.i32})

    @qd.kernel
    def count():
        for v in mesh.verts:
            v.n = len(v.cells) + len(mesh.verts) - v.cells.size

    count()
    assert (mesh.verts.n.to_numpy() == 18).all()


def test_wrong_use_in_kernels(monkeypatch):
    mesh, _, _, _ = made(verts={"n": qd.i32}, cells={"n": qd.i32})

    @qd.kernel
    def unknown():
        for v in mesh.verts:
            v.m = 1

    @qd.kernel
    def outside() -> qd.i32:
        return qd.mesh_patch_idx()

    @qd.kernel
    def too_far():
        for c in mesh.cells:
            c.n = c.verts[4].id

    @qd.kernel
    def crossed():
        for c in mesh.cells:
            a = c.verts[0]
            a = c.edges[0]
            c.n = a.id

    @qd.kernel
    def several():
        for v, w in mesh.verts:
            v.n = 1

    @qd.kernel
    def renamed():
        for v in mesh.verts:
            v.id = 1

    @qd.kernel
    def hinted():
        qd.mesh_local(3)

    @qd.kernel
    def of_relation():
        for v in mesh.verts:
            v.n = v.cells.length

    for use, kind, message in (
        (unknown, qd.QuadrantsCompilationError, "verts of this mesh have no 'm'"),
        (outside, qd.QuadrantsCompilationError, "only valid within mesh-for loops"),
        (too_far, qd.QuadrantsCompilationError, "none of number 4"),
        (crossed, qd.QuadrantsCompilationError, "the same order and mesh"),
        (several, qd.QuadrantsCompilationError, "Number of struct-for indices"),
        (renamed, qd.QuadrantsCompilationError, "target must be a variable"),
        (hinted, qd.QuadrantsCompilationError, "qd.mesh_local takes fields"),
        (of_relation, qd.QuadrantsCompilationError, "has no attribute 'length'"),
    ):
        with raises(kind, message):
            use()


def test_debug_mode_checks_rows(backend):
    backend.init(debug=True)
    mesh, rows, _, _ = made(verts={"n": qd.i32})

    @qd.kernel
    def read(k: qd.i32):
        for v in mesh.verts:
            v.n = v.cells[k].id

    least = min(map(len, rows[0, 3]))
    read(least - 1)
    assert mesh.verts.n.to_numpy().tolist() == [row[least - 1] for row in rows[0, 3]]
    with raises(AssertionError, "a relation of a mesh has no such element"):
        read(least)
        qd.sync()


def test_metadata_that_does_not_fit(tmp_path):
    x, top = box(1, 1, 1)

    def changed(change):
        data = metadata(x, top, np.arange(6) // 3)[0]
        change(data)
        return data

    def elements(name, value):
        return lambda data: data["elements"][0].update({name: value})

    def relation(k, name, value):
        return lambda data: data["relations"][k].update({name: value})

    with raises(KeyError, "num_patches"):
        qd.Mesh.generate_meta({})
    for change, message in (
        (lambda data: data["elements"][1].pop("l2g_mapping"), "l2g_mapping"),
        (relation(0, "value", "x"), "holds integers"),
        (elements("order", 4), "order of elements is 0 to 3"),
        (elements("owned_offsets", [0, 8]), "2 patches need 3 offsets"),
        (elements("owned_offsets", [0, 30, 8]), "a patch owns"),
        (elements("l2g_mapping", [0] * 15), "patch"),
        (relation(4, "value", [0]), "rows lie beyond"),
        (relation(4, "value", [99] * 100), "not the number of an element"),
        (relation(0, "offset", [0]), "an offset"),
        (lambda data: data["relations"].append({"from_order": 7, "to_order": 0}), "order"),
    ):
        with pytest.raises((KeyError, ValueError), match=message):
            qd.Mesh.generate_meta(changed(change))
    with raises(qd.QuadrantsTypeError, "build takes what qd.Mesh.load_meta"):
        qd.lang.mesh._TetMesh().build(None)
    flat = qd.lang.mesh._TriMesh()
    flat.cells.place({"n": qd.i32})
    with raises(qd.QuadrantsRuntimeError, "has no cells"):
        flat.build(qd.Mesh.generate_meta(metadata(*sheet(1, 1), [0, 0])[0]))
    path = tmp_path / "mesh.json"
    path.write_text(json.dumps(metadata(x, top, np.arange(6) // 3)[0]))
    assert qd.Mesh.load_meta(str(path)).num_elements[3] == 6
    path.write_text("{")
    with pytest.raises(ValueError):
        qd.Mesh.load_meta(str(path))
    with pytest.raises(OSError):
        qd.Mesh.load_meta(str(tmp_path / "none.json"))


# --- caches ------------------------------------------------------------------------------------------

PROGRAM = """
import sys
import numpy as np
import quadrants as qd
from mesh_metadata import box, metadata
qd.init(arch=qd.{target}, log_level="error", offline_cache_file_path=sys.argv[1])
x, top = box(int(sys.argv[2]), 1, 1)
data, rows, _ = metadata(x, top, np.arange(len(top)) // int(sys.argv[3]))
builder = qd.lang.mesh._TetMesh()
builder.verts.place({{"n": qd.i32}})
mesh = builder.build(qd.Mesh.generate_meta(data))

@qd.func
def count(v):
    n = 0
    for c in v.cells:
        n += c.faces[0].id
    return n

@qd.kernel
def walk():
    for v in mesh.verts:
        v.n = count(v)

walk()
want = [sum(rows[3, 2][c][0] for c in row) for row in rows[0, 3]]
assert mesh.verts.n.to_numpy().tolist() == want, (mesh.verts.n, want)
"""


def test_kernels_of_meshes_start_warm(backend, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(target=backend.name))

    def run(*args):
        env = {**os.environ, "QD_COMPILE_REPORT": "1"}
        env["PYTHONPATH"] = os.pathsep.join([*sys.path[:1], os.path.dirname(__file__), *sys.path])
        command = [sys.executable, str(program), str(tmp_path / "cache"), *map(str, args)]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stderr + done.stdout

    assert "walk" in run(2, 4)
    assert "cold" not in run(2, 4)
    assert "cold" in run(3, 6)  # another mesh
    assert "cold" in run(2, 100)  # one patch
    assert "cold" not in run(2, 4)


def test_attributes_that_another_mesh_has():
    @qd.kernel
    def ask(m: qd.template()):
        for v in m.verts:
            v.n = 5
            if qd.static(hasattr(v, "k")):
                v.n = 7
            if qd.static(hasattr(v, "cells")):
                v.n += 10

    with_k, _, _, _ = made(verts={"n": qd.i32, "k": qd.i32})
    without, _, _, _ = made(verts={"n": qd.i32})
    flat, _, _, _ = made("triangles", verts={"n": qd.i32})
    for mesh, expected in ((without, 15), (with_k, 17), (flat, 5), (without, 15)):
        ask(mesh)
        assert (mesh.verts.n.to_numpy() == expected).all()
