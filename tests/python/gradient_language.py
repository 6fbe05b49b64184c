"""Models for gradients that are about what the language has: jumps, scattering, structs, powers.

How they are written: gradient_models.py.
"""

import numpy as np

import quadrants as qd
from gradient_models import exactly, ints, model, normal, uniform, zeros


@qd.func
def scene(p, ball: qd.template(), blend):
    """Distance from two balls that melt together, and a floor."""
    a = (p - ball[0].xyz).norm() - ball[0].w
    b = (p - ball[1].xyz).norm() - ball[1].w
    h = qd.max(blend - qd.abs(a - b), 0.0) / blend
    return qd.min(qd.min(a, b) - 0.25 * h * h * blend, p.y + 1)


def scene_reference(xp, p, ball, blend):
    far = xp.stack([xp.linalg.norm(p - b[:3]) - b[3] for b in ball])
    h = xp.clip(blend - abs(far[0] - far[1]), 0, None) / blend
    return xp.minimum(xp.amin(far, (0,)) - 0.25 * h**2 * blend, p[1] + 1)


BALLS = exactly([[-0.4, 0.1, 3, 0.6], [0.5, 0.2, 3.3, 0.7]])
BALLS.elem = 1
AIMS = exactly([[0.01, 0.02, 1.0], [-0.2, 0.1, 1.0], [0.1, -0.4, 1.0], [0.9, 0.5, 1.0]])
AIMS.elem = 1


@model(ball=BALLS, aim=AIMS, blend=exactly(0.3))
def ray_march(A, V):
    @qd.kernel
    def march(ball: V(4), aim: V(3), blend: A, loss: A):
        for r in aim:
            d, t = aim[r].normalized(), 0.0
            for _ in range(12):
                t += scene(t * d, ball, blend[None])
            loss[None] += qd.exp(-t)

    def run(d):
        march(d.ball, d.aim, d.blend, d.loss)

    def reference(xp, d):
        total = 0
        for aim in d.aim:
            u, t = aim / xp.linalg.norm(aim), xp.array(0.0)
            for _ in range(12):
                t = t + scene_reference(xp, t * u, d.ball, d.blend)
            total = total + xp.exp(-t)
        return total

    return run, reference


@model(general=True, ball=BALLS, aim=AIMS, blend=exactly(0.3))
def ray_march_until_a_hit(A, V):
    @qd.kernel
    def march(ball: V(4), aim: V(3), blend: A, loss: A):
        for r in aim:
            d, t, near = aim[r].normalized(), 0.0, 1.0
            while t < 9:
                step = scene(t * d, ball, blend[None])
                if step < 1e-3:
                    break
                near = qd.min(near, 5 * step / (t + 0.1))
                t += step
            loss[None] += near * t if t < 9 else near

    def run(d):
        march(d.ball, d.aim, d.blend, d.loss)

    def reference(xp, d):
        total = 0
        for aim in d.aim:
            u, t, near = aim / xp.linalg.norm(aim), xp.array(0.0), xp.array(1.0)
            on = t < 9
            for _ in range(60):
                step = scene_reference(xp, t * u, d.ball, d.blend)
                on = on & (step >= 1e-3) & (t < 9)
                near = xp.where(on, xp.minimum(near, 5 * step / (t + 0.1)), near)
                t = xp.where(on, t + step, t)
            total = total + xp.where(t < 9, near * t, near)
        return total

    return run, reference


