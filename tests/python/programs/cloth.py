"""Mass-spring cloth falling on a ball, explicit integration, ndarrays as arguments."""

import quadrants as qd

N, STEPS = 24, 120
QUAD = 1.0 / N
DT, GRAVITY, K, DASHPOT, DRAG = 4e-4, 9.8, 3e4, 1e4, 1.0
RADIUS = 0.3

vec3 = qd.types.vector(3, qd.f32)
Points = qd.types.ndarray(dtype=vec3, ndim=2)
offsets = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]


@qd.kernel
def start(x: Points, v: Points):
    for i, j in x:
        x[i, j] = [i * QUAD - 0.5 + 0.01 * (j % 2), 0.35, j * QUAD - 0.5]
        v[i, j] = [0, 0, 0]


@qd.kernel
def substep(x: Points, v: Points, center: vec3):
    for I in qd.grouped(x):
        v[I] += vec3(0, -GRAVITY * DT, 0)
    for I in qd.grouped(x):
        force = vec3(0.0)
        for o in qd.static(offsets):
            J = I + qd.Vector(o)
            if 0 <= J[0] < N and 0 <= J[1] < N:
                d = x[I] - x[J]
                dv = v[I] - v[J]
                now = d.norm()
                rest = QUAD * float(qd.Vector(o).cast(qd.f32).norm())
                force += -K * QUAD * d / now * (now / rest - 1)
                force += -dv.dot(d / now) * d / now * DASHPOT * QUAD * 0.1
        v[I] += force * DT
    for I in qd.grouped(x):
        v[I] *= qd.exp(-DRAG * DT)
        d = x[I] - center
        if d.norm() <= RADIUS:
            n = d.normalized()
            v[I] -= qd.min(v[I].dot(n), 0) * n
        x[I] += DT * v[I]


def main():
    x, v = qd.ndarray(vec3, (N, N)), qd.Vector.ndarray(3, qd.f32, (N, N))
    start(x, v)
    for _ in range(STEPS):
        substep(x, v, qd.Vector([0.0, 0.0, 0.0]))
    p = x.to_numpy()
    return {"x": p[::3, ::3], "lowest": p[..., 1].min(), "mean": p.mean(axis=(0, 1))}
