"""Runs the benchmark and showcase kernels at small sizes and prints a digest of every result.

Started by test_same_bits.py and test_targets_bits.py in processes of their own:
`bits_program.py CACHE THREADS [float-atomics] [save FILE]`. Kernels that add floats atomically into
shared cells (the scatters of the fluids) depend on the order of threads by design; they run only
where `float-atomics` is given, which needs one thread.
"""

import hashlib
import json
import pathlib
import sys

import numpy as np

import quadrants as qd

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [
    str(ROOT / "benchmarks"),
    str(ROOT / "examples"),
    str(pathlib.Path(__file__).parent),
]

import programs  # noqa: E402

RESULTS = {}


def keep(name, *arrays):
    for k, a in enumerate(arrays):
        RESULTS[f"{name} {k}"] = np.ascontiguousarray(a)


def generated(name, source, folder):
    """Kernels come from files: the front end reads their source."""
    import importlib.util

    path = pathlib.Path(folder) / f"{name}.py"
    if not path.exists() or path.read_text() != source:
        path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def benchmarks(folder):
    rng = np.random.default_rng(3)
    x, ramp, shift = programs.trivial(qd)
    ramp(), shift()
    keep("trivial", x.to_numpy())
    solve = programs.cholesky(qd, uses=2)
    a, b, out = programs.cholesky_input()
    solve(a, b, out)
    keep("cholesky", out)
    for name, kernel, source in (
        ("deep", "deep", programs.deep_calls("quadrants", tops=6, mids=6, leaves=6, sites=12)),
        ("guarded", "guarded", programs.guarded_funcs("quadrants", 40)),
        ("ladder", "ladder", programs.straight_line("quadrants", 200)),
        ("ladder_funcs", "ladder", programs.straight_line("quadrants", 200, 10)),
    ):
        v = rng.random(1000, dtype=np.float32)
        getattr(generated(name, source, folder), kernel)(v)
        keep(name, v)


def fluid():
    load, step, _ = programs.mpm(qd, 4096)
    load()
    for _ in range(5):
        step()
    fields = [c.cell_contents for c in load.__closure__ if hasattr(c.cell_contents, "to_numpy")]
    keep("mpm", *[f.to_numpy() for f in fields])


def loops():
    """What the throughput cases do: saxpy, sums, Jacobi, n-body; integer atomics; random numbers."""
    rng = np.random.default_rng(5)
    n, m = 100_003, 96
    x, y = qd.field(qd.f32, n), qd.field(qd.f32, n)
    grid, other = qd.field(qd.f32, (m, m)), qd.field(qd.f32, (m, m))
    pos, acc = qd.Vector.field(3, qd.f32, 200), qd.Vector.field(3, qd.f32, 200)
    counts = qd.field(qd.i32, 37)
    Array = qd.types.ndarray()

    @qd.kernel
    def saxpy(a: qd.f32):
        for i in y:
            y[i] = a * x[i] + y[i]

    @qd.kernel
    def sum_f32() -> qd.f32:
        s = 0.0
        for i in x:
            s += x[i]
        return s

    @qd.kernel
    def sum_f64(v: Array) -> qd.f64:
        s = qd.f64(0.0)
        for i in range(v.shape[0]):
            s += qd.sqrt(v[i]) * qd.sin(v[i])
        return s

    @qd.kernel
    def moments(v: Array, out: Array):
        s = qd.Vector([0.0, 0.0, 0.0])
        low = 1e30
        for i in range(v.shape[0]):
            t = qd.cast(v[i], qd.f32)
            s += qd.Vector([t, t * t, t**3])
        for i in range(v.shape[0]):
            qd.atomic_min(low, qd.cast(v[i], qd.f32))
        for k in qd.static(range(3)):
            out[k] = s[k]
        out[3] = low

    @qd.kernel
    def jacobi():
        for i, j in qd.ndrange((1, m - 1), (1, m - 1)):
            other[i, j] = 0.25 * (grid[i - 1, j] + grid[i + 1, j] + grid[i, j - 1] + grid[i, j + 1])
        for i, j in grid:
            grid[i, j] = other[i, j]

    @qd.kernel
    def attract():
        for i in acc:
            total = qd.Vector([0.0, 0.0, 0.0])
            for j in range(200):
                d = pos[j] - pos[i]
                total += d * qd.rsqrt(d.norm_sqr() + 1e-3) ** 3
            acc[i] = total

    @qd.kernel
    def functions(v: Array, out: Array):
        for i in range(v.shape[0]):
            t = v[i]
            s = (
                qd.sin(t)
                + qd.cos(3 * t)
                + qd.tan(t * 0.3)
                + qd.tanh(t)
                + qd.exp(-t)
                + qd.log(t + 1.5)
            )
            out[i] = s + qd.asin(t / 10) + qd.acos(t / 10) + qd.atan2(t, s) + (t + 0.1) ** 1.7

    @qd.kernel
    def histogram(v: Array):
        for i in range(v.shape[0]):
            counts[qd.cast(v[i] * 3.7, qd.i32) % 37] += 1

    @qd.kernel
    def noise(out: Array):
        for i in range(out.shape[0]):
            out[i] = qd.random() + qd.randn()

    x.from_numpy(rng.random(n, dtype=np.float32))
    y.from_numpy(rng.random(n, dtype=np.float32))
    grid.from_numpy(rng.random((m, m), dtype=np.float32))
    pos.from_numpy(rng.random((200, 3), dtype=np.float32))
    v = rng.random(50_001) * 9
    saxpy(1.25)
    keep("saxpy", y.to_numpy())
    keep("sums", np.array([sum_f32()], np.float32), np.array([sum_f64(v)]))
    out = np.zeros(4, np.float32)
    moments(v, out)
    keep("moments", out)
    for _ in range(5):
        jacobi()
    keep("jacobi", grid.to_numpy())
    attract()
    keep("all pairs", acc.to_numpy())
    for t in (np.float32, np.float64):
        out = np.zeros(v.size, t)
        functions(v.astype(t), out)
        keep(f"functions {t.__name__}", out)
    histogram(v)
    keep("histogram", counts.to_numpy())
    out = np.zeros(5000, np.float32)
    noise(out)
    keep("noise", out)


