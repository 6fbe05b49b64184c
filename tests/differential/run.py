"""Compares random programs: quick tier, optimised tier, IR interpreter, model, plain Python.

    python tests/differential/run.py --seed 0 --count 20000 --jobs 2 [--record]

Each batch of programs is one module, run by a process of its own; the compiled variants and the
interpreter must give identical bits (NaN payloads aside), the model the same bits where it is exact
and values within its bounds elsewhere. A process that dies takes its batch apart to find the program.
Failing programs are reduced by removing statements while they still fail the same way.
"""

import argparse
import ast
import concurrent.futures
import datetime
import importlib.util
import json
import operator
import os
import pathlib
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings

import arithmetic
import dtypes
import generate
import model
import model_values
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
# (label, QD_CPU_TIER, threads)
VARIANTS = [("interpreter", "interpret", 1), ("tier 0", "0", 1), ("tier 1", "1", 2)]
BATCH = 25
SWITCHED = 10**6  # batches from here on draw options, too
PLAIN_BATCH = 7  # its options are what Python has: 64-bit defaults, no fast_math


def options_of(batch):
    """Defaults of a batch: most are the usual ones."""
    defaults = [("i32", "f32")] * 7 + [("i64", "f64"), ("i32", "f64"), ("i64", "f32")]
    defaults += [("i32", "f16"), ("i64", "f16")]
    ip, fp = defaults[batch % len(defaults)]
    return dict(ip=ip, fp=fp, fast_math=batch % 7 == 3, switches=switches_of(batch))


def switches_of(batch):
    """Options of the passes and of code generation; batches below SWITCHED have the usual ones."""
    if batch < SWITCHED:
        return {}
    from quadrants._lib import core
    from quadrants.lang._config import table

    draw = random.Random(batch)
    flags = [n for n, row in table().items() if row.room == "module" and row.type is bool]
    out = {n: draw.random() < 0.5 for n in flags if n not in ("debug", "fast_math")}
    out["opt_level"] = draw.choice([0, 1, 2])
    out["default_cpu_block_dim"] = draw.choice([1, 32, 256])
    left_out = draw.sample([row[0] for row in core.pass_rows()], draw.choice([0, 0, 1, 3]))
    return {**out, "disable_pass": ",".join(left_out)}


def programs_of(batch, seeds, profile="full"):
    o = options_of(batch)
    return [generate.program(s, profile, o["ip"], o["fp"]) for s in seeds]


def load(programs, folder):
    """The programs as a fresh module: needs an initialised runtime."""
    load.count = getattr(load, "count", 0) + 1
    path = pathlib.Path(folder) / f"batch{load.count}.py"
    path.write_text(generate.module(programs))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(variant, o):
    import quadrants as qd

    _, tier, threads = variant
    if not o["switches"].get("make_thread_local", True):
        threads = 1  # the order of float atomics is any
    os.environ["QD_CPU_TIER"] = tier
    qd.init(
        arch=qd.cpu, offline_cache=False, fast_math=o["fast_math"], cpu_max_num_threads=threads,
        default_ip=getattr(qd, o["ip"]), default_fp=getattr(qd, o["fp"]), log_level=qd.ERROR,
        **o["switches"],
    )  # fmt: skip


def execute(module, p):
    """Runs one program; the arrays it leaves behind and its result."""
    arrays = p.inputs()
    args = []
    for d in p.data:
        if d.kind == "array":
            args.append(arrays[d.name])
        else:
            operator.attrgetter(d.name)(module).from_numpy(arrays[d.name])
    args += [v for _, _, v in p.scalars]
    result = getattr(module, p.name)(*args)
    out = {}
    for d in p.data:
        if d.kind == "array":
            out[d.name] = arrays[d.name]
        else:
            field = operator.attrgetter(d.name)(module)
            out[d.name] = field.to_numpy().astype(dtypes.NP[d.t])
    if result is not None:
        out["return"] = np.asarray(result, dtype=np.float64 if p.result[0] == "f" else None)
    return out


