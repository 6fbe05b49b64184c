"""A struck membrane: three instants of its shape in turn, the slope of its surface, its energy."""

import quadrants as qd

N, STEPS = 64, 60
PACE2, LOSS = 0.09, 0.005  # cells per step, squared; share of the motion lost per step

shape = qd.field(dtype=float, shape=(3, N, N))  # instants
lean = qd.Vector.field(3, dtype=float, shape=(N, N))


@qd.func
def curvature(t, i, j):
    total = -20.0 * shape[t, i, j]
    for a, b in qd.static(qd.ndrange((-1, 2), (-1, 2))):
        if qd.static(a or b):
            total += (4.0 if qd.static(a == 0 or b == 0) else 1.0) * shape[t, i + a, j + b]
    return total / 6


@qd.kernel
def strike(x: float, y: float, depth: float):
    for t, i, j in shape:
        far = ((i - x) ** 2 + (j - y) ** 2) / 20
        shape[t, i, j] = -depth / (1 + far) ** 2 if 0 < i < N - 1 and 0 < j < N - 1 else 0.0


@qd.kernel
def advance(before: int, now: int, after: int):
    for i, j in qd.ndrange((1, N - 1), (1, N - 1)):
        kept = (1 - LOSS) * (shape[now, i, j] - shape[before, i, j])
        shape[after, i, j] = shape[now, i, j] + kept + PACE2 * curvature(now, i, j)


@qd.kernel
def look(t: int):
    for i, j in qd.ndrange((1, N - 1), (1, N - 1)):
        along = qd.Vector([2.0, 0.0, shape[t, i + 1, j] - shape[t, i - 1, j]])
        across = qd.Vector([0.0, 2.0, shape[t, i, j + 1] - shape[t, i, j - 1]])
        lean[i, j] = along.cross(across).normalized()


@qd.kernel
def energy(before: int, now: int) -> float:
    e = 0.0
    for i, j in lean:
        e += (shape[now, i, j] - shape[before, i, j]) ** 2
    return e


def main():
    strike(20.0, 30.0, 2.0)
    for k in range(STEPS):
        advance(k % 3, (k + 1) % 3, (k + 2) % 3)
    last = (STEPS + 1) % 3
    look(last)
    return {"shape": shape.to_numpy()[last][::2, ::2], "lean": lean.to_numpy()[::8, ::8],
            "energy": energy(STEPS % 3, last)}  # fmt: skip
