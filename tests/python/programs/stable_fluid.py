"""Stable fluids: semi-Lagrangian advection, Jacobi pressure, a TexPair of swapped buffers."""

import numpy as np

import quadrants as qd

N, STEPS, SWEEPS, DT = 40, 12, 30, 0.1


class Pair:
    def __init__(self, a, b):
        self.cur, self.nxt = a, b

    def swap(self):
        self.cur, self.nxt = self.nxt, self.cur


velocities = Pair(qd.Vector.field(2, float, (N, N)), qd.Vector.field(2, float, (N, N)))
dyes = Pair(qd.field(float, (N, N)), qd.field(float, (N, N)))
pressures = Pair(qd.field(float, (N, N)), qd.field(float, (N, N)))
divergences = qd.field(float, shape=(N, N))


@qd.func
def sample(f: qd.template(), u, v):
    I = qd.Vector([int(u), int(v)])
    return f[qd.max(0, qd.min(N - 1, I))]


@qd.func
def lerp(a, b, t):
    return a + t * (b - a)


@qd.func
def bilerp(f: qd.template(), p):
    s, t = p[0] - 0.5, p[1] - 0.5
    iu, iv = qd.floor(s), qd.floor(t)
    fu, fv = s - iu, t - iv
    a, b = sample(f, iu, iv), sample(f, iu + 1, iv)
    c, d = sample(f, iu, iv + 1), sample(f, iu + 1, iv + 1)
    return lerp(lerp(a, b, fu), lerp(c, d, fu), fv)


@qd.kernel
def advect(vf: qd.template(), q: qd.template(), new_q: qd.template()):
    for i, j in q:
        p = qd.Vector([i, j]) + 0.5
        mid = p - 0.5 * DT * vf[i, j]
        p -= DT * bilerp(vf, mid)
        new_q[i, j] = bilerp(q, p) * 0.999


@qd.kernel
def impulse(vf: qd.template(), dye: qd.template(), t: float):
    for i, j in vf:
        d = qd.Vector([i + 0.5 - N * 0.4, j + 0.5 - N * 0.3])
        factor = qd.exp(-d.norm_sqr() / 20.0)
        vf[i, j] += factor * DT * qd.Vector([300.0, 200.0 * qd.cos(t)])
        dye[i, j] += factor


@qd.kernel
def divergence(vf: qd.template()):
    for i, j in vf:
        l, r = sample(vf, i - 1, j).x, sample(vf, i + 1, j).x
        b, t = sample(vf, i, j - 1).y, sample(vf, i, j + 1).y
        divergences[i, j] = (r - l + t - b) * 0.5


@qd.kernel
def jacobi(pf: qd.template(), new_pf: qd.template()):
    for i, j in pf:
        around = sample(pf, i - 1, j) + sample(pf, i + 1, j)
        around += sample(pf, i, j - 1) + sample(pf, i, j + 1)
        new_pf[i, j] = (around - divergences[i, j]) * 0.25


@qd.kernel
def project(vf: qd.template(), pf: qd.template()):
    for i, j in vf:
        vf[i, j] -= 0.5 * qd.Vector(
            [
                sample(pf, i + 1, j) - sample(pf, i - 1, j),
                sample(pf, i, j + 1) - sample(pf, i, j - 1),
            ]
        )


def main():
    for k in range(STEPS):
        advect(velocities.cur, velocities.cur, velocities.nxt)
        advect(velocities.cur, dyes.cur, dyes.nxt)
        velocities.swap()
        dyes.swap()
        impulse(velocities.cur, dyes.cur, k * 0.3)
        divergence(velocities.cur)
        for _ in range(SWEEPS):
            jacobi(pressures.cur, pressures.nxt)
            pressures.swap()
        project(velocities.cur, pressures.cur)
    return {"v": velocities.cur.to_numpy()[::2, ::2], "dye": dyes.cur.to_numpy()[::2, ::2],
            "p": np.abs(pressures.cur.to_numpy()).max()}  # fmt: skip