def by_model(p, o):
    """The same by the model: values and error bounds."""
    arrays = {
        d.name: model_values.Array.of(d.t, a, d.elem) for d, a in zip(p.data, p.inputs().values())
    }
    m = model.Machine(
        ast.parse(p.source),
        o["ip"],
        o["fp"],
        {d.name: arrays[d.name] for d in p.data if d.kind == "field"},
        structs=p.types,
    )
    for name, t, shape in p.struct_fields:
        members = {path: arrays[f"{name}.{path}"] for path, _, _ in t.leaves()}
        m.globals[name] = model_values.StructArray(t, shape, members)
    args = [arrays[d.name] for d in p.data if d.kind == "array"]
    for _, t, v in p.scalars:
        args.append(
            model_values.V(t, model_values.NP[t](v) if t[0] == "f" else arithmetic.wrap(t, v))
        )
    result = m.run(p.name, args)
    out = {d.name: (arrays[d.name].values(), arrays[d.name].bounds()) for d in p.data}
    if result is not None:
        out["return"] = (np.asarray(result.v), np.asarray(result.e))
    return out


class PlainQd:
    """What `qd` means to a program of the plain profile that Python itself runs."""

    i64, f64 = int, float

    class types:
        @staticmethod
        def ndarray(*args, **kw):
            return None

    @staticmethod
    def kernel(f):
        return f

    func = kernel

    @staticmethod
    def static(x):
        return x

    @staticmethod
    def cast(x, t):
        return t(x)


def by_python(p):
    """The same function run as plain Python, or None where Python's numbers do not apply."""
    scope = {"qd": PlainQd}
    exec(p.source, scope)
    arrays = p.inputs()
    args = [arrays[d.name] for d in p.data] + [v for _, _, v in p.scalars]
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = scope[p.name](*args)
    except (ZeroDivisionError, OverflowError, ValueError):
        return None
    if result is not None:
        arrays["return"] = np.asarray(result)
    return arrays


def first_difference(a, b):
    """Where two sets of arrays differ in bits (NaNs are equal), or None."""
    for name in a:
        x, y = np.asarray(a[name]), np.asarray(b[name])
        if x.dtype != y.dtype:
            y = y.astype(x.dtype)
        if x.dtype.kind == "f":
            u = f"u{x.dtype.itemsize}"
            same = (x.view(u) == y.view(u)) | (np.isnan(x) & np.isnan(y))
        else:
            same = x == y
        if not np.all(same):
            at = tuple(int(i) for i in np.argwhere(~np.atleast_1d(same))[0])
            return f"{name}{list(at)}: {np.atleast_1d(x)[at]!r} and {np.atleast_1d(y)[at]!r}"
    return None


def model_difference(out, expect):
    """Where outputs leave the model's bounds, or None; and how many cells were comparable."""
    compared = 0
    for name, (v, e) in expect.items():
        x = np.asarray(out[name])
        if v.dtype.kind != "f":
            same, compared = x.astype(v.dtype) == v, compared + v.size
        else:
            y = x.astype(v.dtype)
            tiny = np.finfo(v.dtype).tiny if v.dtype != np.float16 else 0
            exact = (y.view(f"u{v.dtype.itemsize}") == v.view(f"u{v.dtype.itemsize}")) | (
                np.isnan(y) & np.isnan(v)
            )
            exact |= (np.abs(y) <= tiny) & (np.abs(v) <= tiny)
            known = np.isfinite(e)
            with np.errstate(all="ignore"):
                near = np.abs(y.astype(np.float64) - v.astype(np.float64)) <= 2 * e
            same = np.where(e == 0, exact, exact | near | ~known)
            compared += int(np.sum(known))
        if not np.all(same):
            at = tuple(int(i) for i in np.argwhere(~np.atleast_1d(same))[0])
            bound = np.atleast_1d(e)[at]
            return (
                f"{name}{list(at)}: compiled {np.atleast_1d(x)[at]!r}, model {np.atleast_1d(v)[at]!r} ±{bound:.3g}",
                compared,
            )
    return None, compared


