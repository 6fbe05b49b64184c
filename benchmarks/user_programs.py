"""Kernels such as users write, one of each kind, to see where generated code falls behind.

Every builder takes the package and returns (step, reset, results): `step()` launches, `reset()` puts
the start back, `results()` gives arrays by name, zero at the start, whose fingerprints contenders are
compared by after STEPS steps. Sizes keep one step between 0.05 and 5 ms on two cores.
"""

import numpy as np

STEPS = 3


def rng():
    return np.random.default_rng(0)


def lattice_boltzmann(qd, n=256):
    """D2Q9; the directions are a loop at run time."""
    f, g = qd.field(qd.f32, (n, n, 9)), qd.field(qd.f32, (n, n, 9))
    weight, way = qd.field(qd.f32, 9), qd.Vector.field(2, qd.i32, 9)
    ways = [[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]]
    weights = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)
    way.from_numpy(np.array(ways, np.int32))
    weight.from_numpy(weights)
    f.from_numpy((weights * (1 + 0.01 * rng().random((n, n, 9)))).astype(np.float32))

    @qd.kernel
    def step():
        for i, j in qd.ndrange((1, n - 1), (1, n - 1)):
            density = 0.0
            flow = qd.Vector([0.0, 0.0])
            for k in range(9):
                v = f[i - way[k][0], j - way[k][1], k]
                g[i, j, k] = v
                density += v
                flow += way[k] * v
            flow /= density
            for k in range(9):
                along = way[k].dot(flow)
                rest = 1 + 3 * along + 4.5 * along * along - 1.5 * flow.dot(flow)
                g[i, j, k] += 0.6 * (weight[k] * density * rest - g[i, j, k])

    return step, lambda: g.fill(0), lambda: {"g": g.to_numpy()}


