"""Dtypes by name, as random programs and their model use them."""

import numpy as np

INTS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
FLOATS = ["f16", "f32", "f64"]
ALL = INTS + ["u1"] + FLOATS
NP = {
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "u1": np.bool_, "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
WEIGHTS = {"i32": 6, "f32": 6, "f64": 3, "i64": 3, "u32": 3, "u8": 2, "u64": 2}


def bits(t):
    return int(t[1:])


def promote(a, b):
    if a == b:
        return a
    if a[0] == "f" or b[0] == "f":
        return max((t for t in (a, b) if t[0] == "f"), key=bits)
    if "u1" in (a, b):
        o = b if a == "u1" else a
        return "u1" if o == "i8" else o
    if bits(a) != bits(b):
        return max(a, b, key=bits)
    return a if a[0] == "u" else b
