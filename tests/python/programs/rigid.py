"""Torque-free rigid bodies: quaternions, inertia tensors, conservation of angular momentum."""

import numpy as np

import quadrants as qd

N, STEPS, DT = 32, 200, 0.01

vec3, vec4 = qd.types.vector(3, qd.f64), qd.types.vector(4, qd.f64)
mat3 = qd.types.matrix(3, 3, qd.f64)


@qd.dataclass
class Body:
    q: vec4
    w: vec3
    inertia: vec3

    @qd.func
    def rotation(self):
        s, v = self.q[3], self.q.xyz
        m = mat3(0.0)
        for i, j in qd.static(qd.ndrange(3, 3)):
            m[i, j] = 2 * v[i] * v[j]
        for i in qd.static(range(3)):
            m[i, i] += s * s - v.dot(v)
        cross = mat3([[0, -v.z, v.y], [v.z, 0, -v.x], [-v.y, v.x, 0]])
        return m + 2 * s * cross

    @qd.func
    def momentum(self):
        return self.rotation() @ (self.inertia * self.w)


@qd.func
def multiply(a, b):
    v = a[3] * b.xyz + b[3] * a.xyz + a.xyz.cross(b.xyz)
    return vec4(v, a[3] * b[3] - a.xyz.dot(b.xyz))


bodies = Body.field(shape=N)


@qd.kernel
def setup():
    for i in bodies:
        t = qd.f64(i) * 0.37
        axis = vec3(qd.sin(t), qd.cos(t), 0.5).normalized()
        bodies[i].q = vec4(axis * qd.sin(t / 2), qd.cos(t / 2))
        bodies[i].w = vec3(1.0 + 0.1 * i, 0.05, -0.02 * i)
        bodies[i].inertia = vec3(1.0, 2.0 + 0.1 * i, 3.0)


@qd.func
def slope(w, inertia):
    return -w.cross(inertia * w) / inertia


@qd.kernel
def step():
    for i in bodies:
        w, inertia = bodies[i].w, bodies[i].inertia
        k1 = slope(w, inertia)
        k2 = slope(w + 0.5 * DT * k1, inertia)
        k3 = slope(w + 0.5 * DT * k2, inertia)
        k4 = slope(w + DT * k3, inertia)
        middle = w + DT / 4 * (k1 + k2)
        bodies[i].w = w + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        q = bodies[i].q
        q += 0.5 * DT * multiply(q, vec4(middle, 0.0))
        bodies[i].q = q.normalized()


@qd.kernel
def momenta(out: qd.types.ndarray(dtype=vec3, ndim=1)):
    for i in bodies:
        out[i] = bodies[i].momentum()


def main():
    before, after = np.zeros((N, 3)), np.zeros((N, 3))
    setup()
    momenta(before)
    for _ in range(STEPS):
        step()
    momenta(after)
    assert np.abs(after - before).max() < 0.05 * np.abs(before).max()
    return {"q": bodies.q.to_numpy(), "w": bodies.w.to_numpy(), "momentum": after}
