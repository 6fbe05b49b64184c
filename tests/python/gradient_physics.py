"""Models for gradients: linear algebra, estimation, simulation.

How they are written: gradient_models.py.
"""

import numpy as np

import quadrants as qd
from gradient_models import exactly, model, normal, uniform, zeros

# --- linear algebra and estimation


@model(a=normal(3, 3, 3, elem=2), b=normal(3, 3, elem=1))
def cholesky_solve(A, V):
    """In place, on a local matrix at indices that loops choose."""

    @qd.kernel
    def solve(a: V(3, 3), b: V(3), loss: A):
        for n in a:
            l = a[n] @ a[n].transpose() + qd.Matrix.identity(qd.f64, 3)
            x = b[n]
            for j in range(3):
                for k in range(j):
                    l[j, j] -= l[j, k] ** 2
                l[j, j] = qd.sqrt(l[j, j])
                for i in range(j + 1, 3):
                    for k in range(j):
                        l[i, j] -= l[i, k] * l[j, k]
                    l[i, j] /= l[j, j]
            for i in range(3):
                for k in range(i):
                    x[i] -= l[i, k] * x[k]
                x[i] /= l[i, i]
            for back in range(3):
                i = 2 - back
                for k in range(i + 1, 3):
                    x[i] -= l[k, i] * x[k]
                x[i] /= l[i, i]
                loss[None] += qd.log(l[i, i]) * 2
            loss[None] += b[n].dot(x) + x[0]

    def run(d):
        solve(d.a, d.b, d.loss)

    def reference(xp, d):
        m = d.a @ xp.swapaxes(d.a, 1, 2) + xp.array(np.eye(3))
        x = xp.linalg.solve(m, d.b[..., None])[..., 0]
        return xp.log(xp.linalg.det(m)).sum() + (d.b * x).sum() + x[:, 0].sum()

    return run, reference


@model(a=uniform(0, 1, 4, 4), start=uniform(0.5, 1, 4), v=zeros(9, 4))
def power_iteration(A, V):
    @qd.kernel
    def begin(start: A, v: A):
        for i in start:
            v[0, i] = start[i]

    @qd.kernel
    def iterate(a: A, v: A):
        for _ in range(1):
            for t in range(8):
                norm = 0.0
                for i in range(4):
                    norm += v[t, i] ** 2
                norm = qd.sqrt(norm)
                for i in range(4):
                    for j in range(4):
                        v[t + 1, i] += a[i, j] * v[t, j] / norm

    @qd.kernel
    def rayleigh(a: A, v: A, loss: A):
        for _ in range(1):
            top, bottom = 0.0, 0.0
            for i, j in qd.ndrange(4, 4):
                top += v[8, i] * a[i, j] * v[8, j]
                bottom += v[8, i] * v[8, i] * 0.25
            loss[None] = top / bottom

    def run(d):
        begin(d.start, d.v)
        iterate(d.a, d.v)
        rayleigh(d.a, d.v, d.loss)

    def reference(xp, d):
        v = d.start
        for _ in range(8):
            v = d.a @ (v / xp.sqrt(v @ v))
        return v @ d.a @ v / (v @ v)

    return run, reference


