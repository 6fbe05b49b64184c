"""Conway's game of life on a torus, two fields swapped by template arguments."""

import numpy as np

import quadrants as qd

N, STEPS = 96, 50

even = qd.field(qd.i32, shape=(N, N))
odd = qd.field(qd.i32, shape=(N, N))
alive = qd.field(qd.i32, shape=())


@qd.func
def neighbours(f: qd.template(), i, j):
    count = 0
    for di, dj in qd.static(qd.ndrange((-1, 2), (-1, 2))):
        if qd.static(di != 0 or dj != 0):
            count += f[(i + di + N) % N, (j + dj + N) % N]
    return count


@qd.kernel
def step(src: qd.template(), dst: qd.template()):
    for i, j in src:
        n = neighbours(src, i, j)
        if src[i, j] == 1:
            dst[i, j] = 1 if n == 2 or n == 3 else 0
        else:
            dst[i, j] = 1 if n == 3 else 0


@qd.kernel
def census():
    alive[None] = 0
    for I in qd.grouped(even):
        alive[None] += even[I]


def main():
    rng = np.random.default_rng(5)
    even.from_numpy((rng.random((N, N)) < 0.3).astype(np.int32))
    counts = []
    for k in range(STEPS):
        if k % 2 == 0:
            step(even, odd)
        else:
            step(odd, even)
            census()
            counts.append(alive[None])
    return {"counts": np.array(counts), "board": np.packbits(even.to_numpy().astype(bool))}
