"""Gradients of the programs in gradient_models.py agree with those that torch and JAX find.

Fields in both modes, ndarrays, and torch's own tensors as arguments, all in f64: losses to ten
digits, gradients to nine, and what forward mode finds in a random direction.
"""

import functools
import os
import types
import zlib

import numpy as np
import pytest

import gradient_language  # noqa: F401, fills MODELS
import gradient_physics  # noqa: F401
import quadrants as qd
from gradient_models import MODELS


class Table:
    """What references take: what both packages call alike, and what they don't."""

    def __init__(self, package, **own):
        self.package = package
        vars(self).update(own)

    def __getattr__(self, name):
        return getattr(self.package, name)

    def hat(self, w):
        """The matrix whose product is w's cross product."""
        o = 0 * w[0]
        return self.stack([o, -w[2], w[1], w[2], o, -w[0], -w[1], w[0], o]).reshape(3, 3)


@functools.cache
def with_torch():
    torch = pytest.importorskip("torch")
    f = torch.nn.functional

    def bilinear(u, x, y):
        n, m = u.shape
        grid = torch.stack([2 * y / (m - 1) - 1, 2 * x / (n - 1) - 1], 2)
        return f.grid_sample(u[None, None], grid[None], align_corners=True)[0, 0]

    def differentiate(f, given, along):
        for x in given:
            x.requires_grad_()
        loss = f(*given)
        slopes = torch.autograd.grad(loss, given)
        try:
            forward = torch.func.jvp(f, given, along)[1]
        except NotImplementedError:  # torch lacks it of some operators
            forward = sum((g * v).sum() for g, v in zip(slopes, along))
        return loss.detach(), slopes, forward

    table = Table(
        torch,
        array=lambda a: torch.tensor(a, dtype=torch.float64),
        ascending=lambda x: torch.sort(x, 1).values,
        integers=lambda x: x.to(torch.int64),
        constant=lambda x: x.detach(),
        bilinear=bilinear,
        conv=lambda x, w, stride, pad: (f.conv1d if x.ndim == 3 else f.conv2d)(
            x, w, stride=stride, padding=pad
        ),
        cross_entropy=lambda x, label: f.cross_entropy(x, label.long(), reduction="none"),
        expm=torch.linalg.matrix_exp,
        gru_cell=torch.gru_cell,
        hardswish=f.hardswish,
        huber=lambda x, delta: f.huber_loss(x, torch.zeros_like(x), delta=delta),
        layer_norm=lambda x, gain, bias, eps: f.layer_norm(x, gain.shape, gain, bias, eps),
        lstm_cell=torch.lstm_cell,
        relu=f.relu,
        scatter_add=lambda n, at, x: x.new_zeros(n).scatter_add(0, at.long(), x),
        softplus=f.softplus,
    )
    return table, differentiate


@functools.cache
def with_jax():
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # which takes most of a GPU's memory else
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    np_, nn = jax.numpy, jax.nn

    def layer_norm(x, gain, bias, eps):
        return nn.standardize(x, epsilon=eps) * gain + bias

    def lstm_cell(x, state, w, u, b):
        i, f, g, o = np_.split(x @ w.T + state[0] @ u.T + b, 4, axis=1)
        c = nn.sigmoid(f) * state[1] + nn.sigmoid(i) * np_.tanh(g)
        return nn.sigmoid(o) * np_.tanh(c), c

    def gru_cell(x, h, w, u):
        a, b = np_.split(x @ w.T, 3, axis=1), np_.split(h @ u.T, 3, axis=1)
        z = nn.sigmoid(a[1] + b[1])
        return (1 - z) * np_.tanh(a[2] + nn.sigmoid(a[0] + b[0]) * b[2]) + z * h

    def differentiate(f, given, along):
        loss, slopes = jax.value_and_grad(f, tuple(range(len(given))))(*given)
        return loss, slopes, jax.jvp(f, given, along)[1]

    table = Table(
        np_,
        array=lambda a: np_.array(a, np_.float64),
        ascending=lambda x: np_.sort(x, 1),
        integers=lambda x: x.astype(int),
        constant=jax.lax.stop_gradient,
        complex=jax.lax.complex,
        bilinear=lambda u, x, y: jax.scipy.ndimage.map_coordinates(u, [x, y], 1),
        conv=lambda x, w, stride, pad: jax.lax.conv_general_dilated(
            x, w, [stride] * (x.ndim - 2), [(pad, pad)] * (x.ndim - 2)
        ),
        cross_entropy=lambda x, label: -nn.log_softmax(x, 1)[np_.arange(len(label)), label],
        expm=jax.scipy.linalg.expm,
        gru_cell=gru_cell,
        hardswish=nn.hard_swish,
        huber=lambda x, d: np_.where(abs(x) < d, 0.5 * x**2, d * (abs(x) - 0.5 * d)),
        layer_norm=layer_norm,
        logsumexp=nn.logsumexp,
        lstm_cell=lstm_cell,
        relu=nn.relu,
        scatter_add=lambda n, at, x: np_.zeros(n).at[at].add(x),
        softmax=nn.softmax,
        softplus=nn.softplus,
    )
    return table, differentiate