def check(programs, o, folder, variants=VARIANTS):
    """Runs programs on every variant; a list of (seed, kind, text) and counts."""
    results = [dict() for _ in programs]
    found, stats = [], dict(programs=len(programs), model=0, undecided=0, python=0, cells=0)
    for variant in variants:
        start(variant, o)
        try:
            module = load(programs, folder)
        except Exception as error:
            return [(p.seed, "load", f"{variant[0]}: {short(error)}") for p in programs], stats
        for p, r in zip(programs, results):
            print(f"@{p.seed} {variant[0]}", file=sys.stderr, flush=True)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    r[variant[0]] = execute(module, p)
            except Exception as error:
                found.append((p.seed, "error", f"{variant[0]}: {short(error)}"))
    import quadrants as qd

    qd.reset()
    for p, r in zip(programs, results):
        if len(r) < len(variants):
            continue
        # The interpreter defines meaning, but for what the compiler may choose once for all tiers:
        # the order of float sums over a parallel loop, and contraction under fast_math.
        skip = p.reorders or o["fast_math"]
        labels = [label for label, _, _ in variants][skip:]
        base = r[labels[0]]
        for label in labels[1:]:
            d = first_difference(base, r[label])
            if d:
                found.append((p.seed, "bits", f"{labels[0]} against {label}: {d}"))
        if o["fast_math"]:
            continue
        try:
            expect = by_model(p, o)
        except (model_values.Undecidable, model_values.TooLong):
            stats["undecided"] += 1
            expect = None
        except Exception as error:
            found.append((p.seed, "model", short(error)))
            expect = None
        if expect:
            d, cells = model_difference(base, expect)
            stats["model"] += 1
            stats["cells"] += cells
            if d:
                found.append((p.seed, "value", d))
        if p.profile == "plain":
            plain = by_python(p)
            if plain:
                stats["python"] += 1
                d = None if p.reorders else first_difference(base, plain)
                if d:
                    found.append((p.seed, "python", d))
    return found, stats


def short(error):
    text = str(error).strip() or traceback.format_exc().strip()
    return f"{type(error).__name__}: {text[-700:]}"


# --- processes -----------------------------------------------------------------------------------


def child(batch, seeds, profile="full", sources=None, timeout=90):
    """Runs seeds (or given sources) in a process of its own; its answer, or how it died."""
    job = json.dumps(dict(batch=batch, seeds=seeds, profile=profile, sources=sources))
    env = dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", PYTHONDONTWRITEBYTECODE="1")
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / "run.py"), "--child"],
            input=job,
            capture_output=True,
            text=True,
            env=env,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as slow:
        marks = [
            l
            for l in (slow.stderr or b"").decode(errors="replace").splitlines()
            if l.startswith("@")
        ]
        return None, f"timeout at {marks[-1] if marks else 'start'}"
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line[7:]), None
    marks = [l for l in done.stderr.splitlines() if l.startswith("@")]
    tail = [l for l in done.stderr.splitlines() if not l.startswith("@")][-4:]
    return (
        None,
        f"exit {done.returncode} at {marks[-1] if marks else 'start'}: {' | '.join(tail)[-500:]}",
    )


def child_main():
    job = json.loads(sys.stdin.read())
    o = options_of(job["batch"])
    programs = programs_of(job["batch"], job["seeds"], job["profile"])
    if job["sources"]:
        for p, s in zip(programs, job["sources"]):
            p.source = s
    with tempfile.TemporaryDirectory() as folder:
        found, stats = check(programs, o, folder)
    print("RESULT " + json.dumps(dict(found=found, stats=stats)))


def run_batch(batch, seeds, profile="full"):
    """(failures, stats) of a batch; a crash is traced to its program by running them singly."""
    answer, death = child(batch, seeds, profile, timeout=20 if len(seeds) == 1 else 60)
    if answer:
        return answer["found"], answer["stats"]
    if len(seeds) == 1:
        return [(seeds[0], "crash", death)], dict(programs=1)
    found, stats = [], {}
    mark = re.search(r"@(\d+)", death)  # the program that it was in
    last = int(mark[1]) if mark else seeds[0]
    for part in ([last], [s for s in seeds if s != last]):
        f, s = run_batch(batch, part, profile)
        found += f
        for k, v in s.items():
            stats[k] = stats.get(k, 0) + v
    if not found:
        found = [(seeds[0], "crash", f"only together: {death}")]
    return found, stats


