"""Heat equation: explicit steps, and implicit ones by red-black Gauss-Seidel, with offsets."""

import numpy as np

import quadrants as qd

N = 48
T = qd.field(qd.f64, (N + 2, N + 2), offset=(-1, -1))
S = qd.field(qd.f64, (N + 2, N + 2), offset=(-1, -1))
residual = qd.field(qd.f64, ())


@qd.kernel
def setup():
    for i, j in T:
        T[i, j] = 0.0
        if (i - 20) ** 2 + (j - 15) ** 2 < 64:
            T[i, j] = 100.0
        if i == -1:
            T[i, j] = 20.0
        S[i, j] = T[i, j]


@qd.kernel
def explicit(k: qd.f64):
    for i, j in qd.ndrange(N, N):
        S[i, j] = T[i, j] + k * (
            T[i - 1, j] + T[i + 1, j] + T[i, j - 1] + T[i, j + 1] - 4 * T[i, j]
        )
    for i, j in qd.ndrange(N, N):
        T[i, j] = S[i, j]


@qd.kernel
def relax(k: qd.f64, colour: qd.i32):
    for i, j in qd.ndrange(N, N):
        if (i + j) % 2 == colour:
            around = T[i - 1, j] + T[i + 1, j] + T[i, j - 1] + T[i, j + 1]
            T[i, j] = (S[i, j] + k * around) / (1 + 4 * k)


@qd.kernel
def keep():
    for I in qd.grouped(T):
        S[I] = T[I]


@qd.kernel
def measure(k: qd.f64):
    residual[None] = 0
    for i, j in qd.ndrange(N, N):
        around = T[i - 1, j] + T[i + 1, j] + T[i, j - 1] + T[i, j + 1]
        qd.atomic_max(residual[None], abs(S[i, j] + k * around - (1 + 4 * k) * T[i, j]))


def main():
    setup()
    for _ in range(40):
        explicit(0.2)
    early = T.to_numpy()
    history = []
    for _ in range(5):
        keep()
        for sweep in range(80):
            relax(2.0, 0)
            relax(2.0, 1)
        measure(2.0)
        history.append(residual[None])
    assert max(history) < 1e-2
    return {"early": early[::2, ::2], "late": T.to_numpy()[::2, ::2],
            "sum": np.array([early.sum(), T.to_numpy().sum()])}  # fmt: skip