@model(z=normal(7), q=uniform(0.01, 0.1, 2), r=uniform(0.2, 0.5), start=normal(2, elem=1))
def kalman_filter(A, V):
    @qd.kernel
    def filter(z: A, q: A, r: A, start: V(2), loss: A, dt: qd.f64):
        for _ in range(1):
            x = start[None]
            p = qd.Matrix([[1.0, 0.0], [0.0, 2.0]])
            f = qd.Matrix([[1.0, dt], [0.0, 1.0]])
            for t in range(z.shape[0]):
                x = f @ x
                p = f @ p @ f.transpose() + qd.Matrix([[q[0], 0.0], [0.0, q[1]]])
                s = p[0, 0] + r[None]
                gain = p[:, 0] / s
                off = z[t] - x[0]
                x += gain * off
                p -= gain.outer_product(p[0, :])
                loss[None] += 0.5 * (qd.log(s) + off * off / s)

    def run(d):
        filter(d.z, d.q, d.r, d.start, d.loss, 0.3)

    def reference(xp, d):
        f, h = xp.array([[1, 0.3], [0, 1]]), xp.array([[1.0, 0]])
        x, p, total = d.start[:, None], xp.array([[1.0, 0], [0, 2]]), 0
        for t in range(7):
            x, p = f @ x, f @ p @ f.T + xp.diag(d.q)
            s = h @ p @ h.T + d.r
            gain = xp.linalg.solve(s, h @ p).T
            off = d.z[t] - h @ x
            x, p = x + gain @ off, (xp.array(np.eye(2)) - gain @ h) @ p
            total = total + 0.5 * (
                xp.log(xp.linalg.det(s)) + (off.T @ xp.linalg.inv(s) @ off)[0, 0]
            )
        return total

    return run, reference


@model(y=normal(6), at=uniform(0.1, 4.9, 5), c=zeros(6), e=zeros(6), m=zeros(6))
def cubic_spline(A, V):
    """Natural, on knots 0, 1, ..: the moments by elimination forth and back."""

    @qd.kernel
    def moments(y: A, c: A, e: A, m: A):
        for _ in range(1):
            for i in range(1, 5):
                pivot = 4 - c[i - 1]
                c[i] = 1 / pivot
                e[i] = (6 * (y[i + 1] - 2 * y[i] + y[i - 1]) - e[i - 1]) / pivot
            for k in range(1, 5):
                m[5 - k] = e[5 - k] - c[5 - k] * m[6 - k]

    @qd.kernel
    def evaluate(y: A, m: A, at: A, loss: A):
        for n in at:
            i = int(at[n])
            t = at[n] - i
            s = 1 - t
            bend = ((s**3 - s) * m[i] + (t**3 - t) * m[i + 1]) / 6
            loss[None] += (s * y[i] + t * y[i + 1] + bend) ** 2

    def run(d):
        moments(d.y, d.c, d.e, d.m)
        evaluate(d.y, d.m, d.at, d.loss)

    def reference(xp, d):
        matrix = xp.array(4 * np.eye(4) + np.eye(4, k=1) + np.eye(4, k=-1))
        inner = xp.linalg.solve(matrix, 6 * (d.y[2:] - 2 * d.y[1:-1] + d.y[:-2]))
        m = xp.concatenate([0 * inner[:1], inner, 0 * inner[:1]])
        t = d.at - xp.floor(d.at)
        i = xp.integers(d.at)
        a, b = m[i] / 2, (m[i + 1] - m[i]) / 6
        slope = d.y[i + 1] - d.y[i] - m[i] / 3 - m[i + 1] / 6
        return ((d.y[i] + t * (slope + t * (a + t * b))) ** 2).sum()

    return run, reference


@model(mean=uniform(0, 6, 5), e=uniform(0.1, 0.8, 5))
def newton_of_kepler(A, V):
    @qd.kernel
    def solve(mean: A, e: A, loss: A):
        for n in mean:
            x = mean[n]
            for _ in range(6):
                x -= (x - e[n] * qd.sin(x) - mean[n]) / (1 - e[n] * qd.cos(x))
            loss[None] += x * (1 - e[n] * qd.cos(x))

    def run(d):
        solve(d.mean, d.e, d.loss)

    def reference(xp, d):
        x = d.mean
        for _ in range(6):
            x = x - (x - d.e * xp.sin(x) - d.mean) / (1 - d.e * xp.cos(x))
        return (x * (1 - d.e * xp.cos(x))).sum()

    return run, reference