# --- reduction -----------------------------------------------------------------------------------


def bodies(tree):
    for n in ast.walk(tree):
        for field in ("body", "orelse"):
            b = getattr(n, field, None)
            if (
                isinstance(b, list)
                and b
                and isinstance(b[0], ast.stmt)
                and not isinstance(n, ast.Module)
            ):
                yield n, field


def candidates(source):
    """Smaller versions of a source: statements removed, compound ones opened, expressions shortened."""
    tree = ast.parse(source)
    spots = [
        (i, j, how)
        for i, (n, f) in enumerate(bodies(tree))
        for j in range(len(getattr(n, f)))
        for how in ("drop", "open")
    ]
    for i, j, how in spots:
        t = ast.parse(source)
        n, f = list(bodies(t))[i]
        b = getattr(n, f)
        s = b[j]
        if how == "drop":
            new = b[:j] + b[j + 1 :]
            if not new and f == "body":
                if isinstance(s, ast.Pass):
                    continue
                new = [ast.Pass()]
        else:
            if not isinstance(s, (ast.If, ast.While)):
                continue
            new = b[:j] + s.body + b[j + 1 :]
        setattr(n, f, new)
        yield ast.unparse(ast.fix_missing_locations(t))
    for n, f in enumerate(x for x in tree.body if isinstance(x, ast.FunctionDef)):
        t = ast.parse(source)
        funcs = [x for x in t.body if isinstance(x, ast.FunctionDef)]
        if n < len(funcs) - 1:
            t.body.remove(funcs[n])
            yield ast.unparse(t)
    count = sum(isinstance(x, ast.expr) for x in ast.walk(tree))
    for k in range(count):
        t = ast.parse(source)
        e = [x for x in ast.walk(t) if isinstance(x, ast.expr)][k]
        subs = [
            x
            for x in ast.iter_child_nodes(e)
            if isinstance(x, ast.expr) and not isinstance(x, (ast.Name,))
        ]
        subs += [
            x
            for x in ast.iter_child_nodes(e)
            if isinstance(x, ast.Name) and x.id not in ("qd", "abs", "min", "max")
        ]
        for sub in subs[:3]:
            if (
                isinstance(sub, (ast.List, ast.Tuple))
                or isinstance(e, ast.Attribute)
                or isinstance(sub, ast.Attribute)
                and isinstance(e, ast.Call)
            ):
                continue

            class Swap(ast.NodeTransformer):
                def visit(self, node):
                    return sub if node is e else self.generic_visit(node)

            t2 = Swap().visit(t)
            yield ast.unparse(ast.fix_missing_locations(t2))
            t = ast.parse(source)
            e = [x for x in ast.walk(t) if isinstance(x, ast.expr)][k]
            break


def reduce(batch, seed, kind, text="", profile="full", seconds=60):
    """A smaller source that fails in the same way."""
    p = programs_of(batch, [seed], profile)[0]
    best = ast.unparse(ast.parse(p.source))
    end = time.time() + seconds
    mark = text.strip().splitlines()[-1][:60] if kind == "error" and text.strip() else None

    def fails(source):
        answer, death = child(batch, [seed], profile, [source], timeout=60)
        if kind == "crash":
            return answer is None
        if not answer:
            return False
        return any(k == kind and (mark is None or mark in t) for _, k, t in answer["found"])

    if not fails(best):
        return p.source
    progress = True
    while progress and time.time() < end:
        progress = False
        for c in candidates(best):
            if time.time() > end:
                break
            if len(c) < len(best) and fails(c):
                best, progress = c, True
                break
    return best


# --- the command ---------------------------------------------------------------------------------