def inputs(name):
    """All data of a model, and a direction for its fields of scalars, which f32 holds."""
    r = np.random.default_rng(zlib.crc32(name.encode()))
    declared = MODELS[name].data
    values = {k: np.asarray(d.draw(r)) for k, d in declared.items()}
    along = {
        k: r.normal(size=d.shape).astype(np.float32) * (d.elem == 0)
        for k, d in declared.items()
        if d.grad and not d.temporary
    }
    return values, along


def vector_of(*sizes):
    t = (qd.types.vector if len(sizes) == 1 else qd.types.matrix)(*sizes, qd.f64)
    return qd.types.ndarray(dtype=t)


class Arrays:
    annotations = qd.types.ndarray(), vector_of
    make = staticmethod(qd.ndarray)
    has_elements = {1: qd.Vector.ndarray, 2: qd.Matrix.ndarray}
    gradients = dict(needs_grad=True)

    def new(self, d, value):
        """An array of the value."""
        shape, elem = d.shape[: len(d.shape) - d.elem], d.shape[len(d.shape) - d.elem :]
        t = qd.i32 if value.dtype == np.int32 else qd.f64
        make = self.has_elements[d.elem] if d.elem else self.make
        a = make(*elem, t, shape, **(self.gradients if d.grad else {}))
        a.from_numpy(value)
        return a

    def gradient(self, a):
        return a.grad.to_numpy()

    def value(self, loss):
        return loss[None]


class Fields(Arrays):
    annotations = qd.template(), lambda *sizes: qd.template()
    make = staticmethod(qd.field)
    has_elements = {1: qd.Vector.field, 2: qd.Matrix.field}
    gradients = dict(needs_grad=True, needs_dual=True)


class Tensors(Arrays):
    def new(self, d, value):
        torch = pytest.importorskip("torch")
        return torch.tensor(value, requires_grad=d.grad)

    def gradient(self, a):
        return a.grad.numpy()

    def value(self, loss):
        return loss.item()


class Program:
    """A model with data in one kind of storage."""

    def __init__(self, name, storage):
        self.model = MODELS[name]
        self.values, self.along = inputs(name)
        self.storage = storage
        self.run, self.reference = self.model.build(*storage.annotations)
        self.data = types.SimpleNamespace(
            **{k: storage.new(d, self.values[k]) for k, d in self.model.data.items()},
            loss=storage.new(types.SimpleNamespace(shape=(), elem=0, grad=True), np.zeros(())),
        )

    def reverse(self):
        with qd.ad.Tape(self.data.loss):
            self.run(self.data)
        slopes = {k: self.storage.gradient(getattr(self.data, k)) for k in self.along}
        return float(self.storage.value(self.data.loss)), slopes

    def forward(self):
        """Of fields: the slope in the direction, from one parameter after another."""
        total = 0.0
        for k, along in self.along.items():
            if self.model.data[k].elem:
                continue
            for name, d in self.model.data.items():
                if d.temporary:
                    getattr(self.data, name).fill(0)
            self.data.loss[None] = 0
            seed = [float(v) for v in along.ravel()]
            with qd.ad.FwdMode(loss=self.data.loss, param=getattr(self.data, k), seed=seed):
                self.run(self.data)
            total += self.data.loss.dual[None]
        return total

    def expected(self, package):
        """The loss, its gradients, and its slope in the direction, of torch or JAX."""
        xp, differentiate = package()
        data = {
            k: xp.integers(xp.array(v)) if v.dtype == np.int32 else xp.array(v)
            for k, v in self.values.items()
        }

        def f(*given):
            return self.reference(
                xp, types.SimpleNamespace(**{**data, **dict(zip(self.along, given))})
            )

        given = tuple(data[k] for k in self.along)
        along = tuple(xp.array(v) for v in self.along.values())
        loss, slopes, slope = differentiate(f, given, along)
        return float(loss), {k: np.asarray(v) for k, v in zip(self.along, slopes)}, float(slope)


def compare(program, package, forward):
    loss, slopes, slope = program.expected(package)
    got, found = program.reverse()
    assert got == pytest.approx(loss, rel=1e-10, abs=1e-10)
    for name, expect in slopes.items():
        size = np.abs(expect).max()
        assert size > 0, f"{name} has no gradient"
        np.testing.assert_allclose(found[name], expect, rtol=1e-9, atol=1e-11 * size, err_msg=name)
    if forward:
        size = sum(np.abs(slopes[k] * program.along[k]).sum() for k in slopes)
        assert program.forward() == pytest.approx(slope, rel=1e-9, abs=1e-11 * size)


@pytest.fixture
def start(backend):
    def start(name):
        if backend.name not in ("cpu", "cuda"):
            pytest.skip("no f64")
        general = dict(ad_general_control=True)
        records = dict(ad_stack_experimental_enabled=True)
        backend.init(default_fp=qd.f64, **(general if MODELS[name].general else records))

    return start


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("storage", [Fields, Arrays, Tensors])
def test_torch(start, name, storage):
    with_torch()
    start(name)
    compare(Program(name, storage()), with_torch, forward=storage is Fields)


@pytest.mark.parametrize("name", MODELS)
def test_jax(start, name):
    with_jax()
    start(name)
    compare(Program(name, Fields()), with_jax, forward=True)
