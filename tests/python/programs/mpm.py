"""MLS-MPM in 2-D: elastic, liquid and snow materials with svd plasticity."""

import numpy as np

import quadrants as qd

N, GRID, STEPS = 600, 32, 80
DX, INV, DT = 1 / GRID, float(GRID), 2e-4
VOL = (DX * 0.5) ** 2
E, NU = 1000.0, 0.2
MU0, LAM0 = E / (2 * (1 + NU)), E * NU / ((1 + NU) * (1 - 2 * NU))

x = qd.Vector.field(2, float, N)
v = qd.Vector.field(2, float, N)
C = qd.Matrix.field(2, 2, float, N)
F = qd.Matrix.field(2, 2, dtype=float, shape=N)
material = qd.field(int, N)
Jp = qd.field(float, N)
grid_v = qd.Vector.field(2, float, (GRID, GRID))
grid_m = qd.field(float, (GRID, GRID))


@qd.kernel
def clear():
    for i, j in grid_m:
        grid_v[i, j] = [0, 0]
        grid_m[i, j] = 0


@qd.kernel
def particles_to_grid():
    for p in x:
        base = (x[p] * INV - 0.5).cast(int)
        fx = x[p] * INV - base.cast(float)
        w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
        F[p] = (qd.Matrix.identity(float, 2) + DT * C[p]) @ F[p]
        h = qd.exp(10 * (1.0 - Jp[p]))
        if material[p] == 1:
            h = 0.3
        mu, la = MU0 * h, LAM0 * h
        if material[p] == 0:
            mu = 0.0
        U, sig, V = qd.svd(F[p])
        J = 1.0
        for d in qd.static(range(2)):
            s = sig[d, d]
            if material[p] == 2:
                s = qd.min(qd.max(sig[d, d], 1 - 2.5e-2), 1 + 4.5e-3)
            Jp[p] *= sig[d, d] / s
            sig[d, d] = s
            J *= s
        if material[p] == 0:
            F[p] = qd.Matrix.identity(float, 2) * qd.sqrt(J)
        elif material[p] == 2:
            F[p] = U @ sig @ V.transpose()
        stress = 2 * mu * (F[p] - U @ V.transpose()) @ F[p].transpose()
        stress += qd.Matrix.identity(float, 2) * la * J * (J - 1)
        affine = -DT * VOL * 4 * INV * INV * stress + VOL * C[p]
        for i, j in qd.static(qd.ndrange(3, 3)):
            offset = qd.Vector([i, j])
            dpos = (offset.cast(float) - fx) * DX
            weight = w[i][0] * w[j][1]
            grid_v[base + offset] += weight * (VOL * v[p] + affine @ dpos)
            grid_m[base + offset] += weight * VOL


@qd.kernel
def update_grid():
    for i, j in grid_m:
        if grid_m[i, j] > 0:
            grid_v[i, j] = (1 / grid_m[i, j]) * grid_v[i, j]
            grid_v[i, j][1] -= DT * 50
            if i < 3 and grid_v[i, j][0] < 0:
                grid_v[i, j][0] = 0
            if i > GRID - 3 and grid_v[i, j][0] > 0:
                grid_v[i, j][0] = 0
            if j < 3 and grid_v[i, j][1] < 0:
                grid_v[i, j][1] = 0
            if j > GRID - 3 and grid_v[i, j][1] > 0:
                grid_v[i, j][1] = 0


@qd.kernel
def grid_to_particles():
    for p in x:
        base = (x[p] * INV - 0.5).cast(int)
        fx = x[p] * INV - base.cast(float)
        w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1.0) ** 2, 0.5 * (fx - 0.5) ** 2]
        new_v = qd.Vector.zero(float, 2)
        new_C = qd.Matrix.zero(float, 2, 2)
        for i, j in qd.static(qd.ndrange(3, 3)):
            dpos = qd.Vector([i, j]).cast(float) - fx
            g = grid_v[base + qd.Vector([i, j])]
            weight = w[i][0] * w[j][1]
            new_v += weight * g
            new_C += 4 * INV * weight * g.outer_product(dpos)
        v[p], C[p] = new_v, new_C
        x[p] += DT * v[p]


def main():
    rng = np.random.default_rng(2)
    group = np.arange(N) // (N // 3)
    start = rng.random((N, 2)) * 0.2 + np.stack([0.3 + 0.1 * group, 0.05 + 0.32 * group], 1)
    x.from_numpy(start.astype(np.float32))
    material.from_numpy(group.astype(np.int32))
    v.fill([0.0, -3.0])
    F.fill([[1, 0], [0, 1]])
    Jp.fill(1)
    for _ in range(STEPS):
        clear()
        particles_to_grid()
        update_grid()
        grid_to_particles()
    return {
        "x": x.to_numpy(),
        "mean_v": v.to_numpy().reshape(3, -1, 2).mean(1),
        "Jp": Jp.to_numpy().mean(),
    }