@model(x=normal(8, 2, elem=1), y=normal(6, 2, elem=1), angle=normal(), shift=normal(2, elem=1))
def icp(A, V):
    @qd.kernel
    def nearest(x: V(2), y: V(2), angle: A, shift: V(2), loss: A):
        for n in x:
            c, s = qd.cos(angle[None]), qd.sin(angle[None])
            p = qd.Matrix([[c, -s], [s, c]]) @ x[n] + shift[None]
            best, which = 1e9, -1
            for k in range(y.shape[0]):
                far = (p - y[k]).norm_sqr()
                if far < best:
                    best = far
                    which = k
            loss[None] += best + 0.1 * p.dot(y[which])

    def run(d):
        nearest(d.x, d.y, d.angle, d.shift, d.loss)

    def reference(xp, d):
        c, s = xp.cos(d.angle), xp.sin(d.angle)
        p = d.x @ xp.stack([c, s, -s, c]).reshape(2, 2) + d.shift
        square = ((p[:, None] - d.y) ** 2).sum(2)
        which = xp.argmin(square, 1)
        return xp.amin(square, (1,)).sum() + 0.1 * (p * d.y[which]).sum()

    return run, reference


@qd.func
def distort(p, k: qd.template()):
    """Radial and tangential, of a point in front of the camera."""
    x, y = p.x / p.z, p.y / p.z
    r = x * x + y * y
    radial = 1 + r * (k[0] + r * k[1])
    return qd.Vector(
        [
            x * radial + 2 * k[2] * x * y + k[3] * (r + 2 * x * x),
            y * radial + k[2] * (r + 2 * y * y) + 2 * k[3] * x * y,
        ]
    )


@model(p=uniform(1, 2, 6, 3, elem=1), k=uniform(-0.2, 0.2, 4), focal=uniform(1, 2, 2, elem=1),
       seen=normal(6, 2, elem=1))  # fmt: skip
def camera(A, V):
    @qd.kernel
    def project(p: V(3), k: A, focal: V(2), seen: V(2), loss: A):
        for n in p:
            loss[None] += (distort(p[n], k) * focal[None] - seen[n]).norm(1e-3)

    def run(d):
        project(d.p, d.k, d.focal, d.seen, d.loss)

    def reference(xp, d):
        u = d.p[:, :2] / d.p[:, 2:]
        r = (u**2).sum(1, keepdims=True)
        swapped = xp.stack([d.k[3], d.k[2]])
        u = u * (1 + d.k[0] * r + d.k[1] * r**2 + 2 * (u @ swapped)[:, None]) + swapped * r
        return xp.sqrt(((u * d.focal - d.seen) ** 2).sum(1) + 1e-3).sum()

    return run, reference


@qd.func
def rodrigues(w, p):
    """p turned around w, by its length."""
    angle = w.norm()
    axis = w / angle
    along = axis * axis.dot(p) * (1 - qd.cos(angle))
    return p * qd.cos(angle) + axis.cross(p) * qd.sin(angle) + along


@model(turn=normal(2, 3, elem=1), shift=uniform(3, 4, 2, 3, elem=1), p=normal(4, 3, elem=1),
       k=uniform(-0.1, 0.1, 4), seen=normal(7, 2, elem=1),
       view=exactly([0, 0, 0, 1, 1, 1, 1]), point=exactly([0, 1, 3, 0, 1, 2, 3]))  # fmt: skip
def bundle_adjustment(A, V):
    @qd.kernel
    def residuals(turn: V(3), shift: V(3), p: V(3), k: A, seen: V(2), view: A, point: A, loss: A):
        for o in seen:
            q = rodrigues(turn[view[o]], p[point[o]]) + shift[view[o]]
            r = (distort(q, k) - seen[o]).norm()
            if r < 0.8:
                loss[None] += 0.5 * r * r
            else:
                loss[None] += 0.8 * (r - 0.4)

    def run(d):
        residuals(d.turn, d.shift, d.p, d.k, d.seen, d.view, d.point, d.loss)

    def reference(xp, d):
        total = 0
        for o, (i, j) in enumerate([(0, 0), (0, 1), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]):
            q = xp.expm(xp.hat(d.turn[i])) @ d.p[j] + d.shift[i]
            u = q[:2] / q[2]
            r = u @ u
            u = u * (1 + r * (d.k[0] + r * d.k[1]) + 2 * (u[0] * d.k[3] + u[1] * d.k[2]))
            u = u + xp.stack([d.k[3], d.k[2]]) * r
            total = total + xp.huber(xp.sqrt(((u - d.seen[o]) ** 2).sum()), 0.8)
        return total

    return run, reference


