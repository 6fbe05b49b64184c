"""What users of simulators and of learning differentiate, each twice: as kernels, and as a
reference for torch and JAX, which is written with their operators, by other formulas where there
are any. Here: what models declare, and learning. More are in gradient_physics.py and
gradient_language.py.

A model is a function of two annotations, `A` of arrays and `V(3)`, `V(2, 2)` of arrays of vectors
and matrices: its kernels take fields as well as ndarrays and torch's tensors. It returns `run(d)`,
which calls the kernels with the data `d`, and `reference(xp, d)`, which returns the loss; `xp` is
a table in test_gradient_torch.py. No value lies where a branch, a minimum or a rounding turns.
"""

import types

import numpy as np

import quadrants as qd

MODELS = {}


def data(draw, *shape, elem=0, grad=True):
    """An input; its last `elem` axes are those of a vector or matrix."""
    return types.SimpleNamespace(draw=draw, shape=shape, elem=elem, grad=grad, temporary=False)


def normal(*shape, **kw):
    return data(lambda r: r.normal(size=shape), *shape, **kw)


def uniform(low, high, *shape, **kw):
    return data(lambda r: r.uniform(low, high, shape), *shape, **kw)


def ints(below, *shape):
    return data(lambda r: r.integers(0, below, shape, dtype=np.int32), *shape, grad=False)


def exactly(values):
    values = np.asarray(values)
    values = values.astype(np.int32 if values.dtype.kind == "i" else np.float64)
    return data(lambda r: values, *values.shape, grad=values.dtype.kind == "f")


def zeros(*shape, elem=0):
    """What kernels write, and others read."""
    d = data(lambda r: np.zeros(shape), *shape, elem=elem)
    d.temporary = True
    return d


def model(general=False, **declared):
    """`general`: needs ad_general_control."""

    def register(f):
        MODELS[f.__name__] = types.SimpleNamespace(build=f, general=general, data=declared)
        return f

    return register


# --- learning


@model(x=normal(6, 4), w=normal(4, 5), b=normal(5), v=normal(5, 3), y=normal(6, 3), h=zeros(6, 5))
def mlp(A, V):
    @qd.kernel
    def hidden(x: A, w: A, b: A, h: A):
        for n, k in qd.ndrange(x.shape[0], w.shape[1]):
            s = b[k]
            for j in range(x.shape[1]):
                s += x[n, j] * w[j, k]
            h[n, k] = qd.tanh(s)

    @qd.kernel
    def out(h: A, v: A, y: A, loss: A):
        for n, k in qd.ndrange(h.shape[0], v.shape[1]):
            s = 0.0
            for j in range(h.shape[1]):
                s += h[n, j] * v[j, k]
            loss[None] += (qd.max(s, 0.1 * s) - y[n, k]) ** 2 / h.shape[0]

    def run(d):
        hidden(d.x, d.w, d.b, d.h)
        out(d.h, d.v, d.y, d.loss)

    def reference(xp, d):
        s = xp.tanh(d.x @ d.w + d.b) @ d.v
        return ((xp.where(s > 0, s, 0.1 * s) - d.y) ** 2).sum() / 6

    return run, reference


@model(x=normal(7, 5), label=ints(5, 7), weight=uniform(0.5, 2, 5))
def softmax_cross_entropy(A, V):
    @qd.kernel
    def rows(x: A, label: A, weight: A, loss: A):
        for n in range(x.shape[0]):
            top = x[n, 0]
            for k in range(1, x.shape[1]):
                top = qd.max(top, x[n, k])
            total = 0.0
            for k in range(x.shape[1]):
                total += qd.exp(x[n, k] - top)
            loss[None] += weight[label[n]] * (qd.log(total) + top - x[n, label[n]])

    def run(d):
        rows(d.x, d.label, d.weight, d.loss)

    def reference(xp, d):
        return (xp.cross_entropy(d.x, d.label) * d.weight[d.label]).sum()

    return run, reference


@model(a=normal(3, 4), b=normal(4, 5), c=normal(5, 2), ab=zeros(3, 5), abc=zeros(3, 2))
def matrix_products(A, V):
    @qd.kernel
    def product(a: A, b: A, out: A):
        for i, k, j in qd.ndrange(a.shape[0], a.shape[1], b.shape[1]):
            out[i, j] += a[i, k] * b[k, j]

    @qd.kernel
    def norm(a: A, loss: A):
        for i, j in a:
            loss[None] += qd.sin(a[i, j]) * a[i, j]

    def run(d):
        product(d.a, d.b, d.ab)
        product(d.ab, d.c, d.abc)
        norm(d.abc, d.loss)

    def reference(xp, d):
        m = d.a @ d.b @ d.c
        return (xp.sin(m) * m).sum()

    return run, reference


