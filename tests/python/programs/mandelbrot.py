"""Escape counts of the Mandelbrot set and basins of Newton's method: complex numbers as vectors."""

import numpy as np

import quadrants as qd

N, LIMIT = 96, 60


@qd.func
def times(a, b):
    return qd.Vector([a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]])


@qd.func
def over(a, b):
    return times(a, qd.Vector([b[0], -b[1]])) / b.norm_sqr()


@qd.kernel
def mandelbrot(count: qd.types.ndarray(dtype=qd.i32, ndim=2)):
    for i, j in count:
        c = qd.Vector([i / N * 3.0 - 2.0, j / N * 2.5 - 1.25])
        z = qd.Vector([0.0, 0.0])
        k = 0
        while z.norm_sqr() < 4.0 and k < LIMIT:
            z = times(z, z) + c
            k += 1
        count[i, j] = k


@qd.kernel
def newton(turn: qd.f32, count: qd.types.ndarray(dtype=qd.i32, ndim=2)):
    """Steps until z ** 3 = 1 nearly holds, for starts in a turned square."""
    for row, column in count:
        corner = qd.Vector([row - 0.5 * N, column - 0.5 * N]) * (4.0 / N) + 0.013
        z = times(corner, qd.Vector([qd.cos(turn), qd.sin(turn)]))
        k = 0
        while k < LIMIT:
            cube = times(z, times(z, z)) - qd.Vector([1.0, 0.0])
            if cube.norm_sqr() < 1e-6:
                break
            z -= over(cube, 3 * times(z, z))
            k += 1
        count[row, column] = k


def main():
    m, steps = np.zeros((N, N), np.int32), np.zeros((N, N), np.int32)
    mandelbrot(m)
    newton(0.3, steps)
    return {"set_": (m == LIMIT).mean(axis=1), "low": np.minimum(m, 6).astype(np.uint8)[::2, ::2],
            "newton": np.bincount(steps.ravel(), minlength=LIMIT + 1).cumsum()[::4]}  # fmt: skip