# --- simulation


@model(x=normal(4, 2, elem=1), v=normal(4, 2, elem=1), rest=uniform(0.5, 1.5, 5),
       stiff=uniform(5, 9),
       a=exactly([0, 1, 2, 3, 0]), b=exactly([1, 2, 3, 0, 2]),
       xs=zeros(7, 4, 2, elem=1), vs=zeros(7, 4, 2, elem=1), f=zeros(6, 4, 2, elem=1))  # fmt: skip
def mass_spring(A, V):
    @qd.kernel
    def begin(x: V(2), v: V(2), xs: V(2), vs: V(2)):
        for i in x:
            xs[0, i] = x[i]
            vs[0, i] = v[i]

    @qd.kernel
    def springs(xs: V(2), a: A, b: A, rest: A, stiff: A, f: V(2), t: qd.i32):
        for s in rest:
            d = xs[t, b[s]] - xs[t, a[s]]
            force = stiff[None] * (d.norm() - rest[s]) * d.normalized()
            f[t, a[s]] += force
            f[t, b[s]] -= force

    @qd.kernel
    def move(xs: V(2), vs: V(2), f: V(2), t: qd.i32):
        for i in range(xs.shape[1]):
            v = vs[t, i] * 0.98 + 0.05 * (f[t, i] - qd.Vector([0.0, 1.0]))
            vs[t + 1, i] = v
            xs[t + 1, i] = xs[t, i] + 0.05 * v

    @qd.kernel
    def energy(xs: V(2), vs: V(2), loss: A):
        for i in range(xs.shape[1]):
            loss[None] += 0.5 * vs[6, i].norm_sqr() + xs[6, i].y

    def run(d):
        begin(d.x, d.v, d.xs, d.vs)
        for t in range(6):
            springs(d.xs, d.a, d.b, d.rest, d.stiff, d.f, t)
            move(d.xs, d.vs, d.f, t)
        energy(d.xs, d.vs, d.loss)

    def reference(xp, d):
        ends = xp.array(np.eye(4)[[1, 2, 3, 0, 2]] - np.eye(4)[[0, 1, 2, 3, 0]])
        x, v = d.x, d.v
        for _ in range(6):
            e = ends @ x
            length = xp.sqrt((e**2).sum(1, keepdims=True))
            f = -ends.T @ (d.stiff * (e - d.rest[:, None] * e / length))
            v = v * 0.98 + 0.05 * (f - xp.array([0.0, 1.0]))
            x = x + 0.05 * v
        return 0.5 * (v**2).sum() + x[:, 1].sum()

    return run, reference


