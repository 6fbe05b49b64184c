"""Quantised fields, one package beside another: ms of a launch over a million cells.

    quantised.py NAME=PYTHON [NAME=PYTHON ...] [--rounds N] [--threads N] [--arch cpu|cuda]

Arguments and output are those of sparse.py.
"""

import sys

from sparse import main, measure

N = 1 << 20
CASES = "store_one store_two store_fixed store_float store_all read add copy_bits"


def programs(qd):
    """{name: (launch, result or None)}"""
    quant = qd.types.quant
    cell = qd.root.dense(qd.i, N)
    v = qd.Vector.field(3, dtype=quant.fixed(10, True, max_value=2.0))
    m, w = qd.field(quant.int(7, False)), qd.field(quant.float(6, 12))
    a, b = qd.field(quant.int(7, False)), qd.field(quant.int(7, False))
    f, g = qd.field(quant.fixed(9)), qd.field(quant.float(5, 9))
    for members in ((v, m, w), (a, b), (f, g)):
        word = qd.BitpackedFields(max_num_bits=64)
        word.place(*members)
        cell.place(word)
    plain, x, y = qd.field(qd.f32), qd.field(quant.int(1, False)), qd.field(quant.int(1, False))
    cell.place(plain)
    for bits in (x, y):
        qd.root.dense(qd.i, N // 32).quant_array(qd.i, 32, max_num_bits=32).place(bits)

    @qd.kernel
    def store_one():
        for i in a:
            a[i] = i & 127

    @qd.kernel
    def store_two():
        for i in a:
            a[i] = i & 127
            b[i] = i & 63

    @qd.kernel
    def store_fixed():
        for i in f:
            f[i] = (i & 1023) * 0.0009

    @qd.kernel
    def store_float():
        for i in g:
            g[i] = (i & 1023) * 0.1

    @qd.kernel
    def store_all():
        for i in v:
            v[i] = [0.001 * (i % 1000), -0.5, 0.25]
            m[i] = i & 127
            w[i] = i * 0.5

    @qd.kernel
    def read() -> qd.f32:
        for i in v:
            plain[i] = v[i].sum() + m[i] * w[i]
        return plain[12345]

    @qd.kernel
    def add():
        for i in a:
            a[i] += 1
            f[i] += 0.25

    @qd.kernel
    def copy_bits() -> qd.i32:
        qd.loop_config(bit_vectorize=True)
        for i in x:
            y[i] = x[i]
        return y[12345]

    every = locals()
    return {name: every[name] for name in CASES.split()}


if __name__ == "__main__":
    measure(programs) if "--measure" in sys.argv else main(__file__, __doc__)