def cloth(qd, n=128):
    """A mass-spring sheet: gathers over static neighbours, += on the element itself."""
    pos, vel = qd.Vector.field(3, qd.f32, (n, n)), qd.Vector.field(3, qd.f32, (n, n))
    ways = [(-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (1, 1), (-1, 1), (1, -1)]
    i, j = np.mgrid[0:n, 0:n] * 0.01
    start = np.stack([i, 0 * i + 0.3, j], -1) + rng().uniform(-0.002, 0.002, (n, n, 3))
    start, speed = start.astype(np.float32), rng().uniform(5, 10, (n, n, 3)).astype(np.float32)

    def reset():
        pos.from_numpy(start)
        vel.from_numpy(speed)

    @qd.kernel
    def step():
        for i in qd.grouped(pos):
            force = qd.Vector([0.0, -9.8, 0.0])
            for way in qd.static(ways):
                j = i + qd.Vector(way)
                if 0 <= j[0] < n and 0 <= j[1] < n:
                    d = pos[i] - pos[j]
                    length = d.norm()
                    rest = 0.01 * qd.Vector(way).norm()
                    force += -300.0 * (length - rest) / rest * d / length
            vel[i] += force * 1e-5
        for i in qd.grouped(pos):
            vel[i] *= 0.9999
            pos[i] += 1e-5 * vel[i]

    return step, reset, lambda: {"moved": pos.to_numpy() - start, "gained": vel.to_numpy() - speed}


def struct_particles(qd, n=50000):
    """Members of a struct field, each updated in place."""
    vec3 = qd.types.vector(3, qd.f32)
    p = qd.types.struct(x=vec3, v=vec3, speed=qd.f32).field(shape=n)
    start, speed = rng().random((2, n, 3)).astype(np.float32)

    def reset():
        p.x.from_numpy(start)
        p.v.from_numpy(speed)
        p.speed.fill(0)

    def results():
        moved, gained = p.x.to_numpy() - start, p.v.to_numpy() - speed
        return {"moved": moved, "gained": gained, "speed": p.speed.to_numpy()}

    @qd.kernel
    def step():
        for i in p:
            p[i].v -= 0.005 * p[i].x
            p[i].x += 0.01 * p[i].v
            p[i].speed = p[i].v.norm()

    return step, reset, results


def jump_flood(qd, n=256):
    """Nearest seeds: nested short loops with conditions."""
    near, far = qd.Vector.field(2, qd.i32, (n, n)), qd.Vector.field(2, qd.i32, (n, n))
    seeds = np.full((n, n, 2), -1, np.int32)
    for i, j in rng().integers(0, n, (50, 2)):
        seeds[i, j] = i, j
    near.from_numpy(seeds)

    @qd.kernel
    def sweep(hop: qd.i32):
        for i, j in near:
            best = near[i, j]
            least = 1e9
            if best[0] >= 0:
                least = (best - qd.Vector([i, j])).norm()
            for a in range(-1, 2):
                for b in range(-1, 2):
                    p = i + a * hop
                    q = j + b * hop
                    if 0 <= p < n and 0 <= q < n:
                        seed = near[p, q]
                        if seed[0] >= 0:
                            d = (seed - qd.Vector([i, j])).norm()
                            if d < least:
                                least = d
                                best = seed
            far[i, j] = best

    def step():
        for k in range(8):
            sweep(128 >> k)

    return step, lambda: far.fill(0), lambda: {"far": far.to_numpy()}


def box_filter(qd, n=256):
    """5 x 5 over a picture of bytes, an external array."""
    picture = rng().integers(0, 256, (n, n, 3)).astype(np.uint8)
    out = np.zeros_like(picture)

    @qd.kernel
    def run(a: qd.types.ndarray(), o: qd.types.ndarray()):
        for i, j in qd.ndrange((2, n - 2), (2, n - 2)):
            for c in qd.static(range(3)):
                total = 0
                for x in range(-2, 3):
                    for y in range(-2, 3):
                        total += a[i + x, j + y, c]
                o[i, j, c] = qd.cast(total // 25, qd.u8)

    return lambda: run(picture, out), lambda: out.fill(0), lambda: {"out": out}


def matrix_product(qd, n=160):
    """Written plainly: the second operand is read down its columns."""
    a, b, c = (qd.field(qd.f32, (n, n)) for _ in range(3))
    a.from_numpy(rng().random((n, n)).astype(np.float32))
    b.from_numpy(rng().random((n, n)).astype(np.float32))

    @qd.kernel
    def step():
        for i, j in c:
            total = 0.0
            for k in range(n):
                total += a[i, k] * b[k, j]
            c[i, j] = total

    return step, lambda: c.fill(0), lambda: {"c": c.to_numpy()}


def fft(qd, n=4096):
    """Radix 2 in one serial kernel: integer division, sine and cosine, scattered writes."""
    signal, a = qd.Vector.field(2, qd.f32, n), qd.Vector.field(2, qd.f32, n)
    signal.from_numpy(rng().random((n, 2)).astype(np.float32))

    @qd.kernel
    def step():
        qd.loop_config(serialize=True)
        for i in range(n):
            turned = 0
            for k in qd.static(range(12)):
                turned |= ((i >> k) & 1) << (11 - k)
            a[turned] = signal[i]
        half = 1
        while half < n:
            for t in range(n // 2):
                j = t % half
                p = t // half * 2 * half + j
                angle = -np.pi * j / half
                c, s = qd.cos(angle), qd.sin(angle)
                u, w = a[p], a[p + half]
                turn = qd.Vector([w[0] * c - w[1] * s, w[0] * s + w[1] * c])
                a[p] = u + turn
                a[p + half] = u - turn
            half *= 2

    return step, lambda: a.fill(0), lambda: {"spectrum": a.to_numpy()}


def neighbour_grid(qd, n=4000, cells=32, most=64):
    """Particles sorted into cells by atomics, then a sum over neighbours."""
    pos, density = qd.Vector.field(2, qd.f32, n), qd.field(qd.f32, n)
    count, members = qd.field(qd.i32, (cells, cells)), qd.field(qd.i32, (cells, cells, most))
    pos.from_numpy(rng().random((n, 2)).astype(np.float32))

    @qd.kernel
    def step():
        for i, j in count:
            count[i, j] = 0
        for p in pos:
            cell = qd.cast(pos[p] * cells, qd.i32)
            k = qd.atomic_add(count[cell], 1)
            if k < most:
                members[cell, k] = p
        for p in pos:
            cell = qd.cast(pos[p] * cells, qd.i32)
            total = 0.0
            for way in qd.static(qd.grouped(qd.ndrange((-1, 2), (-1, 2)))):
                c = cell + way
                if 0 <= c[0] < cells and 0 <= c[1] < cells:
                    for k in range(qd.min(count[c], most)):
                        r = (pos[p] - pos[members[c, k]]).norm() * cells
                        if r < 1:
                            total += (1 - r) ** 3
            density[p] = total

    def reset():
        count.fill(0)
        density.fill(0)

    return step, reset, lambda: {"density": density.to_numpy(), "count": count.to_numpy()}


def tree_walk(qd, n=8000):
    """Boxes of a tree are tested with a stack in a local vector."""
    box, hits = qd.Vector.field(6, qd.f32, n), qd.field(qd.i32, 4096)
    centre, half = rng().random((n, 3)), 0.5 / np.sqrt(np.arange(n) + 1)[:, None]
    box.from_numpy(np.concatenate([centre - half, centre + half], 1).astype(np.float32))

    @qd.kernel
    def step():
        for i in hits:
            p = qd.Vector([i % 16 / 16.0, i // 16 % 16 / 16.0, i // 256 / 16.0])
            stack = qd.Vector([0] * 32)
            depth = 1
            found = 0
            while depth > 0:
                depth -= 1
                k = stack[depth]
                b = box[k]
                inside = b[0] <= p[0] <= b[3] and b[1] <= p[1] <= b[4] and b[2] <= p[2] <= b[5]
                if inside:
                    found += 1
                    for child in qd.static((1, 2)):
                        if 2 * k + child < n:
                            stack[depth] = 2 * k + child
                            depth += 1
            hits[i] = found

    return step, lambda: hits.fill(0), lambda: {"hits": hits.to_numpy()}


def mandelbrot(qd, n=256):
    """A loop whose length differs from one pixel to the next."""
    image = qd.field(qd.i32, (n, n))

    @qd.kernel
    def step():
        for i, j in image:
            c = qd.Vector([i / n * 3 - 2.0, j / n * 3 - 1.5])
            z = qd.Vector([0.0, 0.0])
            count = 0
            while z.norm_sqr() < 4 and count < 100:
                z = qd.Vector([z[0] ** 2 - z[1] ** 2 + c[0], 2 * z[0] * z[1] + c[1]])
                count += 1
            image[i, j] = count

    return step, lambda: image.fill(0), lambda: {"image": image.to_numpy()}


def sparse_product(qd, n=20000, per_row=9):
    """Compressed rows times a vector, all external arrays."""
    start = np.arange(0, (n + 1) * per_row, per_row).astype(np.int32)
    column = rng().integers(0, n, n * per_row).astype(np.int32)
    value, x = rng().random(n * per_row).astype(np.float32), rng().random(n).astype(np.float32)
    y = np.zeros(n, np.float32)
    array = qd.types.ndarray()

    @qd.kernel
    def product(start: array, column: array, value: array, x: array, y: array):
        for i in range(y.shape[0]):
            total = 0.0
            for e in range(start[i], start[i + 1]):
                total += value[e] * x[column[e]]
            y[i] = total

    return lambda: product(start, column, value, x, y), lambda: y.fill(0), lambda: {"y": y}


def local_sort(qd, n=4096, m=16):
    """A bubble sort of a local vector: indices that vary at run time."""
    a, out = qd.field(qd.i32, (n, m)), qd.field(qd.i32, n)
    a.from_numpy(rng().integers(0, 1000, (n, m)).astype(np.int32))

    @qd.kernel
    def step():
        for i in range(n):
            v = qd.Vector([0] * m)
            for k in range(m):
                v[k] = a[i, k]
            for p in range(m):
                for k in range(m - 1 - p):
                    if v[k] > v[k + 1]:
                        v[k], v[k + 1] = v[k + 1], v[k]
            out[i] = v[m // 2]

    return step, lambda: out.fill(0), lambda: {"out": out.to_numpy()}


def batched_dynamics(qd, environments=512, n=9):
    """One loop over environments, the last axis; small dense products inside."""
    q, v, force = (qd.field(qd.f32, (n, environments)) for _ in range(3))
    mass = qd.field(qd.f32, (n, n, environments))
    m = rng().random((n, n, environments)) + 9 * np.eye(n)[:, :, None]
    mass.from_numpy(m.astype(np.float32))
    force.from_numpy(m[0].astype(np.float32))
    speed = rng().uniform(1, 2, (n, environments)).astype(np.float32)

    def reset():
        q.fill(0)
        v.from_numpy(speed)

    @qd.kernel
    def step():
        for b in range(environments):
            for i in range(n):
                total = force[i, b]
                for j in range(n):
                    total -= 0.1 * mass[i, j, b] * v[j, b]
                v[i, b] += 0.01 * total
            for i in range(n):
                q[i, b] += 0.01 * v[i, b]

    return step, reset, lambda: {"moved": q.to_numpy(), "gained": v.to_numpy() - speed}


def constraints(qd, n=20000):
    """Position-based distances: scattered += from an edge to both its ends."""
    pos, move = qd.Vector.field(3, qd.f32, n), qd.Vector.field(3, qd.f32, n)
    edge, count = qd.Vector.field(2, qd.i32, 2 * n), qd.field(qd.i32, n)
    k = np.arange(2 * n)
    edge.from_numpy(np.stack([k % n, (7 * k + 1) % n], 1).astype(np.int32))
    start = rng().random((n, 3)).astype(np.float32)

    @qd.kernel
    def step():
        for i in pos:
            move[i] = qd.Vector([0.0, 0.0, 0.0])
            count[i] = 0
        for e in edge:
            i, j = edge[e][0], edge[e][1]
            d = pos[i] - pos[j]
            length = d.norm(1e-6)
            c = (length - 0.5) * 0.5 * d / length
            move[i] -= c
            move[j] += c
            count[i] += 1
            count[j] += 1
        for i in pos:
            pos[i] += 0.2 / qd.max(count[i], 1) * move[i]

    def reset():
        pos.from_numpy(start)
        count.fill(0)

    return step, reset, lambda: {"moved": pos.to_numpy() - start, "count": count.to_numpy()}


PROGRAMS = {
    p.__name__: p
    for p in (
        lattice_boltzmann,
        cloth,
        struct_particles,
        jump_flood,
        box_filter,
        matrix_product,
        fft,
        neighbour_grid,
        tree_walk,
        mandelbrot,
        sparse_product,
        local_sort,
        batched_dynamics,
        constraints,
    )
}