@model(start=normal(2, 4), mass=uniform(0.5, 2, 2), length=uniform(0.5, 1.5, 2))
def double_pendulum_rk4(A, V):
    @qd.func
    def slope(y, m: qd.template(), l: qd.template()):
        a, b, p, q = y[0], y[1], y[2], y[3]
        s, c = qd.sin(a - b), qd.cos(a - b)
        big = (m[0] + m[1]) * l[0]
        off = m[1] * l[1] * c
        r = -m[1] * l[1] * q * q * s - 9.8 * (m[0] + m[1]) * qd.sin(a)
        t = l[0] * p * p * s - 9.8 * qd.sin(b)
        det = big * l[1] - off * l[0] * c
        return qd.Vector([p, q, (r * l[1] - off * t) / det, (big * t - l[0] * c * r) / det])

    @qd.kernel
    def simulate(start: A, mass: A, length: A, loss: A, steps: qd.i32, dt: qd.f64):
        for n in range(start.shape[0]):
            y = qd.Vector([start[n, 0], start[n, 1], start[n, 2], start[n, 3]])
            for _ in range(steps):
                k1 = slope(y, mass, length)
                k2 = slope(y + 0.5 * dt * k1, mass, length)
                k3 = slope(y + 0.5 * dt * k2, mass, length)
                y += dt / 6 * (k1 + 2 * k2 + 2 * k3 + slope(y + dt * k3, mass, length))
            loss[None] += length[0] * qd.sin(y[0]) + length[1] * qd.cos(y[1]) + y[2] * y[3]

    def run(d):
        simulate(d.start, d.mass, d.length, d.loss, 5, 0.04)

    def reference(xp, d):
        (m, n), (l, k) = d.mass, d.length

        def slope(y):
            a, b = y[:, 0], y[:, 1]
            s, c = xp.sin(a - b), xp.cos(a - b)
            matrix = xp.stack([(m + n) * l + 0 * c, n * k * c, l * c, k + 0 * c], 1)
            right = xp.stack(
                [
                    -n * k * y[:, 3] ** 2 * s - 9.8 * (m + n) * xp.sin(a),
                    l * y[:, 2] ** 2 * s - 9.8 * xp.sin(b),
                ],
                1,
            )
            bend = xp.linalg.solve(matrix.reshape(-1, 2, 2), right[..., None])[..., 0]
            return xp.concatenate([y[:, 2:], bend], 1)

        y, dt = d.start, 0.04
        for _ in range(5):
            k1 = slope(y)
            k2 = slope(y + dt / 2 * k1)
            k3 = slope(y + dt / 2 * k2)
            y = y + dt * (k1 / 6 + k2 / 3 + k3 / 3 + slope(y + dt * k3) / 6)
        return (l * xp.sin(y[:, 0]) + k * xp.cos(y[:, 1]) + y[:, 2] * y[:, 3]).sum()

    return run, reference


@model(x=normal(5, 3, elem=1), v=normal(5, 3, elem=1), mass=uniform(0.5, 2, 5),
       xs=zeros(4, 5, 3, elem=1), vs=zeros(4, 5, 3, elem=1))  # fmt: skip
def n_body(A, V):
    """One kernel with a loop for each half of each step: they pass on what they find in memory."""

    @qd.func
    def pull(xs: V(3), mass: A, t, i):
        force = qd.Vector([0.0, 0.0, 0.0])
        for j in range(mass.shape[0]):
            if i != j:
                d = xs[t, j] - xs[t, i]
                force += mass[j] * d * d.norm_inv(0.1) ** 3
        return force

    @qd.kernel
    def simulate(x: V(3), v: V(3), mass: A, xs: V(3), vs: V(3), loss: A):
        for i in range(5):
            xs[0, i] = x[i]
        for i in range(5):
            vs[0, i] = v[i] + 0.05 * pull(xs, mass, 0, i)
        for t in qd.static(range(3)):
            for i in range(5):
                xs[t + 1, i] = xs[t, i] + 0.1 * vs[t, i]
            for i in range(5):
                vs[t + 1, i] = vs[t, i] + 0.1 * pull(xs, mass, t + 1, i)
        for i in range(5):
            loss[None] += mass[i] * (vs[3, i].norm_sqr() + xs[3, i].dot(x[i]))

    def run(d):
        simulate(d.x, d.v, d.mass, d.xs, d.vs, d.loss)

    def reference(xp, d):
        def pull(x):
            far = x[None] - x[:, None]
            weight = d.mass * ((far**2).sum(2) + 0.1) ** -1.5
            return xp.einsum("ij,ijk->ik", weight, far)

        x, v = d.x, d.v + 0.05 * pull(d.x)
        for _ in range(3):
            x = x + 0.1 * v
            v = v + 0.1 * pull(x)
        return (d.mass * ((v**2).sum(1) + (x * d.x).sum(1))).sum()

    return run, reference


