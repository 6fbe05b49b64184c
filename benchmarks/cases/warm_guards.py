"""Does a second process start at once when much was read from Python, or something opaque?

Four kernels: 300 funcs with a global each (one guard per fact); a call of a plain Python helper
(which no guard can cover: the front end runs again and the code is found by its hash); a
`@property`; and methods that are overridden per instance.
"""

import numpy as np

import child
import programs

CONTENDERS = child.DSL
PHASES = ("cold", "warm")
PARTS = ("guards", "helper", "property", "override")
TARGETS = {
    "warm guards ms": 2,
    "warm property ms": 2,
    "warm override ms": 2,
    "warm helper ms": 5,
    **{f"warm {part} compiler loaded": 0 for part in PARTS},
}


def guards(qd):
    return child.generated("guarded_funcs", programs.guarded_funcs(qd.__name__)).guarded


def helper(qd):
    table = {"gain": 0.25}

    def shape(x):  # plain Python: runs while the kernel is traced, on symbolic values
        return x * sum(table.values()) + len(str(table)) * 0.125

    @qd.kernel
    def run(x: qd.types.ndarray()):
        for i in range(x.shape[0]):
            x[i] = shape(x[i])

    return run


def oriented(qd):
    @qd.data_oriented
    class Model:
        def __init__(self, scale):
            self.scale = scale

        @property
        def gain(self):
            return self.scale * 3.0

        @qd.func
        def flux(self, v):
            return v * 2.0

        @qd.kernel
        def amplify(self, x: qd.types.ndarray()):
            for i in range(x.shape[0]):
                x[i] = x[i] * self.gain

        @qd.kernel
        def advance(self, x: qd.types.ndarray()):
            for i in range(x.shape[0]):
                x[i] = x[i] + self.flux(x[i])

    return Model


def run_property(qd):
    return oriented(qd)(0.5).amplify


def override(qd):
    @qd.func
    def upwind(v):
        return v * 0.5 - 1.0

    model = oriented(qd)(0.5)
    model.flux = upwind
    plain = oriented(qd)(0.5)
    return lambda x: (model.advance(x), plain.advance(x))


def case(args):
    qd = child.start(args)
    x = np.linspace(0, 1, 64, dtype=np.float32)
    kernel = (run_property if args.part == "property" else globals()[args.part])(qd)
    numbers = {f"{args.part} ms": child.first_call(qd, kernel, x)}
    if args.contender == "ours":
        numbers[f"{args.part} compiler loaded"] = child.compiler_loaded()
    return numbers, {args.part: x.tolist()}


if __name__ == "__main__":
    child.main(case)
