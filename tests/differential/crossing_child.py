"""Runs a module of crossed cases on each variant and pickles what they leave; see crossing.py.

Needs NumPy and some package named quadrants, nothing else of this folder unless the model is asked for.
"""

import importlib.util
import json
import os
import pickle
import sys
import tempfile
import warnings

import numpy as np

NP = {
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "u1": np.bool_, "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


def start(variant):
    import quadrants as qd

    options = dict(fast_math=False)
    if variant == "oracle":
        threads = 2
    else:
        tier, threads, *rest = variant.split("/")
        os.environ["QD_CPU_TIER"] = tier
        options = dict(debug="debug" in rest, fast_math="fast" in rest)
    qd.init(
        arch=qd.cpu, offline_cache=False, cpu_max_num_threads=int(threads), log_level=qd.ERROR, **options
    )  # fmt: skip
    return qd


def values(t):
    """What fields and arrays hold before each case, by name: small positive numbers."""
    half = 0.5 if t[0] == "f" else 0
    up = lambda n, k: (np.arange(n) * 5 // k % 3 + 1 + half * (np.arange(n) % 2)).astype(NP[t])  # noqa: E731
    if t == "u1":
        up = lambda n, k: (np.arange(n) // k % 3 != 1).astype(NP[t])  # noqa: E731
    return {
        "z": up(1, 1).reshape(()) if t == "u1" else np.array(3 + half, NP[t]),
        "x": up(12, 2), "vs": up(36, 3).reshape(12, 3), "ms": up(48, 5).reshape(12, 2, 2),
        "ss.a": up(12, 3), "ss.b": np.arange(12, dtype=np.int32), "x6": up(6, 1), "x23": up(6, 2).reshape(2, 3),
        "perm": np.arange(16, dtype=np.int32)[::-1] % 8, "count": np.array(5, np.int32),
        "acc": up(3, 1)[2], "el": up(16, 1), "own": up(16, 4), "most": up(16, 7), "vo": up(32, 1).reshape(16, 2),
        "so.a": up(16, 2), "so.b": np.arange(16, dtype=np.int32), "num": np.zeros(16, np.int32),
        "wide": np.zeros(16), "va2": up(2, 1), "out": up(16, 3),
        "a": up(12, 4), "a0": up(2, 1)[1], "b": np.zeros(3, np.int32), "out6": np.zeros(6, np.int32), "nd": up(12, 6),
        "a3": up(12, 5).reshape(2, 2, 3), "ac": up(12, 5), "tt": up(6, 4).reshape(3, 2), "xb": up(12, 7), "xbb": up(12, 1).reshape(4, 3),
        "xp": up(6, 3).reshape(3, 2), "xo": up(12, 5), "vsoa": up(36, 4).reshape(12, 3), "sn.s.a": up(12, 2),
    }  # fmt: skip


def put(module, name, value):
    target = module
    for part in name.split("."):
        target = getattr(target, part)
    if np.ndim(value) == 0 and name != "va2":
        target[None] = value.item()
    else:
        target.from_numpy(value)


def get(module, name):
    target = module
    for part in name.split("."):
        target = getattr(target, part)
    return target.to_numpy()


def leaves(name):
    return [f"{name}.a", f"{name}.b"] if name in ("ss", "so") else [name]


SOURCES = [
    "xb",
    "xbb",
    "xp",
    "xo",
    "vsoa",
    "sn.s.a",
    "z",
    "x",
    "vs",
    "ms",
    "ss",
    "x6",
    "x23",
    "perm",
    "count",
]
ARRAYS = ["out", "a", "a0", "b", "out6"]


class Arguments:
    """Values of parameters by name."""

    def __init__(self, qd, module, t, data):
        self.qd, self.module, self.t, self.data = qd, module, t, data
        half = 0.5 if t[0] == "f" else 0
        self.number = True if t == "u1" else 2 + half
        self.made = {}

    def array(self, name, t):
        """A fresh ndarray."""
        v = self.data[name]
        a = self.qd.ndarray(getattr(self.qd, t), v.shape)
        if v.ndim:
            a.from_numpy(v)
        else:
            a[None] = v.item()
        return a

    def object(self, kind):
        o = kind()
        o.nd.from_numpy(self.data["nd"])
        return o

    def make(self, name):
        qd, t = self.qd, self.t
        if name in ("b", "out6"):
            return self.array(name, "i32")
        if name in ARRAYS:
            return self.array(name, t)
        if name in ("ac", "a3"):
            return self.array(name, t)
        if name == "bv":
            return qd.BufferView(self.get("a"), 1, 11)
        if name == "tt":
            tensor = qd.tensor(getattr(qd, t), (3, 2), backend=qd.Backend.NDARRAY, layout=(1, 0))
            tensor.from_numpy(self.data[name])
            return tensor
        if name == "n":
            return 6
        if name == "s":
            return self.number
        if name == "va":
            return qd.Vector([1, self.number, 3] if t != "u1" else [1, 1, 0], dt=getattr(qd, t))
        if name == "sa":
            return self.module.S(a=self.number, b=4)
        if name == "tn":
            return self.module.G
        if name == "tf":
            return self.module.z
        if name == "o":
            return self.object(self.module.O)
        if name == "d":
            return self.module.D(k=self.number, arr=self.get("a"))
        raise KeyError(name)

    def get(self, name):
        if name == "out" or name not in self.made:
            self.made[name] = self.make(name)
        return self.made[name]


class Printed:
    """What the process writes to file descriptor 1 meanwhile, as sorted lines."""

    def __init__(self, qd, wanted):
        self.qd, self.wanted, self.lines = qd, wanted, None

    def __enter__(self):
        if self.wanted:
            sys.stdout.flush()
            self.file = tempfile.TemporaryFile()
            self.old = os.dup(1)
            os.dup2(self.file.fileno(), 1)
        return self

    def __exit__(self, *_):
        if self.wanted:
            self.qd.sync()
            sys.stdout.flush()
            os.dup2(self.old, 1)
            os.close(self.old)
            self.file.seek(0)
            self.lines = sorted(self.file.read().decode().splitlines())
            self.file.close()


def run(qd, module, case, arguments, data):
    for name in case["touched"]:
        for leaf in leaves(name):
            put(module, leaf, data[leaf])
    args = [arguments.get(p) for p in case["params"]]
    owner = arguments.object(getattr(module, "C" + case["name"][1:])) if case["method"] else module
    with Printed(qd, case["prints"]) as printed:
        result = getattr(owner, case["name"])(*args)
    found = {leaf: get(module, leaf) for name in case["touched"] for leaf in leaves(name)}
    found["out"] = arguments.made["out"].to_numpy()
    if result is not None:
        found["return"] = np.asarray(result)
    return dict(values=found, printed=printed.lines)


def main():
    job = json.loads(sys.stdin.read())
    data = values(job["t"])
    warnings.simplefilter("ignore")
    with open(job["measured"], "rb") as f:
        measured = pickle.load(f)  # what earlier processes found of the first variant
    with open(job["result"], "ab") as out:
        for variant in job["variants"]:
            done = set(job["done"].get(variant, ()))
            if done >= {case["name"] for case in job["cases"]}:
                continue
            qd = start(variant)
            spec = importlib.util.spec_from_file_location("crossed", job["source"])
            module = importlib.util.module_from_spec(spec)
            sys.modules["crossed"] = module
            spec.loader.exec_module(module)
            for name in SOURCES:
                for leaf in leaves(name):
                    put(module, leaf, data[leaf])
            arguments = Arguments(qd, module, job["t"], data)
            for case in job["cases"]:
                if case["name"] in done:
                    continue
                print(f"@{variant} {case['name']}", file=sys.stderr, flush=True)
                try:
                    r = run(qd, module, case, arguments, data)
                except Exception as error:
                    r = dict(error=f"{type(error).__name__}: {str(error).strip()[-600:]}")
                if variant == job["variants"][0]:
                    measured[case["name"]] = r
                pickle.dump((variant, case["name"], r), out)
                out.flush()
    if job["model"]:
        import crossing_model

        with open(job["result"], "ab") as out:
            for name, r in crossing_model.judge(job, data, measured):
                pickle.dump(("model", name, r), out)


if __name__ == "__main__":
    main()