def record(args, total, failures, seconds):
    import quadrants as qd

    date = datetime.date.today().isoformat()
    path = HERE.parent.parent / "benchmarks" / "results" / f"differential-{date}.md"
    kinds = {}
    for _, k, _ in failures:
        kinds[k] = kinds.get(k, 0) + 1
    cpu = next(
        (l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")),
        platform.machine(),
    )
    lines = [
        f"# Random differential tests, {date}",
        "",
        f"`python tests/differential/run.py --seed {args.seed} --count {args.count} --plain {args.plain}` on {cpu}, "
        f"{os.cpu_count()} hardware threads, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"quadrants {'.'.join(map(str, qd.__version__))}.",
        "",
        "| what | number |",
        "|---|---|",
        f"| programs, each run by the IR interpreter, tier 0 and tier 1 | {total.get('programs', 0)} |",
        f"| of these also compared with the typed NumPy model | {total.get('model', 0)} |",
        f"| cells compared with the model | {total.get('cells', 0)} |",
        f"| programs that the model leaves undecided (a branch on rounding) | {total.get('undecided', 0)} |",
        f"| programs also run as plain Python | {total.get('python', 0)} |",
        f"| programs with a difference, an error or a crash | {len({s for s, _, _ in failures})} |",
        f"| minutes | {seconds / 60:.1f} |",
        "",
    ]
    for k, n in sorted(kinds.items()):
        lines.append(f"- {k}: {n}")
    lines += [
        f"- seed {s} ({k}): `{t.strip().splitlines()[-1][:150]}`" for s, k, t in failures[:40]
    ]
    path.write_text("\n".join(lines).rstrip() + "\n")
    print(f"wrote {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument(
        "--plain", type=int, default=10, help="per cent of batches of the plain profile"
    )
    parser.add_argument("--switches", action="store_true", help="draw options of passes, too")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop early")
    parser.add_argument("--reduce", type=int, default=3, help="how many failures to reduce")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, help="failures as JSON lines")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child_main()
    begin = time.time()
    jobs = []
    for first in range(args.seed, args.seed + args.count, BATCH):
        seeds = list(range(first, min(first + BATCH, args.seed + args.count)))
        batch = first // BATCH
        plain = batch % 100 < args.plain and not args.switches
        batch += SWITCHED * args.switches
        jobs.append((batch if not plain else PLAIN_BATCH, seeds, "plain" if plain else "full"))
    failures, total, done = [], {}, 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        pending = {}
        queue = iter(jobs)

        def more():
            if time.time() - begin < args.minutes * 60:
                job = next(queue, None)
                if job:
                    pending[pool.submit(run_batch, *job)] = job

        for _ in range(args.jobs):
            more()
        while pending:
            ready, _ = concurrent.futures.wait(
                pending, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for f in ready:
                job = pending.pop(f)
                found, stats = f.result()
                for k, v in stats.items():
                    total[k] = total.get(k, 0) + v
                for seed, kind, text in found:
                    failures.append((seed, kind, text))
                    print(
                        f"seed {seed} (batch {job[0]}, {job[2]}) {kind}: {text.strip().splitlines()[-1][:200]}",
                        flush=True,
                    )
                    if args.out:
                        with args.out.open("a") as o:
                            o.write(
                                json.dumps(
                                    dict(
                                        seed=seed,
                                        batch=job[0],
                                        profile=job[2],
                                        kind=kind,
                                        text=text,
                                    )
                                )
                                + "\n"
                            )
                done += 1
                if done % 40 == 0:
                    print(
                        f"... {total.get('programs', 0)} programs, {len(failures)} failures, {time.time() - begin:.0f} s",
                        flush=True,
                    )
                more()
    seconds = time.time() - begin
    print(f"{total} in {seconds:.0f} s, {len(failures)} failures")
    by_seed = {s: j for j in jobs for s in j[1]}
    seen = set()
    for seed, kind, text in failures:
        if len(seen) >= args.reduce or seed in seen:
            continue
        seen.add(seed)
        batch, _, profile = by_seed[seed]
        print(
            f"\n--- seed {seed} {kind}: {text.strip()[-300:]}\n{reduce(batch, seed, kind, text, profile)}"
        )
    if args.record:
        record(args, total, failures, seconds)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
