"""What several tests share: targets, comparison, seeded inputs, and the dtype table."""

import importlib.util
import zlib

import numpy as np
import pytest

import quadrants as qd

Array = qd.types.NDArray

SIGNED = ["i8", "i16", "i32", "i64"]
UNSIGNED = ["u8", "u16", "u32", "u64"]
INTS = SIGNED + UNSIGNED
FLOATS = ["f16", "f32", "f64"]
DTYPES = INTS + ["u1"] + FLOATS

NUMPY = {
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "u1": np.bool_, "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


def module_at(path, name=None):
    """The module that a file holds, run anew: kernels are traced from their files."""
    spec = importlib.util.spec_from_file_location(name or path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flag(value=0):
    """A 0-d i32 ndarray."""
    a = qd.ndarray(qd.i32, ())
    a.fill(value)
    return a


def zeros(n):
    """An i32 ndarray of n zeros."""
    a = qd.ndarray(qd.i32, n)
    a.fill(0)
    return a


def dtype(name):
    """The dtype object called `name`."""
    return getattr(qd, name)


def bits(name):
    """Width of the dtype called `name`."""
    return int(name[1:])


def promote(a, b):
    """The result dtype of `a + b`, by name."""
    if a[0] == "f" or b[0] == "f":
        floats = [t for t in (a, b) if t[0] == "f"]
        return max(floats, key=bits)
    if a == b:
        return a
    if "u1" in (a, b):  # u1 stands in as an 8-bit unsigned that loses to u8 and beats i8
        other = b if a == "u1" else a
        return "u1" if other == "i8" else other
    if bits(a) != bits(b):
        return max(a, b, key=bits)
    return a if a[0] == "u" else b


class Backend:
    """One target. `init` starts a fresh runtime on it, with options."""

    def __init__(self, name, cache_folder):
        self.name = name
        self.arch = getattr(qd, name)
        self.cache_folder = cache_folder

    def init(self, **options):
        options.setdefault("print_full_traceback", False)
        options.setdefault("offline_cache_file_path", str(self.cache_folder))
        qd.init(arch=self.arch, enable_fallback=False, **options)

    def __repr__(self):
        return self.name


def draw(n, dt, seed=None, **ranges):
    """`n` reproducible values per named range (low, high); both ends are among them.

    One range gives one array, several a list in the order given.
    """
    name = str(dt)
    if seed is None:
        seed = zlib.crc32(repr((n, name, sorted(ranges.items()))).encode())
    print(f"draw: seed {seed}")
    rng = np.random.default_rng(seed)
    arrays = []
    for low, high in ranges.values():
        if name[0] == "f":
            a = rng.uniform(low, high, n)
        else:
            a = rng.integers(low, high, n, endpoint=True, dtype=np.int64 if low < 0 else np.uint64)
        a = a.astype(NUMPY[name])
        a[0], a[-1] = low, high
        arrays.append(a)
    return arrays[0] if len(arrays) == 1 else arrays


def assert_close(out, expect, ulp=None, rtol=None, atol=0.0, skip=None):
    """Compare arrays: NaN equals NaN, `ulp` counts units in the last place of `expect`'s dtype.

    Without tolerance the values must be equal. `skip` masks elements out.
    """
    out, expect = np.asarray(out), np.asarray(expect)
    assert out.shape == expect.shape, f"shape {out.shape}, expected {expect.shape}"
    if skip is not None:
        keep = ~np.broadcast_to(np.asarray(skip), out.shape)
        out, expect = out[keep], expect[keep]
    if ulp is None and rtol is None and atol == 0.0:
        np.testing.assert_array_equal(out, expect)
        return
    if rtol is not None or ulp is None:
        np.testing.assert_allclose(out, expect, rtol=rtol or 0.0, atol=atol)
        return
    narrow = np.result_type(out.dtype, np.float16)
    expect = expect.astype(narrow)
    with np.errstate(all="ignore"):
        unit = np.spacing(np.abs(expect)).astype(np.float64)
        error = np.abs(out.astype(np.float64) - expect.astype(np.float64))
        same = (out == expect) | (np.isnan(out) & np.isnan(expect))
        good = same | (error <= ulp * unit + atol)
    if not np.all(good):
        bad = np.argwhere(~good)[:5]
        rows = [f"{tuple(i)}: {out[tuple(i)]!r}, expected {expect[tuple(i)]!r}" for i in bad]
        raise AssertionError(f"{np.sum(~good)} of {out.size} differ: " + "; ".join(rows))


def raises(cls, *fragments):
    """`pytest.raises` for a class and every text fragment, whatever lies between them."""
    return _Raises(cls, fragments)


class _Raises:
    def __init__(self, cls, fragments):
        self.context = pytest.raises(cls)
        self.fragments = fragments

    def __enter__(self):
        self.info = self.context.__enter__()
        return self.info

    def __exit__(self, *exc):
        done = self.context.__exit__(*exc)
        if not done:
            return done
        text = str(self.info.value)
        for fragment in self.fragments:
            assert fragment in text, f"{fragment!r} not in: {text}"
        return done
