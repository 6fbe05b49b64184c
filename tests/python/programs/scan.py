"""Prefix sums by doubling, stream compaction, odd-even and radix sort, all with plain loops."""

import numpy as np

import quadrants as qd

N = 512
a = qd.field(qd.i32, N)
b = qd.field(qd.i32, N)
flags = qd.field(qd.i32, N)
digits = qd.field(qd.i32, 16)


@qd.kernel
def load(x: qd.types.ndarray(dtype=qd.i32, ndim=1)):
    for i in a:
        a[i] = x[i]


@qd.kernel
def doubling(src: qd.template(), dst: qd.template(), stride: qd.i32):
    for i in src:
        dst[i] = src[i] + src[i - stride] if i >= stride else src[i]


def inclusive_scan(src, other):
    stride = 1
    while stride < N:
        doubling(src, other, stride)
        src, other = other, src
        stride *= 2
    return src


@qd.kernel
def mark(threshold: qd.i32):
    for i in a:
        flags[i] = a[i] > threshold


@qd.kernel
def compact(place: qd.template(), out: qd.types.ndarray(dtype=qd.i32, ndim=1)) -> qd.i32:
    for i in a:
        if a[i] > 50:
            out[place[i] - 1] = a[i]
    return place[N - 1]


@qd.kernel
def odd_even(x: qd.types.ndarray(dtype=qd.i32, ndim=1)):
    n = x.shape[0]
    qd.loop_config(serialize=True)
    for phase in range(n):
        for i in range((n - phase % 2) // 2):
            k = 2 * i + phase % 2
            if k + 1 < n and x[k] > x[k + 1]:
                x[k], x[k + 1] = x[k + 1], x[k]


@qd.kernel
def radix_pass(src: qd.template(), dst: qd.template(), shift: qd.i32):
    for i in digits:
        digits[i] = 0
    for i in src:
        digits[(src[i] >> shift) & 15] += 1
    qd.loop_config(serialize=True)
    for i in range(1, 16):
        digits[i] += digits[i - 1]
    qd.loop_config(serialize=True)
    for k in range(N):
        i = N - 1 - k
        slot = qd.atomic_sub(digits[(src[i] >> shift) & 15], 1) - 1
        dst[slot] = src[i]


def main():
    rng = np.random.default_rng(8)
    x = rng.integers(0, 100, N).astype(np.int32)
    load(x)
    mark(50)
    place = inclusive_scan(flags, b)
    out = np.zeros(N, np.int32)
    kept = compact(place, out)
    assert kept == (x > 50).sum() and np.array_equal(out[:kept], x[x > 50])
    small = x[:64].copy()
    odd_even(small)
    keys = rng.integers(0, 1 << 16, N).astype(np.int32)
    load(keys)
    for k in range(4):
        radix_pass(*((a, b) if k % 2 == 0 else (b, a)), 4 * k)
    assert np.array_equal(a.to_numpy(), np.sort(keys))
    return {"kept": kept, "out": out, "small": small, "sorted": a.to_numpy()}
