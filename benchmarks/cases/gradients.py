"""What does going back through a kernel cost, beside the kernel itself?

`ratio` rows are the median reverse time over the kernel's own.
"""

import numpy as np

import child

CONTENDERS = child.DSL
PHASES = ("warm",)
TOLERANCE = 1e-3
TARGETS = {
    "warm elementwise ratio": 2.5,
    "warm n-body ratio": 3,
    "warm stencil ratio": 4,
    "warm ragged ratio": 4,
    "warm p2g ratio": 3,
}
SIZE = 1 << 22
BODIES = 2048
GRID = 2048
RAGGED = 1 << 20
PARTICLES, CELLS = 8192, 64


def elementwise(qd, data):
    x, y = (qd.field(qd.f32, SIZE, needs_grad=True) for _ in range(2))
    x.from_numpy(data.random(SIZE, dtype=np.float32))

    @qd.kernel
    def kernel():
        for i in x:
            y[i] = qd.sin(x[i]) * x[i] + x[i] * x[i]

    return kernel, x, y


def n_body(qd, data):
    p, a = (qd.Vector.field(3, qd.f32, BODIES, needs_grad=True) for _ in range(2))
    p.from_numpy(data.random((BODIES, 3), dtype=np.float32))

    @qd.kernel
    def kernel():
        for i in p:
            x = y = z = 0.0
            for j in range(BODIES):
                dx, dy, dz = p[j][0] - p[i][0], p[j][1] - p[i][1], p[j][2] - p[i][2]
                inv = 1.0 / qd.sqrt(dx * dx + dy * dy + dz * dz + 0.01)
                pull = inv * inv * inv
                x += dx * pull
                y += dy * pull
                z += dz * pull
            a[i] = qd.Vector([x, y, z])

    return kernel, p, a


def stencil(qd, data):
    u, v = (qd.field(qd.f32, (GRID, GRID), needs_grad=True) for _ in range(2))
    u.from_numpy(data.random((GRID, GRID), dtype=np.float32))

    @qd.kernel
    def kernel():
        for i, j in qd.ndrange((1, GRID - 1), (1, GRID - 1)):
            around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
            v[i, j] = 0.25 * around * u[i, j]

    return kernel, u, v


def ragged(qd, data):
    trips = qd.field(qd.i32, RAGGED)
    trips.from_numpy(data.integers(0, 16, RAGGED).astype(np.int32))
    x, y = (qd.field(qd.f32, RAGGED, needs_grad=True) for _ in range(2))
    x.from_numpy(data.random(RAGGED, dtype=np.float32))

    @qd.kernel
    def kernel():
        for i in x:
            s = x[i]
            for _ in range(trips[i]):
                s = qd.sin(s) + 0.1
            y[i] = s

    return kernel, x, y


def p2g(qd, data):
    """Particles of an elastic body hand mass and momentum to a grid."""
    step, width = 1e-4, 1 / CELLS
    place, speed = (qd.Vector.field(2, qd.f32, PARTICLES, needs_grad=True) for _ in range(2))
    affine, shape = (qd.Matrix.field(2, 2, qd.f32, PARTICLES, needs_grad=True) for _ in range(2))
    momentum = qd.Vector.field(2, qd.f32, (CELLS, CELLS), needs_grad=True)
    place.from_numpy(
        data.random((PARTICLES, 2), dtype=np.float32) * np.float32(0.4) + np.float32(0.3)
    )
    shape.from_numpy(np.tile(np.eye(2, dtype=np.float32), (PARTICLES, 1, 1)))

    @qd.kernel
    def kernel():
        for p in place:
            base = qd.cast(place[p] * CELLS - 0.5, qd.i32)
            inside = place[p] * CELLS - qd.cast(base, qd.f32)
            w = [0.5 * (1.5 - inside) ** 2, 0.75 - (inside - 1.0) ** 2, 0.5 * (inside - 0.5) ** 2]
            F = (qd.Matrix.identity(qd.f32, 2) + step * affine[p]) @ shape[p]
            J = F.determinant()
            push = F @ F.transpose() * 10 + qd.Matrix.identity(qd.f32, 2) * (10 * J * (J - 1))
            both = -step * 4 * CELLS * CELLS * 1e-4 * push + 1e-4 * affine[p]
            for i, j in qd.static(qd.ndrange(3, 3)):
                to = (qd.Vector([i, j]).cast(qd.f32) - inside) * width
                weight = w[i][0] * w[j][1]
                momentum[base + qd.Vector([i, j])] += weight * (1e-4 * speed[p] + both @ to)

    return kernel, place, momentum


PROGRAMS = {
    "elementwise": elementwise,
    "n-body": n_body,
    "stencil": stencil,
    "ragged": ragged,
    "p2g": p2g,
}


def start(args):
    qd = child.load(args.contender)
    loops = {} if args.contender == "taichi" else {"ad_stack_experimental_enabled": True}
    qd.init(arch=qd.cpu, cpu_max_num_threads=args.threads, log_level=qd.ERROR, **loops)
    return qd


def case(args):
    numbers, result, notes = {}, {}, []
    for name, make in PROGRAMS.items():
        qd = start(args)
        kernel, source, target = make(qd, np.random.default_rng(0))
        seed = np.random.default_rng(1).random(target.to_numpy().shape, dtype=np.float32)
        try:
            kernel()
            kernel.grad()
        except RuntimeError as e:
            notes.append(f"{name}: {str(e).splitlines()[0][:80]}")
            continue

        def reset(source=source, target=target, seed=seed):
            source.grad.fill(0)
            target.grad.from_numpy(seed)

        forward = child.throughput(args, name, kernel, qd.sync)
        back, record = child.checked(
            args, f"{name} reverse", kernel.grad, qd.sync, reset,
            lambda source=source: {"gradient": source.grad.to_numpy()},
        )  # fmt: skip
        numbers |= forward | back
        if not args.prime:
            numbers[f"{name} ratio"] = back[f"{name} reverse ms"] / forward[f"{name} ms"]
        result |= record
    return numbers, result, *notes


if __name__ == "__main__":
    child.main(case)
