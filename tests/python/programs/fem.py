"""2-D triangle elasticity, corotated with polar decomposition and checked with svd."""

import numpy as np

import quadrants as qd

NX, NY, STEPS = 10, 5, 150
DT, MU, LAM, DENSITY = 2e-3, 200.0, 300.0, 1.0
VERTS, TRIS = (NX + 1) * (NY + 1), 2 * NX * NY
H = 1.0 / NX

pos = qd.Vector.field(2, qd.f32, VERTS)
vel = qd.Vector.field(2, qd.f32, VERTS)
force = qd.Vector.field(2, qd.f32, VERTS)
mass = qd.field(qd.f32, VERTS)
tri = qd.Vector.field(3, qd.i32, TRIS)
rest_inv = qd.Matrix.field(2, 2, qd.f32, TRIS)
area = qd.field(qd.f32, TRIS)


@qd.func
def vertex(i, j):
    return i * (NY + 1) + j


@qd.func
def edges(t):
    a, b, c = tri[t]
    return qd.Matrix.cols([pos[a] - pos[c], pos[b] - pos[c]])


@qd.kernel
def setup():
    for i, j in qd.ndrange(NX + 1, NY + 1):
        pos[vertex(i, j)] = [i * H, 0.5 + j * H]
    for i, j in qd.ndrange(NX, NY):
        k = 2 * (i * NY + j)
        a, b = vertex(i, j), vertex(i + 1, j)
        c, d = vertex(i, j + 1), vertex(i + 1, j + 1)
        tri[k] = [a, b, c]
        tri[k + 1] = [d, c, b]
    for t in tri:
        m = edges(t)
        rest_inv[t] = m.inverse()
        area[t] = 0.5 * abs(m.determinant())
        for k in qd.static(range(3)):
            mass[tri[t][k]] += DENSITY * area[t] / 3


@qd.kernel
def forces():
    for v in force:
        force[v] = [0.0, -2.0 * mass[v]]
    for t in tri:
        F = edges(t) @ rest_inv[t]
        R, S = qd.polar_decompose(F)
        strain = S - qd.Matrix.identity(qd.f32, 2)
        P = R @ (2 * MU * strain + LAM * strain.trace() * qd.Matrix.identity(qd.f32, 2))
        G = -area[t] * P @ rest_inv[t].transpose()
        fa = qd.Vector([G[0, 0], G[1, 0]])
        fb = qd.Vector([G[0, 1], G[1, 1]])
        force[tri[t][0]] += fa
        force[tri[t][1]] += fb
        force[tri[t][2]] += -(fa + fb)


@qd.kernel
def advance():
    for v in pos:
        vel[v] += DT * force[v] / mass[v]
        vel[v] *= 0.998
        if v <= NY:  # the left edge is clamped
            vel[v] = [0.0, 0.0]
        pos[v] += DT * vel[v]


@qd.kernel
def stretches(out: qd.types.ndarray(dtype=qd.f32, ndim=2)):
    for t in tri:
        U, s, V = qd.svd(edges(t) @ rest_inv[t])
        out[t, 0], out[t, 1] = s[0, 0], s[1, 1]


def main():
    setup()
    for _ in range(STEPS):
        forces()
        advance()
    s = np.zeros((TRIS, 2), np.float32)
    stretches(s)
    assert 0.5 < s.min() and s.max() < 2
    return {"pos": pos.to_numpy(), "stretches": np.sort(s, axis=1)}
