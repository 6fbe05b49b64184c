"""2-D wave equation with a Dirichlet border and a damped source."""

import quadrants as qd

N, STEPS = 64, 60
DT, DX, C = 0.05, 1.0, 6.0

height = qd.field(dtype=float, shape=(N, N))
velocity = qd.field(dtype=float, shape=(N, N))
normal = qd.Vector.field(3, dtype=float, shape=(N, N))


@qd.func
def laplacian(i, j):
    return (
        height[i + 1, j] + height[i - 1, j] + height[i, j + 1] + height[i, j - 1] - 4 * height[i, j]
    ) / DX**2


@qd.kernel
def reset(x: float, y: float):
    for i, j in height:
        d2 = (i - x) ** 2 + (j - y) ** 2
        height[i, j] = 2.0 * qd.exp(-d2 / 18.0)
        velocity[i, j] = 0.0


@qd.kernel
def accelerate():
    for i, j in qd.ndrange((1, N - 1), (1, N - 1)):
        velocity[i, j] = (velocity[i, j] + C * C * laplacian(i, j) * DT) * 0.995


@qd.kernel
def move():
    for i, j in height:
        height[i, j] += velocity[i, j] * DT


@qd.kernel
def normals():
    for i, j in qd.ndrange((1, N - 1), (1, N - 1)):
        gx = (height[i + 1, j] - height[i - 1, j]) / (2 * DX)
        gy = (height[i, j + 1] - height[i, j - 1]) / (2 * DX)
        normal[i, j] = qd.Vector([-gx, -gy, 1.0]).normalized()


@qd.kernel
def energy() -> float:
    e = 0.0
    for i, j in velocity:
        e += velocity[i, j] ** 2
    return e


def main():
    reset(20.0, 30.0)
    for _ in range(STEPS):
        accelerate()
        move()
    normals()
    return {"height": height.to_numpy()[::2, ::2], "normal": normal.to_numpy()[::8, ::8],
            "energy": energy()}  # fmt: skip
