"""Position-based dynamics of hanging ropes, one serial rope per parallel iteration."""

import quadrants as qd

ROPES, LINKS, STEPS, ITERATIONS = 16, 20, 60, 15
REST, DT = 0.05, 1 / 60

x = qd.Vector.field(3, qd.f32)
old = qd.Vector.field(3, qd.f32)
v = qd.Vector.field(3, qd.f32)
weight = qd.field(qd.f32)
block = qd.root.dense(qd.i, ROPES)
block.dense(qd.j, LINKS).place(x, old, v, weight)


@qd.kernel
def setup():
    for r, k in x:
        x[r, k] = [k * REST, 1.0, r * 0.1]
        v[r, k] = [0.0, 0.0, qd.sin(r + 0.3 * k)]
        weight[r, k] = 0.0 if k == 0 else 1.0


@qd.func
def stretch(a: qd.template(), b: qd.template(), wa, wb):
    d = b - a
    length = d.norm()
    push = (length - REST) / length / (wa + wb) * d
    a += wa * push
    b -= wb * push


@qd.kernel
def step():
    for r, k in x:
        if weight[r, k] > 0:
            v[r, k].y -= 9.8 * DT
        old[r, k] = x[r, k]
        x[r, k] += DT * v[r, k] * weight[r, k]
    for r in range(ROPES):
        for _ in range(ITERATIONS):
            for k in range(LINKS - 1):
                stretch(x[r, k], x[r, k + 1], weight[r, k], weight[r, k + 1])
    for r, k in x:
        if x[r, k].y < 0.3:
            x[r, k].y = 0.3
        v[r, k] = (x[r, k] - old[r, k]) / DT * 0.99


def main():
    setup()
    for _ in range(STEPS):
        step()
    return {"x": x.to_numpy(), "v": v.to_numpy()[:, ::4]}
