"""Kalman filters with matrices: many independent tracks, predicted and corrected in parallel."""

import numpy as np

import quadrants as qd

TRACKS, STEPS, DT = 24, 50, 0.1

vec2, vec4 = qd.types.vector(2, qd.f64), qd.types.vector(4, qd.f64)
mat22, mat24 = qd.types.matrix(2, 2, qd.f64), qd.types.matrix(2, 4, qd.f64)
mat42, mat44 = qd.types.matrix(4, 2, qd.f64), qd.types.matrix(4, 4, qd.f64)

F = qd.Matrix([[1, 0, DT, 0], [0, 1, 0, DT], [0, 0, 1, 0], [0, 0, 0, 1]], dt=qd.f64)
Hm = qd.Matrix([[1, 0, 0, 0], [0, 1, 0, 0]], dt=qd.f64)


@qd.func
def predict(x, P, q):
    f = mat44(0.0)
    for i, j in qd.static(qd.ndrange(4, 4)):
        f[i, j] = F[i, j]
    Q = mat44(0.0)
    for i in qd.static(range(4)):
        Q[i, i] = q * (1.0 if i >= 2 else 0.1)
    return f @ x, f @ P @ f.transpose() + Q


@qd.func
def correct(x, P, z, r):
    h = mat24(0.0)
    for i, j in qd.static(qd.ndrange(2, 4)):
        h[i, j] = Hm[i, j]
    S = h @ P @ h.transpose() + r * qd.Matrix.identity(qd.f64, 2)
    K = P @ h.transpose() @ S.inverse()
    xn = x + K @ (z - h @ x)
    Pn = (qd.Matrix.identity(qd.f64, 4) - K @ h) @ P
    return xn, (Pn + Pn.transpose()) * 0.5


@qd.kernel
def track(
    z: qd.types.ndarray(dtype=vec2, ndim=2),
    x: qd.types.ndarray(dtype=vec4, ndim=1),
    P: qd.types.ndarray(dtype=mat44, ndim=1),
    log: qd.types.ndarray(dtype=vec4, ndim=2),
):
    for k in range(z.shape[0]):
        xs, Ps = x[k], P[k]
        for t in range(z.shape[1]):
            xs, Ps = predict(xs, Ps, 0.01)
            if (t + k) % 5 != 0:  # every fifth measurement is missing
                xs, Ps = correct(xs, Ps, z[k, t], 0.04)
            log[k, t] = xs
        x[k], P[k] = xs, Ps


def main():
    rng = np.random.default_rng(11)
    t = np.arange(STEPS) * DT
    phase = np.linspace(0, 3, TRACKS)[:, None]
    truth = np.stack([np.sin(t + phase), 0.5 * t * np.cos(phase)], axis=-1)
    z = truth + 0.2 * rng.standard_normal(truth.shape)
    x = np.zeros((TRACKS, 4))
    P = np.broadcast_to(np.eye(4), (TRACKS, 4, 4)).copy()
    log = np.zeros((TRACKS, STEPS, 4))
    track(np.ascontiguousarray(z), x, P, log)
    assert np.abs(log[:, 20:, :2] - truth[:, 20:]).mean() < 0.25
    return {"x": x, "P": P, "log": log[::4, ::5]}