@model(x=normal(5, 6), gain=normal(6), bias=normal(6), y=normal(5, 6))
def layer_norm(A, V):
    @qd.kernel
    def rows(x: A, gain: A, bias: A, y: A, loss: A, eps: qd.f64):
        for n in range(x.shape[0]):
            mean, square = 0.0, 0.0
            for k in range(x.shape[1]):
                mean += x[n, k] / x.shape[1]
            for k in range(x.shape[1]):
                square += (x[n, k] - mean) ** 2
            scale = qd.rsqrt(square / x.shape[1] + eps)
            for k in range(x.shape[1]):
                loss[None] += qd.abs((x[n, k] - mean) * scale * gain[k] + bias[k] - y[n, k])

    def run(d):
        rows(d.x, d.gain, d.bias, d.y, d.loss, 1e-3)

    def reference(xp, d):
        return abs(xp.layer_norm(d.x, d.gain, d.bias, 1e-3) - d.y).sum()

    return run, reference


@model(x=normal(8, 3), gain=normal(3), mean=zeros(3), square=zeros(3), out=zeros(8, 3))
def batch_norm(A, V):
    @qd.kernel
    def moments(x: A, mean: A, square: A):
        for n, k in x:
            mean[k] += x[n, k] / x.shape[0]
            square[k] += x[n, k] ** 2 / x.shape[0]

    @qd.kernel
    def normalise(x: A, mean: A, square: A, gain: A, out: A):
        for i in qd.grouped(x):
            k = i[1]
            out[i] = gain[k] * (x[i] - mean[k]) / qd.sqrt(square[k] - mean[k] ** 2 + 1e-2)

    @qd.kernel
    def sum_up(out: A, loss: A):
        for n, k in out:
            loss[None] += qd.exp(0.3 * out[n, k] * (n - k))

    def run(d):
        moments(d.x, d.mean, d.square)
        normalise(d.x, d.mean, d.square, d.gain, d.out)
        sum_up(d.out, d.loss)

    def reference(xp, d):
        centred = d.x - d.x.mean(0)
        out = d.gain * centred / xp.sqrt((centred**2).mean(0) + 1e-2)
        return xp.exp(0.3 * out * xp.array(np.arange(8.0)[:, None] - np.arange(3.0))).sum()

    return run, reference


@model(x=normal(13), w=normal(4), out=zeros(7))
def convolution_1d(A, V):
    @qd.kernel
    def conv(x: A, w: A, out: A, stride: qd.template(), pad: qd.template()):
        for o in range(out.shape[0]):
            for k in range(w.shape[0]):
                i = o * stride + k - pad
                if 0 <= i < x.shape[0]:
                    out[o] += x[i] * w[k]

    @qd.kernel
    def gate(out: A, loss: A):
        for o in out:
            loss[None] += out[o] * qd.math.clamp(out[o] / 6 + 0.5, 0, 1)

    def run(d):
        conv(d.x, d.w, d.out, 2, 2)
        gate(d.out, d.loss)

    def reference(xp, d):
        return xp.hardswish(xp.conv(d.x[None, None], d.w[None, None], 2, 2)).sum()

    return run, reference


@model(x=normal(2, 6, 7), w=normal(3, 2, 3, 2), b=normal(3), out=zeros(3, 4, 6))
def convolution_2d_and_max_pool(A, V):
    @qd.kernel
    def conv(x: A, w: A, b: A, out: A):
        for o, i, j in out:
            s = b[o]
            for c, k, l in qd.ndrange(w.shape[1], w.shape[2], w.shape[3]):
                s += x[c, i + k, j + l] * w[o, c, k, l]
            out[o, i, j] = s

    @qd.kernel
    def pool(out: A, loss: A):
        for o, i, j in qd.ndrange(3, 2, 3):
            m = out[o, 2 * i, 2 * j]
            for k, l in qd.static(qd.ndrange(2, 2)):
                m = qd.max(m, out[o, 2 * i + k, 2 * j + l])
            loss[None] += m * m * (1 + o)

    def run(d):
        conv(d.x, d.w, d.b, d.out)
        pool(d.out, d.loss)

    def reference(xp, d):
        out = xp.conv(d.x[None], d.w, 1, 0)[0] + d.b[:, None, None]
        top = xp.amax(out.reshape(3, 2, 2, 3, 2), (2, 4))
        return (top**2 * xp.array(np.arange(1.0, 4.0))[:, None, None]).sum()

    return run, reference


@qd.func
def sigmoid(x):
    return 1 / (1 + qd.exp(-x))


