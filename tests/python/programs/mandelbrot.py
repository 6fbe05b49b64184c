"""Mandelbrot and Julia sets with escape counts, complex numbers as vectors."""

import numpy as np

import quadrants as qd

N, LIMIT = 96, 60


@qd.func
def square(z):
    return qd.Vector([z[0] ** 2 - z[1] ** 2, z[0] * z[1] * 2])


@qd.kernel
def mandelbrot(count: qd.types.ndarray(dtype=qd.i32, ndim=2)):
    for i, j in count:
        c = qd.Vector([i / N * 3.0 - 2.0, j / N * 2.5 - 1.25])
        z = qd.Vector([0.0, 0.0])
        k = 0
        while z.norm_sqr() < 4.0 and k < LIMIT:
            z = square(z) + c
            k += 1
        count[i, j] = k


@qd.kernel
def julia(t: qd.f32, count: qd.types.ndarray(dtype=qd.i32, ndim=2)):
    for i, j in count:
        c = qd.Vector([-0.8, qd.cos(t) * 0.2])
        z = qd.Vector([i / N - 1, j / N - 0.5]) * 2
        k = 0
        while z.norm() < 20 and k < LIMIT:
            z = square(z) + c
            k += 1
        count[i, j] = k


def main():
    m, j = np.zeros((N, N), np.int32), np.zeros((2 * N, N), np.int32)
    mandelbrot(m)
    julia(0.3, j)
    histogram = lambda a: np.bincount(np.minimum(a.ravel(), LIMIT), minlength=LIMIT + 1)
    return {"set_": (m == LIMIT).mean(axis=1), "low": np.minimum(m, 6).astype(np.uint8)[::2, ::2],
            "julia": histogram(j).cumsum()[::4]}  # fmt: skip