@model(start=normal(6, 5), conduct=uniform(0.02, 0.2, 6, 5), source=normal(6, 5), u=zeros(5, 6, 5))
def heat_equation(A, V):
    @qd.kernel
    def step(start: A, conduct: A, source: A, u: A, t: qd.template()):
        for i, j in conduct:
            if qd.static(t == 0):
                u[0, i, j] = start[i, j]
            else:
                flow = 0.0
                for d in qd.static([(1, 0), (-1, 0), (0, 1), (0, -1)]):
                    k, l = i + d[0], j + d[1]
                    if 0 <= k < 6 and 0 <= l < 5:
                        between = 0.5 * (conduct[i, j] + conduct[k, l])
                        flow += between * (u[t - 1, k, l] - u[t - 1, i, j])
                u[t, i, j] = u[t - 1, i, j] + flow + 0.1 * source[i, j]

    @qd.kernel
    def measure(u: A, loss: A):
        for i, j in qd.ndrange((1, 5), (0, 4)):
            loss[None] += u[4, i, j] ** 2

    def run(d):
        for t in range(5):
            step(d.start, d.conduct, d.source, d.u, t)
        measure(d.u, d.loss)

    def reference(xp, d):
        u, k = d.start, d.conduct
        for _ in range(4):
            down = 0.5 * (k[1:] + k[:-1]) * (u[1:] - u[:-1])
            right = 0.5 * (k[:, 1:] + k[:, :-1]) * (u[:, 1:] - u[:, :-1])
            flow = xp.concatenate([down, 0 * u[:1]]) - xp.concatenate([0 * u[:1], down])
            flow = flow + xp.concatenate([right, 0 * u[:, :1]], 1)
            flow = flow - xp.concatenate([0 * u[:, :1], right], 1)
            u = u + flow + 0.1 * d.source
        return (u[1:5, :4] ** 2).sum()

    return run, reference


@model(start=normal(5, 6), wind=uniform(-1, 1, 5, 6, 2, elem=1), u=zeros(4, 5, 6))
def advection(A, V):
    """Semi-Lagrangian: what was there at the place that the wind comes from."""

    @qd.func
    def sample(u: A, t, p):
        x = qd.math.clamp(p.x, 0.0, 3.999)
        y = qd.math.clamp(p.y, 0.0, 4.999)
        i, j = int(x), int(y)
        a, b = x - i, y - j
        low = u[t, i, j] * (1 - b) + u[t, i, j + 1] * b
        return low + a * (u[t, i + 1, j] * (1 - b) + u[t, i + 1, j + 1] * b - low)

    @qd.kernel
    def begin(start: A, u: A):
        for i, j in start:
            u[0, i, j] = start[i, j]

    @qd.kernel
    def step(wind: V(2), u: A, t: qd.i32):
        for i, j in wind:
            u[t + 1, i, j] = sample(u, t, qd.Vector([i, j]) - 0.8 * wind[i, j])

    @qd.kernel
    def measure(u: A, loss: A):
        for i, j in qd.ndrange(5, 6):
            loss[None] += u[3, i, j] * u[3, (i + 1) % 5, j]

    def run(d):
        begin(d.start, d.u)
        for t in range(3):
            step(d.wind, d.u, t)
        measure(d.u, d.loss)

    def reference(xp, d):
        u = d.start
        grid = xp.array(np.stack(np.meshgrid(np.arange(5.0), np.arange(6.0), indexing="ij"), 2))
        p = grid - 0.8 * d.wind
        x, y = xp.clip(p[..., 0], 0, 3.999), xp.clip(p[..., 1], 0, 4.999)
        for _ in range(3):
            u = xp.bilinear(u, x, y)
        return (u * xp.roll(u, -1, 0)).sum()

    return run, reference


@qd.func
def turned(q, p):
    """p by the quaternion q, whose real part is its last."""
    return p + 2 * q.xyz.cross(q.xyz.cross(p) + q.w * p)