@model(
    x=normal(5, 2, 3), w=normal(12, 3), u=normal(12, 3), b=normal(12),
    h=zeros(6, 2, 3), c=zeros(6, 2, 3),
)  # fmt: skip
def lstm(A, V):
    @qd.func
    def gate(x: A, w: A, u: A, b: A, h: A, t, n, row):
        s = b[row]
        for k in range(3):
            s += x[t, n, k] * w[row, k] + h[t, n, k] * u[row, k]
        return s

    @qd.kernel
    def step(x: A, w: A, u: A, b: A, h: A, c: A, t: qd.i32):
        for n, k in qd.ndrange(2, 3):
            keep = sigmoid(gate(x, w, u, b, h, t, n, 3 + k)) * c[t, n, k]
            new = qd.tanh(gate(x, w, u, b, h, t, n, 6 + k))
            c[t + 1, n, k] = keep + sigmoid(gate(x, w, u, b, h, t, n, k)) * new
            out = sigmoid(gate(x, w, u, b, h, t, n, 9 + k))
            h[t + 1, n, k] = out * qd.tanh(c[t + 1, n, k])

    @qd.kernel
    def last(h: A, loss: A):
        for n, k in qd.ndrange(2, 3):
            loss[None] += h[5, n, k] * (n + k + 1)

    def run(d):
        for t in range(5):
            step(d.x, d.w, d.u, d.b, d.h, d.c, t)
        last(d.h, d.loss)

    def reference(xp, d):
        h = c = xp.array(np.zeros((2, 3)))
        for t in range(5):
            h, c = xp.lstm_cell(d.x[t], (h, c), d.w, d.u, d.b)
        return (h * xp.array([[1.0, 2, 3], [2, 3, 4]])).sum()

    return run, reference


@model(x=normal(2, 6, 2), w=normal(9, 2), u=normal(9, 3), start=normal(2, 3), h=zeros(2, 7, 3))
def gru(A, V):
    @qd.kernel
    def all_steps(x: A, w: A, u: A, start: A, h: A, loss: A):
        for n in range(x.shape[0]):
            for k in range(3):
                h[n, 0, k] = start[n, k]
            for t in range(x.shape[1]):
                for k in range(3):
                    a = qd.Vector([0.0, 0.0, 0.0])
                    b = qd.Vector([0.0, 0.0, 0.0])
                    for g in qd.static(range(3)):
                        for j in range(2):
                            a[g] += w[3 * g + k, j] * x[n, t, j]
                        for j in range(3):
                            b[g] += u[3 * g + k, j] * h[n, t, j]
                    z = sigmoid(a[1] + b[1])
                    new = qd.tanh(a[2] + sigmoid(a[0] + b[0]) * b[2])
                    h[n, t + 1, k] = (1 - z) * new + z * h[n, t, k]
                    loss[None] += h[n, t + 1, k] ** 3

    def run(d):
        all_steps(d.x, d.w, d.u, d.start, d.h, d.loss)

    def reference(xp, d):
        h, total = d.start, 0
        for t in range(6):
            h = xp.gru_cell(d.x[:, t], h, d.w, d.u)
            total = total + (h**3).sum()
        return total

    return run, reference


@model(q=normal(5, 3), k=normal(5, 3), v=normal(5, 2), score=zeros(5, 5), out=zeros(5, 2))
def causal_attention(A, V):
    @qd.kernel
    def scores(q: A, k: A, score: A):
        for i in range(q.shape[0]):
            for j in range(i + 1):
                for c in range(q.shape[1]):
                    score[i, j] += q[i, c] * k[j, c] / qd.sqrt(3.0)

    @qd.kernel
    def mix(score: A, v: A, out: A):
        for i, c in out:
            total, s = 0.0, 0.0
            for j in range(i + 1):
                weight = qd.exp(score[i, j])
                total += weight
                s += weight * v[j, c]
            out[i, c] = s / total

    @qd.kernel
    def last(out: A, loss: A):
        for i, c in out:
            loss[None] += qd.sin(out[i, c] * (i + 1))

    def run(d):
        scores(d.q, d.k, d.score)
        mix(d.score, d.v, d.out)
        last(d.out, d.loss)

    def reference(xp, d):
        allowed = xp.array(np.tri(5)) > 0
        score = xp.where(allowed, d.q @ d.k.T / 3**0.5, -1e30)
        out = xp.softmax(score, 1) @ d.v
        return xp.sin(out * xp.array(np.arange(1.0, 6.0))[:, None]).sum()

    return run, reference