@model(x=uniform(0.1, 1, 5), v=normal(5), drag=uniform(0.1, 0.9), stiff=uniform(200, 300))
def bouncing(A, V):
    """Contact by penalty with friction that sticks or slips."""

    @qd.kernel
    def fall(x: A, v: A, drag: A, stiff: A, loss: A):
        for n in x:
            h, up, side = x[n], v[n], 1.0 + v[n] * v[n]
            for _ in range(40):
                force = -9.8
                if h < 0:
                    push = -stiff[None] * h
                    if up < 0:
                        push -= 2 * up
                    force += push
                    if qd.abs(side) > 0.02 * drag[None] * push:
                        side -= 0.02 * drag[None] * push * (1 if side > 0 else -1)
                    else:
                        side = 0.0
                elif not (h < 1 or up < 0):
                    force -= 0.3 * up * qd.abs(up)
                up += 0.02 * force
                h += 0.02 * up
            loss[None] += h + up * side + side**2

    def run(d):
        fall(d.x, d.v, d.drag, d.stiff, d.loss)

    def reference(xp, d):
        h, up, side = d.x, d.v, 1 + d.v**2
        for _ in range(40):
            push = xp.relu(-d.stiff * h) + xp.where(h < 0, xp.relu(-2 * up), 0)
            slip = xp.relu(abs(side) - 0.02 * d.drag * push) * xp.sign(side)
            side = xp.where(h < 0, slip, side)
            air = xp.where((h >= 1) & (up >= 0), 0.3 * up * abs(up), 0)
            up = up + 0.02 * (push - 9.8 - air)
            h = h + 0.02 * up
        return (h + up * side + side**2).sum()

    return run, reference


