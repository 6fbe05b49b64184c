"""Marching squares over metaballs: lookup tables captured from Python, segments appended."""

import numpy as np

import quadrants as qd

N, MAX = 48, 2000
LEVEL = 1.0

edge_table = np.array(
    [[-1, -1, -1, -1], [3, 0, -1, -1], [0, 1, -1, -1], [3, 1, -1, -1], [1, 2, -1, -1], [3, 0, 1, 2],
     [0, 2, -1, -1], [3, 2, -1, -1], [2, 3, -1, -1], [2, 0, -1, -1], [0, 1, 2, 3], [2, 1, -1, -1],
     [1, 3, -1, -1], [1, 0, -1, -1], [0, 3, -1, -1], [-1, -1, -1, -1]], np.int32
)  # fmt: skip
table = qd.field(qd.i32, (16, 4))
value = qd.field(qd.f32, (N + 1, N + 1))
balls = qd.Vector.field(3, qd.f32, 4)
segments = qd.Matrix.field(2, 2, qd.f32, MAX)
count = qd.field(qd.i32, ())


@qd.func
def between(a, b, va, vb):
    return a + (LEVEL - va) / (vb - va) * (b - a)


@qd.func
def on_edge(i, j, e):
    v00, v10 = value[i, j], value[i + 1, j]
    v11, v01 = value[i + 1, j + 1], value[i, j + 1]
    p = qd.Vector([float(i), float(j)])
    if e == 0:
        p = between(p, p + [1, 0], v00, v10)
    elif e == 1:
        p = between(p + [1, 0], p + [1, 1], v10, v11)
    elif e == 2:
        p = between(p + [0, 1], p + [1, 1], v01, v11)
    else:
        p = between(p, p + [0, 1], v00, v01)
    return p / N


@qd.kernel
def evaluate(t: qd.f32):
    for k in balls:
        angle = t * (k + 1) + k * 1.7
        balls[k] = [0.5 + 0.25 * qd.cos(angle), 0.5 + 0.25 * qd.sin(angle * 0.9), 0.06 + 0.01 * k]
    for i, j in value:
        p = qd.Vector([i, j]) / N
        s = 0.0
        for k in range(balls.shape[0]):
            s += balls[k].z ** 2 / qd.max((p - balls[k].xy).norm_sqr(), 1e-6)
        value[i, j] = s


@qd.kernel
def march() -> qd.f32:
    count[None] = 0
    length = 0.0
    for i, j in qd.ndrange(N, N):
        index = 0
        if value[i, j] > LEVEL:
            index |= 1
        if value[i + 1, j] > LEVEL:
            index |= 2
        if value[i + 1, j + 1] > LEVEL:
            index |= 4
        if value[i, j + 1] > LEVEL:
            index |= 8
        for s in range(2):
            if table[index, 2 * s] >= 0:
                n = qd.atomic_add(count[None], 1)
                a = on_edge(i, j, table[index, 2 * s])
                b = on_edge(i, j, table[index, 2 * s + 1])
                segments[n] = qd.Matrix.rows([a, b])
                length += (a - b).norm()
    return length


def main():
    table.from_numpy(edge_table)
    lengths, counts, centers = [], [], []
    for t in (0.0, 0.7, 1.9):
        evaluate(t)
        lengths.append(march())
        counts.append(count[None])
        points = segments.to_numpy()[: count[None]]
        centers.append(points.mean(axis=(0, 1)))
    return {"lengths": np.array(lengths), "counts": np.array(counts), "centers": np.array(centers),
            "value": value.to_numpy()[::6, ::6]}  # fmt: skip