@model(x=normal(9, 3), w=normal(3), b=normal(), label=ints(2, 9))
def logistic_regression(A, V):
    @qd.func
    def softplus(s):
        return qd.max(s, 0.0) + qd.log(1 + qd.exp(-qd.abs(s)))

    @qd.kernel
    def samples(x: A, w: A, b: A, label: A, loss: A):
        for n in range(x.shape[0]):
            s = b[None]
            for k in range(x.shape[1]):
                s += x[n, k] * w[k]
            loss[None] += softplus(s if label[n] == 0 else -s)

    @qd.kernel
    def penalty(w: A, loss: A, weight: qd.f64):
        for k in w:
            loss[None] += weight * w[k] ** 2

    def run(d):
        samples(d.x, d.w, d.b, d.label, d.loss)
        penalty(d.w, d.loss, 0.1)

    def reference(xp, d):
        s = (d.x @ d.w + d.b) * (1 - 2 * d.label)
        return xp.softplus(s).sum() + 0.1 * (d.w @ d.w)

    return run, reference


@model(
    x=normal(8, 2, elem=1),
    centre=normal(3, 2, elem=1),
    low=uniform(0.5, 1.5, 3, 3),
    logit=normal(3),
)
def gaussian_mixture(A, V):
    @qd.kernel
    def log_likelihood(x: V(2), centre: V(2), low: A, logit: A, loss: A):
        for n in x:
            total, prior = 0.0, 0.0
            for k in range(3):
                diagonal = low[k, 0] * low[k, 2]
                factor = qd.Matrix([[low[k, 0], 0.0], [low[k, 1], low[k, 2]]])
                z = factor.inverse() @ (x[n] - centre[k])
                prior += qd.exp(logit[k])
                total += qd.exp(logit[k] - 0.5 * z.dot(z)) / diagonal
            loss[None] += qd.log(2 * qd.math.pi) + qd.log(prior) - qd.log(total)

    def run(d):
        log_likelihood(d.x, d.centre, d.low, d.logit, d.loss)

    def reference(xp, d):
        l = d.low
        factor = xp.stack([l[:, 0], 0 * l[:, 0], l[:, 1], l[:, 2]], 1).reshape(3, 2, 2)
        cov = factor @ xp.swapaxes(factor, 1, 2)
        r = d.x[:, None] - d.centre
        square = xp.einsum("nki,kij,nkj->nk", r, xp.linalg.inv(cov), r)
        each = xp.log(xp.softmax(d.logit, 0)) - 0.5 * (
            square + xp.log(xp.linalg.det(2 * np.pi * cov))
        )
        return -xp.logsumexp(each, 1).sum()

    return run, reference


@model(heat=normal(2, 4, 5), sharp=uniform(1, 3), aim=normal(2, 2, elem=1))
def soft_argmax(A, V):
    @qd.kernel
    def images(heat: A, sharp: A, aim: V(2), loss: A):
        for n in aim:
            total, where = 0.0, qd.Vector([0.0, 0.0])
            for i, j in qd.ndrange(4, 5):
                p = qd.exp(heat[n, i, j] * sharp[None])
                total += p
                where += p * qd.Vector([i, j])
            loss[None] += (where / total - aim[n]).norm()

    def run(d):
        images(d.heat, d.sharp, d.aim, d.loss)

    def reference(xp, d):
        p = xp.softmax(d.heat.reshape(2, 20) * d.sharp, 1).reshape(2, 4, 5)
        i, j = p.sum(2) @ xp.array(np.arange(4.0)), p.sum(1) @ xp.array(np.arange(5.0))
        return xp.sqrt(((xp.stack([i, j], 1) - d.aim) ** 2).sum(1)).sum()

    return run, reference


@model(
    density=uniform(0, 2, 3, 6), colour=uniform(0, 1, 3, 6, 3, elem=1), far=uniform(0, 1, 3, elem=1)
)
def volume_rendering(A, V):
    """Cumulative products along rays, until hardly any light is left."""

    @qd.kernel
    def rays(density: A, colour: V(3), far: V(3), loss: A):
        for r in range(density.shape[0]):
            light = 1.0
            seen = qd.Vector([0.0, 0.0, 0.0])
            for s in range(density.shape[1]):
                if light > 0.05:
                    alpha = 1 - qd.exp(-density[r, s] * 0.7)
                    seen += light * alpha * colour[r, s]
                    light *= 1 - alpha
            seen += light * far[None]
            loss[None] += seen.x * seen.y + seen.z**2

    def run(d):
        rays(d.density, d.colour, d.far, d.loss)

    def reference(xp, d):
        clear = xp.exp(-0.7 * d.density)
        all_of_it = xp.cumprod(xp.concatenate([0 * clear[:, :1] + 1, clear], 1), 1)
        before = all_of_it[:, :-1]
        on = before > 0.05
        seen = (xp.where(on, before * (1 - clear), 0)[:, :, None] * d.colour).sum(1)
        left = xp.prod(xp.where(on, clear, 1), 1)
        seen = seen + left[:, None] * d.far
        return (seen[:, 0] * seen[:, 1] + seen[:, 2] ** 2).sum()

    return run, reference