@model(angle=normal(4), axis=normal(4, 3, elem=1), bone=normal(4, 3, elem=1), aim=normal(3, elem=1))
def forward_kinematics(A, V):
    @qd.func
    def product(a, b):
        v = a.w * b.xyz + b.w * a.xyz + a.xyz.cross(b.xyz)
        return qd.Vector([v.x, v.y, v.z, a.w * b.w - a.xyz.dot(b.xyz)])

    @qd.kernel
    def reach(angle: A, axis: V(3), bone: V(3), aim: V(3), loss: A):
        for _ in range(1):
            q, end = qd.Vector([0.0, 0.0, 0.0, 1.0]), qd.Vector([0.0, 0.0, 0.0])
            for k in range(angle.shape[0]):
                v = axis[k].normalized() * qd.sin(angle[k] / 2)
                q = product(q, qd.Vector([v.x, v.y, v.z, qd.cos(angle[k] / 2)]))
                end += turned(q, bone[k])
            loss[None] += (end - aim[None]).norm_sqr() + q.w * q.x

    def run(d):
        reach(d.angle, d.axis, d.bone, d.aim, d.loss)

    def reference(xp, d):
        turn, end = xp.array(np.eye(3)), 0
        q = xp.array(np.eye(4))
        for k in range(4):
            w = d.angle[k] * d.axis[k] / xp.sqrt((d.axis[k] ** 2).sum())
            turn = turn @ xp.expm(xp.hat(w))
            end = end + turn @ d.bone[k]
            zero = 0 * w[:1]
            top = xp.concatenate([zero, -w])[None]
            q = q @ xp.expm(0.5 * xp.concatenate([top, xp.concatenate([w[:, None], xp.hat(w)], 1)]))
        return ((end - d.aim) ** 2).sum() + q[0, 0] * q[1, 0]

    return run, reference


@model(p=normal(6, 3, elem=1), mass=uniform(0.5, 2, 6), spin=normal(3, elem=1),
       total=zeros(), centre=zeros(3, elem=1), inertia=zeros(3, 3, elem=2))  # fmt: skip
def rigid_body(A, V):
    """Kinetic energy of a body of points, from its angular momentum."""

    @qd.kernel
    def weigh(p: V(3), mass: A, total: A, centre: V(3)):
        for n in p:
            total[None] += mass[n]
            centre[None] += mass[n] * p[n]

    @qd.kernel
    def gather(p: V(3), mass: A, total: A, centre: V(3), inertia: V(3, 3)):
        for n in p:
            r = p[n] - centre[None] / total[None]
            part = mass[n] * (r.norm_sqr() * qd.Matrix.identity(qd.f64, 3) - r.outer_product(r))
            inertia[None] += part

    @qd.kernel
    def energy(inertia: V(3, 3), spin: V(3), loss: A):
        omega = inertia[None].inverse() @ spin[None]
        loss[None] += 0.5 * omega.dot(spin[None]) + qd.log(inertia[None].determinant())

    def run(d):
        weigh(d.p, d.mass, d.total, d.centre)
        gather(d.p, d.mass, d.total, d.centre, d.inertia)
        energy(d.inertia, d.spin, d.loss)

    def reference(xp, d):
        r = d.p - d.mass @ d.p / d.mass.sum()
        crossed = xp.stack([xp.hat(x) for x in r])
        inertia = xp.einsum("n,nki,nkj->ij", d.mass, crossed, crossed)
        energy = 0.5 * d.spin @ xp.linalg.solve(inertia, d.spin[:, None])[:, 0]
        return energy + xp.log(xp.linalg.det(inertia))

    return run, reference


@model(rest=exactly([[0, 0], [1.1, 0.1], [0.2, 0.9], [1, 1.2]]),
       move=uniform(-0.2, 0.2, 4, 2, elem=1), corner=exactly([[0, 1, 2], [1, 3, 2]]),
       lame=uniform(0.5, 2, 2))  # fmt: skip