def showcases(out, float_atomics):
    """The examples as they are, small: the arrays that they leave in their modules."""
    import runpy

    real, cache, threads = qd.init, sys.argv[1], int(sys.argv[2])

    def init(**options):  # the example's own init, with this run's cache and threads
        real(**options, offline_cache_file_path=cache, cpu_max_num_threads=threads)

    cases = [
        ("ray_tracer", ["--width", "96", "--height", "64", "--samples", "2"], ["image"]),
        (
            "photo_filters",
            ["--repeats", "1"],
            ["blur_out", "sobel_out", "bilateral_out", "sharpen_out"],
        ),
    ]
    if float_atomics:
        cases.append(("mpm_fluid", ["--frames", "2", "--substeps", "3"], ["image", "pos", "vel"]))
        cases.append(
            ("nbody", ["--bodies", "400", "--frames", "2", "--substeps", "2"], ["pos", "vel"])
        )
    argv = sys.argv
    qd.init = init
    try:
        for name, arguments, kept in cases:
            if name == "photo_filters":
                import importlib.util

                if importlib.util.find_spec("skimage") is None:
                    continue  # its photograph is not installed
            sys.argv = [name, *arguments, "--out", str(out)]
            scope = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
            found = [scope[k] for k in kept if k in scope]
            assert found, f"{name} leaves none of {kept}"
            keep(name, *[a.to_numpy() if hasattr(a, "to_numpy") else a for a in found])
    finally:
        sys.argv, qd.init = argv, real


def main():
    cache, threads, options = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    folder = pathlib.Path(cache) / "sources"
    folder.mkdir(parents=True, exist_ok=True)
    fast = "strict" not in options
    qd.init(
        arch=qd.cpu,
        offline_cache_file_path=cache,
        cpu_max_num_threads=threads,
        fast_math=fast,
        random_seed=7,
    )
    benchmarks(folder)
    loops()
    if "float-atomics" in options:  # last: the launches before a random number are part of its seed
        fluid()
    if "showcases" in options:
        showcases(folder, "float-atomics" in options)
    if "save" in options:
        np.savez(
            options[options.index("save") + 1],
            **{k.replace(" ", "_"): v for k, v in RESULTS.items()},
        )
    digests = {k: hashlib.sha256(v.tobytes()).hexdigest()[:16] for k, v in RESULTS.items()}
    print("DIGESTS " + json.dumps(digests))
    qd.reset()


if __name__ == "__main__":
    main()
