"""Gravitating bodies with leapfrog steps; scalar results and template time steps."""

import numpy as np

import quadrants as qd

N, STEPS, EPS = 64, 50, 0.05

Vec = qd.types.ndarray(dtype=qd.types.vector(3, qd.f64), ndim=1)
Num = qd.types.ndarray(dtype=qd.f64, ndim=1)


@qd.func
def pull(x: qd.template(), m: qd.template(), i):
    a = qd.Vector([0.0, 0.0, 0.0], dt=qd.f64)
    for j in range(x.shape[0]):
        d = x[j] - x[i]
        a += m[j] * d / (d.norm_sqr() + EPS**2) ** 1.5
    return a


@qd.kernel
def kick(x: Vec, v: Vec, m: Num, dt: qd.f64):
    for i in x:
        v[i] += dt * pull(x, m, i)


@qd.kernel
def drift(x: Vec, v: Vec, dt: qd.f64):
    for i in x:
        x[i] += dt * v[i]


@qd.kernel
def energy(x: Vec, v: Vec, m: Num) -> tuple[qd.f64, qd.f64]:
    kinetic = qd.f64(0.0)
    potential = qd.f64(0.0)
    for i in x:
        kinetic += 0.5 * m[i] * v[i].norm_sqr()
        for j in range(i):
            potential -= m[i] * m[j] / qd.sqrt((x[i] - x[j]).norm_sqr() + EPS**2)
    return kinetic, potential


def main():
    rng = np.random.default_rng(1)
    x, v = qd.Vector.ndarray(3, qd.f64, N), qd.Vector.ndarray(3, qd.f64, N)
    m = rng.uniform(0.5, 1.5, N) / N
    x.from_numpy(rng.standard_normal((N, 3)))
    v.from_numpy(0.2 * rng.standard_normal((N, 3)))
    before = energy(x, v, m)
    dt = 0.01
    for _ in range(STEPS):
        kick(x, v, m, dt / 2)
        drift(x, v, dt)
        kick(x, v, m, dt / 2)
    after = energy(x, v, m)
    assert abs(sum(after) - sum(before)) < 0.02 * abs(sum(before))
    return {"x": x.to_numpy(), "v": v.to_numpy(), "energy": np.array([*before, *after])}