def neo_hookean(A, V):
    @qd.func
    def edges(a, b, c):
        return qd.Matrix.cols([b - a, c - a])

    @qd.kernel
    def energy(rest: A, move: V(2), corner: A, lame: A, loss: A):
        for t in range(corner.shape[0]):
            a, b, c = corner[t, 0], corner[t, 1], corner[t, 2]
            p, q = qd.Vector([rest[a, 0], rest[a, 1]]), qd.Vector([rest[b, 0], rest[b, 1]])
            r = qd.Vector([rest[c, 0], rest[c, 1]])
            before = edges(p, q, r)
            f = edges(p + move[a], q + move[b], r + move[c]) @ before.inverse()
            j = qd.log(f.determinant())
            shear = 0.5 * lame[0] * ((f.transpose() @ f).trace() - 2 - 2 * j)
            loss[None] += 0.5 * before.determinant() * (shear + 0.5 * lame[1] * j**2)

    def run(d):
        energy(d.rest, d.move, d.corner, d.lame, d.loss)

    def reference(xp, d):
        def edges(p):
            p = p[d.corner]
            return xp.swapaxes(p[:, 1:] - p[:, :1], 1, 2)

        before, after = edges(d.rest), edges(d.rest + d.move)
        f = xp.swapaxes(xp.linalg.solve(xp.swapaxes(before, 1, 2), xp.swapaxes(after, 1, 2)), 1, 2)
        j = xp.log(xp.linalg.det(f))
        shear = d.lame[0] / 2 * ((f**2).sum((1, 2)) - 2 - 2 * j)
        return (0.5 * xp.linalg.det(before) * (shear + d.lame[1] / 2 * j**2)).sum()

    return run, reference


@model(x=uniform(0, 1, 9, 2, elem=1), mass=uniform(0.5, 2, 9), rho=zeros(9))
def sph(A, V):
    @qd.kernel
    def density(x: V(2), mass: A, rho: A):
        for i, j in qd.ndrange(x.shape[0], x.shape[0]):
            square = (x[i] - x[j]).norm_sqr()
            if square < 0.16:
                rho[i] += mass[j] * (1 - square / 0.16) ** 3

    @qd.kernel
    def pressure(mass: A, rho: A, loss: A):
        for i in rho:
            loss[None] += mass[i] * qd.max(rho[i] - 1.5, 0) ** 2 / rho[i]

    def run(d):
        density(d.x, d.mass, d.rho)
        pressure(d.mass, d.rho, d.loss)

    def reference(xp, d):
        square = ((d.x[:, None] - d.x) ** 2).sum(2)
        rho = xp.clip(1 - square / 0.16, 0, None) ** 3 @ d.mass
        return (d.mass * xp.relu(rho - 1.5) ** 2 / rho).sum()

    return run, reference


@model(x=normal(5, 3, elem=1), stiff=uniform(0.5, 2, 2), fold=exactly([[0, 1, 2, 3], [1, 2, 3, 4]]))
def cloth_bending(A, V):
    @qd.kernel
    def hinges(x: V(3), stiff: A, fold: A, loss: A):
        for h in stiff:
            a, b, c, d = x[fold[h, 0]], x[fold[h, 1]], x[fold[h, 2]], x[fold[h, 3]]
            edge = c - b
            m, n = (a - b).cross(edge), edge.cross(d - b)
            angle = qd.atan2(m.cross(n).dot(edge.normalized()), m.dot(n))
            loss[None] += stiff[h] * (angle - 0.2) ** 2 * edge.norm_sqr() / (m.norm() + n.norm())

    def run(d):
        hinges(d.x, d.stiff, d.fold, d.loss)

    def reference(xp, d):
        total = 0
        for h in range(2):
            a, b, c, e = d.x[h], d.x[h + 1], d.x[h + 2], d.x[h + 3]
            edge = c - b
            m, n = xp.linalg.cross(a - b, edge), xp.linalg.cross(edge, e - b)
            length = xp.linalg.norm
            sign = xp.where(m @ (e - b) * -1 > 0, -1, 1)
            angle = sign * xp.arccos(m @ n / length(m) / length(n))
            part = (angle - 0.2) ** 2 * (edge @ edge) / (length(m) + length(n))
            total = total + d.stiff[h] * part
        return total

    return run, reference