@model(x=normal(12), y=normal(12), low=exactly(-0.6), high=exactly(0.9))
def clamps(A, V):
    @qd.kernel
    def losses(x: A, y: A, low: A, high: A, loss: A):
        for n in x:
            c = qd.math.clamp(x[n], low[None], high[None])
            loss[None] += qd.abs(c - y[n]) * qd.max(x[n], y[n], 0.25)
            loss[None] += qd.min(x[n] * x[n], 1.0, qd.exp(y[n])) * (y[n] if x[n] < y[n] else 2.0)
            loss[None] += qd.select(qd.abs(y[n]) < 0.5 or x[n] > 1, qd.sin(x[n]), x[n] * y[n])
            loss[None] += (x[n] * 3.0) % high[None] - 0.5 * (x[n] // low[None])

    def run(d):
        losses(d.x, d.y, d.low, d.high, d.loss)

    def reference(xp, d):
        x, y = d.x, d.y
        total = abs(xp.minimum(xp.maximum(x, d.low), d.high) - y) * xp.clip(
            xp.maximum(x, y), 0.25, None
        )
        most = xp.minimum(xp.clip(x**2, None, 1), xp.exp(y))
        total = total + most * xp.where(x < y, y, 2)
        total = total + xp.where((abs(y) < 0.5) | (x > 1), xp.sin(x), x * y)
        whole = xp.floor(3 * x / d.high)
        return (total + 3 * x - d.high * whole - 0.5 * xp.floor(x / d.low)).sum()

    return run, reference


@model(
    x=uniform(0.6, 5.4, 10),
    w=normal(10),
    v=normal(10),
    grid=zeros(7),
    mass=zeros(7),
    back=zeros(10),
)
def particles_and_grid(A, V):
    """Scattered by tents onto a grid, smoothed by powers of it, gathered again."""

    @qd.kernel
    def scatter(x: A, w: A, v: A, grid: A, mass: A):
        for n in x:
            cell = int(x[n])
            for k in qd.static(range(2)):
                share = 1 - qd.abs(x[n] - (cell + k))
                grid[cell + k] += share * w[n] * v[n]
                qd.atomic_sub(mass[cell + k], -share * w[n] ** 2)

    @qd.kernel
    def gather(x: A, grid: A, mass: A, back: A):
        for n in x:
            cell = int(x[n])
            for k in range(2):
                if mass[cell + k] > 1e-12:
                    share = 1 - qd.abs(x[n] - (cell + k))
                    back[n] += share * grid[cell + k] / (mass[cell + k] + 0.5) ** 1.5

    @qd.kernel
    def measure(back: A, v: A, loss: A):
        for n in back:
            loss[None] += (back[n] - v[n]) ** 2

    def run(d):
        scatter(d.x, d.w, d.v, d.grid, d.mass)
        gather(d.x, d.grid, d.mass, d.back)
        measure(d.back, d.v, d.loss)

    def reference(xp, d):
        share = xp.clip(1 - abs(d.x[:, None] - xp.array(np.arange(7.0))), 0, None)
        grid, mass = (d.w * d.v) @ share, d.w**2 @ share
        return ((share @ (grid / (mass + 0.5) ** 1.5) - d.v) ** 2).sum()

    return run, reference


@model(w=normal(11), which=ints(4, 11), bins=zeros(4))
def histogram(A, V):
    @qd.kernel
    def count(w: A, which: A, bins: A):
        for n in w:
            bins[which[n]] += w[n] ** 2

    @qd.kernel
    def entropy(bins: A, loss: A):
        for _ in range(1):
            total = 0.0
            for k in range(4):
                total += bins[k] + 1e-2
            for k in range(4):
                p = (bins[k] + 1e-2) / total
                loss[None] -= p * qd.log(p)

    def run(d):
        count(d.w, d.which, d.bins)
        entropy(d.bins, d.loss)

    def reference(xp, d):
        p = xp.scatter_add(4, d.which, d.w**2) + 1e-2
        p = p / p.sum()
        return -(p * xp.log(p)).sum()

    return run, reference


STARTS = [0, 2, 2, 5, 6]
COLUMNS = [0, 3, 1, 2, 0, 2]


@model(value=normal(6), x=normal(4), start=exactly(STARTS), column=exactly(COLUMNS), y=zeros(4, 4))
def sparse_products(A, V):
    """Rows of any length: inner loops bounded by memory; then powers by loops."""

    @qd.kernel
    def multiply(value: A, x: A, start: A, column: A, y: A, t: qd.i32):
        for i in x:
            s = x[i] if t == 0 else y[t - 1, i]
            for e in range(start[i], start[i + 1]):
                other = x[column[e]] if t == 0 else y[t - 1, column[e]]
                s = s * 0.7 + qd.sin(s + value[e] * other)
            y[t, i] = s

    @qd.kernel
    def last(y: A, start: A, loss: A):
        for i in range(4):
            p = 1.0
            for _ in range(start[i + 1]):
                p *= y[3, i]
            loss[None] += p

    def run(d):
        for t in range(4):
            multiply(d.value, d.x, d.start, d.column, d.y, t)
        last(d.y, d.start, d.loss)

    def reference(xp, d):
        y = list(d.x)
        for _ in range(4):
            new = list(y)
            for i in range(4):
                for e in range(STARTS[i], STARTS[i + 1]):
                    new[i] = new[i] * 0.7 + xp.sin(new[i] + d.value[e] * y[COLUMNS[e]])
            y = new
        return sum(v**n for v, n in zip(y, STARTS[1:]))

    return run, reference


@model(move=normal(3, 3), emit=normal(3, 4), seen=ints(4, 2, 6))
def hidden_markov(A, V):
    """Forward algorithm in a local vector, at indices of loops."""

    @qd.kernel
    def forward(move: A, emit: A, seen: A, loss: A):
        for n in range(seen.shape[0]):
            p = qd.Vector([1.0, 1.0, 1.0])
            for t in range(seen.shape[1]):
                q = qd.Vector([0.0, 0.0, 0.0])
                for i, j in qd.ndrange(3, 3):
                    q[(j + t) % 3] += p[i] * qd.exp(move[i, j])
                for j in range(3):
                    q[j] *= qd.exp(emit[j, seen[n, t]])
                total = q.sum()
                p = q / total
                loss[None] += qd.log(total) * p[t % 3]

    def run(d):
        forward(d.move, d.emit, d.seen, d.loss)

    def reference(xp, d):
        total = 0
        for n in range(2):
            p = xp.array(np.ones(3))
            for t in range(6):
                q = xp.roll(p @ xp.exp(d.move), t, 0) * xp.exp(d.emit[:, d.seen[n, t]])
                p = q / q.sum()
                total = total + xp.log(q.sum()) * p[t % 3]
        return total

    return run, reference


@model(general=True, x=uniform(0.3, 9, 7), gain=uniform(0.9, 1.1))
def trips_of_collatz(A, V):
    """What loops do is chosen by whole numbers that they carry."""

    @qd.kernel
    def walk(x: A, gain: A, loss: A):
        for n in x:
            v, k, trips = x[n], n + 1, 0
            while True:
                trips += 1
                if k == 1 or trips > 12:
                    break
                if k % 2 == 0:
                    k //= 2
                    v = qd.sqrt(v + 1) * gain[None]
                    continue
                k = 3 * k + 1
                v = v * v / (1 + v) + 0.5 * qd.cos(v)
            loss[None] += v * trips

    def run(d):
        walk(d.x, d.gain, d.loss)

    def reference(xp, d):
        total = 0
        for n in range(7):
            v, k, trips = d.x[n], n + 1, 1
            while k != 1 and trips <= 12:
                v = (v**2 / (1 + v) + 0.5 * xp.cos(v)) if k % 2 else xp.sqrt(v + 1) * d.gain
                k = 3 * k + 1 if k % 2 else k // 2
                trips += 1
            total = total + v * trips
        return total

    return run, reference


@qd.real_func
def root_of_cubic(a: qd.f64, b: qd.f64) -> qd.f64:
    """Where x**3 + a x = b, by Newton's method until it stands still."""
    x = b / (a + 1)
    for _ in range(50):
        step = (x * x * x + a * x - b) / (3 * x * x + a)
        if qd.abs(step) < 1e-14:
            return x
        x -= step
    return x


@model(general=True, a=uniform(0.5, 2, 6), b=normal(6))
def roots(A, V):
    """The reference knows the implicit derivative: a last step from a constant has it."""

    @qd.kernel
    def solve(a: A, b: A, loss: A):
        for n in a:
            loss[None] += qd.sin(root_of_cubic(a[n], b[n])) * root_of_cubic(b[n] ** 2 + 0.3, a[n])

    def run(d):
        solve(d.a, d.b, d.loss)

    def reference(xp, d):
        def root(a, b):
            x = xp.constant(b / (a + 1))
            for _ in range(50):
                x = x - (x**3 + xp.constant(a) * x - xp.constant(b)) / (3 * x**2 + xp.constant(a))
            return x - (x**3 + a * x - b) / (3 * x**2 + xp.constant(a))

        return (xp.sin(root(d.a, d.b)) * root(d.b**2 + 0.3, d.a)).sum()

    return run, reference


@qd.dataclass
class Complex:
    re: qd.f64
    im: qd.f64

    @qd.func
    def times(self, other):
        return Complex(
            self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re
        )


@model(c=uniform(-0.7, 0.3, 5, 2), start=uniform(-0.3, 0.3, 2))
def julia(A, V):
    """Complex numbers as structs with methods."""

    @qd.kernel
    def iterate(c: A, start: A, loss: A):
        for n in range(c.shape[0]):
            z = Complex(start[0], start[1])
            by = Complex(c[n, 0], c[n, 1])
            for k in range(6):
                z = z.times(z)
                if k % 2 == 1:
                    z = z.times(by)
                z.re += by.re
                z.im += by.im
            loss[None] += z.re**2 + z.im * qd.exp(z.re)

    def run(d):
        iterate(d.c, d.start, d.loss)

    def reference(xp, d):
        z, by = xp.complex(d.start[0], d.start[1]), xp.complex(d.c[:, 0], d.c[:, 1])
        for k in range(6):
            z = z * z * (by if k % 2 else 1) + by
        return (z.real**2 + z.imag * xp.exp(z.real)).sum()

    return run, reference


@model(x=normal(8), window=uniform(0.5, 1, 8), re=zeros(8), im=zeros(8))
def spectrum(A, V):
    @qd.data_oriented
    class Transform:
        def __init__(self, n):
            self.n = n
            self.step = 2 * np.pi / n

        @qd.func
        def wave(self, k, t):
            angle = self.step * (k * t % self.n)
            return qd.Vector([qd.cos(angle), -qd.sin(angle)])

        @qd.kernel
        def forward(self, x: A, window: A, re: A, im: A):
            for k, t in qd.ndrange(self.n, self.n):
                z = self.wave(k, t) * x[t] * window[t]
                re[k] += z[0]
                im[k] += z[1]

        @qd.kernel
        def power(self, re: A, im: A, loss: A):
            for k in range(self.n):
                loss[None] += qd.log(1 + re[k] ** 2 + im[k] ** 2) * (k + 1)

    def run(d):
        transform = Transform(8)
        transform.forward(d.x, d.window, d.re, d.im)
        transform.power(d.re, d.im, d.loss)

    def reference(xp, d):
        power = abs(xp.fft.fft(d.x * d.window)) ** 2
        return (xp.log(1 + power) * xp.array(np.arange(1.0, 9.0))).sum()

    return run, reference


@model(x=normal(5, 2), root=uniform(0.6, 1.4, 3), logs=zeros(5))
def planar_flow(A, V):
    """Statements without loops, functions of functions that write through templates, powers."""

    @qd.func
    def bend(s, by):
        return qd.tanh(s * by) + 0.3 * qd.atan2(s, by + 2)

    @qd.func
    def layer(p: qd.template(), log: qd.template(), by):
        old = p.x
        p.x += 0.5 * bend(p.y, by)
        p.y += 0.5 * bend(old + p.x, by) ** 2
        log += qd.log(qd.abs(p.x) + by**p.y)

    @qd.kernel
    def flow(x: A, root: A, logs: A):
        for n in range(x.shape[0]):
            p, log = qd.Vector([x[n, 0], x[n, 1]]), 0.0
            for k in qd.static(range(3)):
                layer(p, log, root[k])
            logs[n] = (
                log + qd.asin(0.9 * qd.sin(p.x)) + qd.acos(0.9 * qd.cos(p.y)) + qd.tan(p.x / 9)
            )

    @qd.kernel
    def product(logs: A, root: A, loss: A):
        p = logs[0] * root[1] ** 2.5
        for n in qd.static(range(1, 5)):
            p = p * 0.5 + logs[n] * p
        loss[None] += p

    def run(d):
        flow(d.x, d.root, d.logs)
        product(d.logs, d.root, d.loss)

    def reference(xp, d):
        def bend(s, by):
            return xp.tanh(s * by) + 0.3 * xp.arctan2(s, by + 2)

        x, y, log = d.x[:, 0], d.x[:, 1], 0
        for by in d.root:
            old = x
            x = x + 0.5 * bend(y, by)
            y = y + 0.5 * bend(old + x, by) ** 2
            log = log + xp.log(abs(x) + by**y)
        log = log + xp.arcsin(0.9 * xp.sin(x)) + xp.arccos(0.9 * xp.cos(y)) + xp.tan(x / 9)
        return log[0] * d.root[1] ** 2.5 * xp.prod(0.5 + log[1:], 0)

    return run, reference


@model(x=normal(4, 6), w=normal(6))
def bubble_sort(A, V):
    @qd.kernel
    def order_statistics(x: A, w: A, loss: A):
        for n in range(x.shape[0]):
            v = qd.Vector([x[n, 0], x[n, 1], x[n, 2], x[n, 3], x[n, 4], x[n, 5]])
            for i in range(5):
                for j in range(5 - i):
                    if v[j] > v[j + 1]:
                        t = v[j]
                        v[j] = v[j + 1]
                        v[j + 1] = t
            for k in range(6):
                loss[None] += w[k] * v[k] * v[(k + 1) % 6]

    def run(d):
        order_statistics(d.x, d.w, d.loss)

    def reference(xp, d):
        s = xp.ascending(d.x)
        return (d.w * s * xp.roll(s, -1, 1)).sum()

    return run, reference


@model(a=normal(4, 5, 5), b=normal(4, 5))
def pivoted_elimination(A, V):
    @qd.kernel
    def solve(a: A, b: A, loss: A):
        for n in range(a.shape[0]):
            m = qd.Matrix.zero(qd.f64, 5, 6)
            for i in range(5):
                for j in range(5):
                    m[i, j] = a[n, i, j]
                m[i, 5] = b[n, i]
            det = 1.0
            for c in range(5):
                at = c
                for r in range(c + 1, 5):
                    if qd.abs(m[r, c]) > qd.abs(m[at, c]):
                        at = r
                if at != c:
                    det = -det
                    for j in range(6):
                        t = m[c, j]
                        m[c, j] = m[at, j]
                        m[at, j] = t
                det *= m[c, c]
                for r in range(5):
                    if r != c:
                        f = m[r, c] / m[c, c]
                        for j in range(c, 6):
                            m[r, j] -= f * m[c, j]
            for i in range(5):
                loss[None] += qd.sin(m[i, 5] / m[i, i]) * (i + 1)
            loss[None] += det**2

    def run(d):
        solve(d.a, d.b, d.loss)

    def reference(xp, d):
        x = xp.linalg.solve(d.a, d.b[..., None])[..., 0]
        return (xp.sin(x) @ xp.array(np.arange(1.0, 6.0))).sum() + (xp.linalg.det(d.a) ** 2).sum()

    return run, reference


@model(x=normal(5), y=normal(6), gamma=exactly(0.5), r=zeros(6, 7))
def soft_time_warping(A, V):
    """A table that is filled from its corner: a loop reads what its earlier trips stored."""

    @qd.kernel
    def fill(x: A, y: A, gamma: A, r: A):
        for _ in range(1):
            for i, j in qd.ndrange((1, 6), (1, 7)):
                up = r[i - 1, j] if i > 1 else 50.0
                left = r[i, j - 1] if j > 1 else 50.0
                both = 50.0
                if i > 1 and j > 1:
                    both = r[i - 1, j - 1]
                elif i == j:
                    both = 0.0
                g, low = gamma[None], qd.min(up, left, both)
                s = qd.exp((low - up) / g) + qd.exp((low - left) / g) + qd.exp((low - both) / g)
                r[i, j] = (x[i - 1] - y[j - 1]) ** 2 + low - g * qd.log(s)

    @qd.kernel
    def corner(r: A, loss: A):
        loss[None] = r[5, 6]

    def run(d):
        fill(d.x, d.y, d.gamma, d.r)
        corner(d.r, d.loss)

    def reference(xp, d):
        far = xp.array(50.0)
        last = [0 * far] + [far] * 6
        for i in range(5):
            row = [far]
            for j in range(6):
                three = xp.stack([last[j + 1], row[j], last[j]])
                soft = -d.gamma * xp.logsumexp(-three / d.gamma, 0)
                row.append((d.x[i] - d.y[j]) ** 2 + soft)
            last = row
        return last[6]

    return run, reference


@model(
    m=normal(5, 4), b=normal(5), rr=zeros(4), pap=zeros(3),
    x=zeros(4, 5), r=zeros(4, 5), p=zeros(4, 5), ap=zeros(3, 5),
)  # fmt: skip
def conjugate_gradient(A, V):
    @qd.kernel
    def begin(b: A, r: A, p: A):
        for i in b:
            r[0, i] = b[i]
            p[0, i] = b[i]

    @qd.kernel
    def square(r: A, rr: A, t: qd.i32):
        for i in range(5):
            rr[t] += r[t, i] ** 2

    @qd.kernel
    def apply(m: A, p: A, ap: A, pap: A, t: qd.i32):
        for i in range(5):
            s = p[t, i]
            for k, j in qd.ndrange(4, 5):
                s += m[i, k] * m[j, k] * p[t, j]
            ap[t, i] = s
            pap[t] += s * p[t, i]

    @qd.kernel
    def move(x: A, r: A, p: A, ap: A, rr: A, pap: A, t: qd.i32):
        for i in range(5):
            x[t + 1, i] = x[t, i] + rr[t] / pap[t] * p[t, i]
            r[t + 1, i] = r[t, i] - rr[t] / pap[t] * ap[t, i]

    @qd.kernel
    def turn(r: A, p: A, rr: A, t: qd.i32):
        for i in range(5):
            p[t + 1, i] = r[t + 1, i] + rr[t + 1] / rr[t] * p[t, i]

    @qd.kernel
    def last(x: A, loss: A):
        for i in range(5):
            loss[None] += qd.sin(x[3, i] + i)

    def run(d):
        begin(d.b, d.r, d.p)
        square(d.r, d.rr, 0)
        for t in range(3):
            apply(d.m, d.p, d.ap, d.pap, t)
            move(d.x, d.r, d.p, d.ap, d.rr, d.pap, t)
            square(d.r, d.rr, t + 1)
            turn(d.r, d.p, d.rr, t)
        last(d.x, d.loss)

    def reference(xp, d):
        a = d.m @ d.m.T + xp.array(np.eye(5))
        x, r, p = 0 * d.b, d.b, d.b
        for _ in range(3):
            step = (r @ r) / (p @ a @ p)
            x, new = x + step * p, r - step * (a @ p)
            r, p = new, new + (new @ new) / (r @ r) * p
        return xp.sin(x + xp.array(np.arange(5.0))).sum()

    return run, reference


@model(x=normal(5, 3, elem=1), way=normal(5, 3, elem=1))
def bouncing_rays(A, V):
    """Structs within structs, which functions change in place and exchange."""
    vec3 = qd.types.vector(3, qd.f64)

    @qd.dataclass
    class Ray:
        origin: vec3
        way: vec3
        t: qd.f64

        @qd.func
        def go(self, s):
            self.origin += s * self.way
            self.t += s * s

    @qd.dataclass
    class Pair:
        a: Ray
        b: Ray

    @qd.func
    def meet(pair: qd.template(), k):
        if k % 2 == 0:
            pair.a.go(pair.b.t + 0.1)
            pair.b.way = (pair.a.origin + 0.5 * pair.a.way).normalized() * 0.3
        else:
            pair.b.go(pair.a.way.dot(pair.b.way))
            old = pair.a
            pair.a = pair.b
            pair.b = old

    @qd.kernel
    def trace(x: V(3), way: V(3), loss: A):
        for n in x:
            pair = Pair(Ray(x[n], way[n], 0.2), Ray(0.5 * way[n].zxy, x[n], x[n].x))
            for k in range(4):
                meet(pair, k + n)
            a, b = pair.a, pair.b
            loss[None] += a.origin.norm_sqr() * 0.1 + b.t * a.t + b.origin.dot(a.way)

    def run(d):
        trace(d.x, d.way, d.loss)

    def reference(xp, d):
        total = 0
        for n in range(5):
            a = d.x[n], d.way[n], xp.array(0.2)
            b = 0.5 * xp.roll(d.way[n], 1, 0), d.x[n], d.x[n, 0]
            for k in range(4):
                if (k + n) % 2 == 0:
                    s = b[2] + 0.1
                    a = a[0] + s * a[1], a[1], a[2] + s * s
                    way = a[0] + 0.5 * a[1]
                    b = b[0], way / xp.linalg.norm(way) * 0.3, b[2]
                else:
                    s = a[1] @ b[1]
                    a, b = (b[0] + s * b[1], b[1], b[2] + s * s), a
            total = total + 0.1 * (a[0] @ a[0]) + b[2] * a[2] + b[0] @ a[1]
        return total

    return run, reference
