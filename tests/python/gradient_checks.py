"""Checks the gradients of random programs in several ways.

    python tests/python/gradient_checks.py FIRST LAST [--seconds S] [--arch cuda]

A program's derivative J is that of all cells with gradients behind the kernel by those before it.
`check` compares

- <J v, w> of the forward mode with <v, J' w> of the reverse mode, and with central differences;
- the reverse mode's bits for small and large `ad_tape_bytes`, and of both native tiers;
- its values in the interpreter, with two threads, and with funcs that are not expanded;
- ndarrays with fields in their place;
- what the kernel does to storage without gradients, which happens again on the way back;
- of a GPU, where sums come in any order, its values with those of the CPU.

What is refused with a documented error is counted, and what disagrees in programs that waver: those
whose results last bits of the inputs decide (chaotic recurrences, sums that cancel).
The programs: gradient_programs.py.
The command runs batches in processes of their own, so that a crash has a seed, and makes failing
programs smaller by removing statements.
"""

import argparse
import ast
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import traceback

import numpy as np

from gradient_programs import program

# What else to run than one tier with one thread and a large tape.
VARIANTS = {f"budget {n}": dict(ad_tape_bytes=n) for n in (200000, 20000, 3000, 700)}
VARIANTS |= {f"tier {t}": dict(tier=t) for t in ("0", "1", "interpret")}
VARIANTS |= {"threads 2": dict(cpu_max_num_threads=2)}
GPU_VARIANTS = {"cpu": dict(arch="cpu"), "budget 20000": dict(ad_tape_bytes=20000)}
AS_CALLS = dict(disable_pass="inline_calls")  # funcs stay funcs in derivatives
VARIANTS |= {"calls": AS_CALLS, "calls, budget 3000": dict(ad_tape_bytes=3000, **AS_CALLS)}
REFUSALS = [
    "Not supported. ",
    "Mixed usage of for-loops",
    "Cross-iteration read-after-write",
    "Real function in gradient kernels unsupported",
    "Cannot use non static range",
    "Cannot break in the outermost loop",  # of a func that the kernel itself calls
]


@contextlib.contextmanager
def drawing_again(number):
    from quadrants._lib import core

    core.draw_again(number)
    try:
        yield
    finally:
        core.draw_again(0)


class Refused(Exception):
    pass


class Overflow(Exception):
    pass


@contextlib.contextmanager
def refusals():
    """Documented errors as exceptions of their own."""
    try:
        yield
    except Exception as error:
        text = str(error)
        if "dstack overflow" in text:
            raise Overflow(text) from None
        known = type(error).__name__ in (
            "RuntimeError", "QuadrantsCompilationError", "QuadrantsSyntaxError"
        )  # fmt: skip
        for r in REFUSALS:
            if known and r in text:
                raise Refused(next(l for l in text.splitlines() if r in l)) from None
        raise


class Loaded:
    """A program in the runtime that was started last."""

    count = 0

    def __init__(self, p, folder, as_fields=False):
        from helpers import (
            module_at,
        )  # brings the compiler, which the command's own process needs not

        Loaded.count += 1
        path = pathlib.Path(folder) / f"program{Loaded.count}.py"
        path.write_text(p.module(as_fields))
        self.module = module_at(path)
        self.p = p
        self.storage = {
            d.name: getattr(self.module, d.name if as_fields or not d.array else f"host_{d.name}")
            for d in p.data
        }
        self.args = [] if as_fields else [self.storage[d.name] for d in p.arrays()]
        self.args += [value for _, _, value in p.arguments]
        self.smooth = [d.name for d in p.data if d.grad]

    def put(self, values, of=""):
        for name, value in values.items():
            at = self.storage[name]
            (getattr(at, of) if of else at).from_numpy(value)

    def take(self, of=""):
        names = self.smooth if of else list(self.storage)
        return {
            n: (getattr(self.storage[n], of) if of else self.storage[n]).to_numpy() for n in names
        }

    def values(self, inputs):
        self.put(inputs)
        with refusals(), drawing_again(1):  # the same numbers each time
            self.module.k(*self.args)
        return self.take()

    def gradients(self, inputs, weights):
        """Values behind the kernel, behind its way back, and J' weights."""
        values = self.values(inputs)
        self.put(weights, "grad")
        with refusals(), drawing_again(1):
            self.module.k.grad(*self.args)
        again = self.take()
        return values, again, self.take("grad")

    def tangents(self, inputs, direction):
        """J direction, of a program of fields."""
        import quadrants as qd

        none = qd.field(qd.f64, (), needs_dual=True)
        self.put(inputs)
        self.put(direction, "dual")
        mode = qd.ad.FwdMode(loss=none, param=none, clear_gradients=False)
        with mode, refusals(), drawing_again(1):
            self.module.k(*self.args)
        return self.take("dual")


def same_bits(a, b):
    """Where two sets of arrays differ in bits, or None."""
    for n in a:
        x, y = np.asarray(a[n]), np.asarray(b[n])
        u = f"u{x.dtype.itemsize}"
        if not np.array_equal(np.atleast_1d(x).view(u), np.atleast_1d(y).view(u)):
            at = tuple(int(i) for i in np.argwhere(np.atleast_1d(x != y))[:1].ravel())
            return f"{n}{list(at)}: {np.atleast_1d(x)[at]!r} and {np.atleast_1d(y)[at]!r}"
    return None


def near(a, b, rel=1e-11):
    """Where two sets of arrays differ by more, or None."""
    scale = max([1.0] + [float(np.max(np.abs(v))) for v in a.values()])
    for n in a:
        x, y = np.atleast_1d(a[n]), np.atleast_1d(b[n])
        off = ~(np.abs(x - y) <= rel * scale)
        if off.any():
            at = tuple(int(i) for i in np.argwhere(off)[0])
            return f"{n}{list(at)}: {x[at]!r} and {y[at]!r}, largest {scale:.3g}"
    return None


def inner(a, b, names):
    """<a, b> and the sum of the terms' sizes."""
    terms = np.concatenate([np.ravel(a[n] * b[n]) for n in names])
    return float(terms.sum()), float(np.abs(terms).sum())


class Checker:
    """Runs programs and collects what does not agree.

    `start(tier=None, **options)` starts a fresh runtime. `mark` hears what happens next. `only` is
    the kind of failure to look for.
    """

    def __init__(self, start, folder, variants=VARIANTS, fast_math=False, tier="1", only=None):
        self.start, self.folder, self.variants = start, folder, variants
        self.fast_math, self.tier, self.only = fast_math, tier, only
        self.stats = collections.Counter()
        self.why = collections.Counter()
        self.mark = lambda text: None
        self.in_order = True  # sums come so, on a CPU

    def load(self, p, as_fields=False, **options):
        control = "ad_general_control" if p.general else "ad_stack_experimental_enabled"
        options = {"tier": self.tier, "cpu_max_num_threads": 1, control: True, **options}
        self.mark(str(options))
        self.start(fast_math=self.fast_math, **options)
        return Loaded(p, self.folder, as_fields)

    def check(self, p):
        """Failures of a program, as (kind, text)."""
        self.stats["programs"] += 1
        found = []
        try:
            self.compare(p, lambda kind, text: found.append((kind, text)))
        except Refused as r:
            self.stats["refused"] += 1
            self.why[str(r)[:90]] += 1
        except Exception as error:
            lines = [l for l in str(error).strip().splitlines() if l.strip(" ^~\t")]
            lines = lines or [repr(traceback.extract_tb(error.__traceback__)[-1])]
            found.append(("error", f"{type(error).__name__}: {' | '.join(lines[-3:])}"))
        if any(kind not in ("error", "nan", "stores") for kind, _ in found) and self.wavers(p):
            self.stats["wavering"] += 1
            found = [f for f in found if f[0] in ("error", "nan", "stores")]
        return found

    def wavers(self, p):
        """Whether some last bits of the inputs decide the results: rounding does so too, then."""
        inputs, weights = (p.inputs(salt) for salt in range(2))
        weights = {d.name: weights[d.name] for d in p.data if d.grad}
        loaded = self.load(p)
        at = loaded.gradients(inputs, weights)
        for salt in range(4):
            rng = np.random.default_rng([p.seed, salt])
            moved = {
                n: np.asarray(v + v * rng.integers(-4, 5, v.shape) * 2.0**-52, v.dtype)
                for n, v in inputs.items()
            }
            if any(near(a, b, 1e-12) for a, b in zip(at, loaded.gradients(moved, weights))):
                return True
        # What is chaotic from a constant on: of the kernel alone, which other tests compare.
        otherwise = self.load(p, disable_pass="contract")
        return near(at[0], otherwise.gradients(inputs, weights)[0], 1e-9) is not None

    def compare(self, p, report):
        inputs, weights, direction = (p.inputs(salt) for salt in range(3))
        smooth = [d.name for d in p.data if d.grad]
        weights, direction = ({n: v[n] for n in smooth} for v in (weights, direction))
        base = self.load(p)
        values, again, gradient = base.gradients(inputs, weights)
        if not all(np.isfinite(v).all() for v in values.values()):
            self.stats["wild"] += 1
            return
        if not all(np.isfinite(v).all() for v in gradient.values()):
            if max(float(np.nanmax(np.abs(v))) for v in gradient.values()) > 1e30:
                self.stats["wild"] += 1  # others are past what f64 holds
                return
            report("nan", str({n: v.tolist() for n, v in gradient.items()})[:300])
            return
        if d := same_bits({n: values[n] for n in smooth}, again):
            report("stores", f"the way back changed {d}")
        for d in p.data:
            if d.use == "count":
                twice = 2 * values[d.name] - inputs[d.name]
                if not np.array_equal(twice, again[d.name]):
                    report("counts", f"{d.name}: {twice.tolist()}, got {again[d.name].tolist()}")
        size = max(float(np.max(np.abs(v))) for v in gradient.values())
        if size > 1e7:
            self.stats["steep"] += 1
        elif self.wants("differences"):
            self.by_differences(p, base, inputs, weights, direction, gradient, report)
        if self.wants("arrays", "dot"):
            self.by_fields(p, inputs, weights, direction, gradient, size, report)
        for label, options in self.variants.items():
            if self.wants(label, f"counts, {label}"):
                self.other(p, label, options, inputs, weights, again, gradient, report)

    def wants(self, *kinds):
        return self.only in (None, "error", "crash", *kinds)

    def by_differences(self, p, base, inputs, weights, direction, gradient, report):
        if not p.exact:
            return

        def moved(h):
            step = {n: np.asarray(inputs[n] + h * v) for n, v in direction.items()}
            return {**inputs, **step}

        names = list(direction)
        h = 2e-6
        f = {k: inner(weights, base.values(moved(k * h)), names)[0] for k in range(-2, 3)}
        one, two = (f[1] - f[-1]) / (2 * h), (f[2] - f[-2]) / (4 * h)
        left, right = (f[0] - f[-1]) / h, (f[1] - f[0]) / h
        got, scale = inner(gradient, direction, names)
        scale = max(scale, 1.0)
        if abs(one - two) > 2e-6 * scale or abs(left - right) > 1e-3 * scale:
            self.stats["rough"] += 1
            return
        self.stats["differences"] += 1
        if abs(got - one) > 1e-5 * scale:
            report("differences", f"reverse {got!r}, differences {one!r} and {two!r}")

    def by_fields(self, p, inputs, weights, direction, gradient, size, report):
        """The forward mode, which has fields alone; and arrays against fields."""
        fields = self.load(p, as_fields=True)
        if p.arrays():
            d = near(gradient, fields.gradients(inputs, weights)[2])
            self.stats["arrays"] += 1
            if d:
                report("arrays", f"arrays against fields: {d}")
        try:
            tangents = fields.tangents(inputs, direction)
        except Refused as r:
            self.stats["no forward mode"] += 1
            self.why["forward: " + str(r)[:80]] += 1
            return
        names = list(direction)
        forward, a = inner(tangents, weights, names)
        backward, b = inner(gradient, direction, names)
        self.stats["dots"] += 1
        rel = 1e-9 if p.exact else 1e-6
        if size <= 1e7 and not abs(forward - backward) <= rel * max(a, b, 1.0):
            report("dot", f"forward {forward!r}, reverse {backward!r}, terms up to {max(a, b):.3g}")

    def other(self, p, label, options, inputs, weights, again, gradient, report):
        native = options.get("tier") in ("0", "1")
        exact = native or ("ad_tape_bytes" in options and "disable_pass" not in options)
        exact &= self.in_order
        loaded = self.load(p, **options)
        try:
            _, other_again, other = loaded.gradients(inputs, weights)
        except Overflow:
            self.stats[f"overflow, {label}"] += 1
            return
        self.stats[label] += 1
        different = same_bits(gradient, other)
        d = different if exact else near(gradient, other)
        if different and not exact:
            self.stats[f"other bits, {label}"] += 1
        if d:
            report(label, d)
        counts = [x.name for x in p.data if x.t == "i32"]
        if d := same_bits({n: again[n] for n in counts}, other_again):
            report(f"counts, {label}", d)


ARCH: list[str] = []  # of the command, for its children


# --- the command ----------------------------------------------------------------------------------


def start(tier="1", arch="cpu", **options):
    import quadrants as qd

    os.environ["QD_CPU_TIER"] = tier
    if arch == "cuda":
        options.pop("cpu_max_num_threads", None)
    qd.init(
        arch=getattr(qd, arch), default_fp=qd.f64, offline_cache=False, log_level=qd.ERROR,
        print_full_traceback=False, **options,
    )  # fmt: skip


@dataclasses.dataclass
class Options:
    """What a seed's batch of ten has. Tier 1 takes long to compile."""

    seed: dataclasses.InitVar[int]

    def __post_init__(self, seed):
        batch = seed // 10
        self.fast_math = batch % 5 == 4
        self.general = batch % 4 != 3
        self.tier = "1" if batch % 5 == 2 else "0"
        self.variants = {k: v for k, v in VARIANTS.items() if v.get("tier") != self.tier}
        if self.tier == "0" and batch % 5:
            del self.variants["tier 1"]


def child(arch):
    """Checks the programs that standard input names; the answer is a line of JSON each."""
    for line in sys.stdin:
        job = json.loads(line)
        seed = job["seed"]
        o = Options(seed)
        p = program(seed, o.general)
        if job.get("source"):
            p.source = job["source"]
        with tempfile.TemporaryDirectory() as folder:
            on_cpu = arch == "cpu"
            begin = lambda arch=arch, **options: start(arch=arch, **options)
            variants = o.variants if on_cpu else GPU_VARIANTS | {"calls": AS_CALLS}
            checker = Checker(begin, folder, variants, o.fast_math, o.tier, job.get("only"))
            checker.in_order = on_cpu
            checker.mark = lambda text: print(f"@{seed} {text}", file=sys.stderr, flush=True)
            found = checker.check(p)
        answer = dict(seed=seed, found=found, stats=checker.stats, why=checker.why)
        print("RESULT " + json.dumps(answer), flush=True)


def run(jobs, seconds):
    """Answers to jobs of one process, and how it died before the next, or None."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [sys.executable, __file__, "0", "0", "--child", *ARCH],
            stdin=subprocess.PIPE, stdout=out, stderr=err, text=True,
            env=dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0"),
        )  # fmt: skip
        death = None
        try:
            process.communicate("".join(json.dumps(j) + "\n" for j in jobs), timeout=seconds)
            if process.returncode:
                death = f"exit {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            death = "hangs"
        out.seek(0)
        err.seek(0)
        answers = [json.loads(l[7:]) for l in out if l.startswith("RESULT ")]
        lines = err.read().splitlines()
        if death:
            tail = [l for l in lines if not l.startswith("@")][-3:]
            at = [l for l in lines if l.startswith("@")][-1:]
            death += f" at {' '.join(at)}: {' | '.join(tail)[-400:]}"
        return answers, death


def run_batch(seeds, seconds_each=20):
    """Answers for seeds; a process that dies goes on behind the program it died of."""
    answers, seeds = [], list(seeds)
    while seeds:
        got, death = run([dict(seed=s) for s in seeds], 15 + seconds_each * len(seeds))
        answers += got
        seeds = seeds[len(got) :]
        if seeds and death:
            alone, dies = run([dict(seed=seeds[0])], seconds_each)
            if dies or not alone:
                alone = [dict(seed=seeds[0], found=[("crash", dies or death)], stats={}, why={})]
            answers += alone
            seeds = seeds[1:]
    return answers


def family(kind, text):
    """What must stay equal while a failing program shrinks."""
    if kind == "crash":
        return kind, text.split(" at ")[0]
    return kind, re.sub(r"\d+|'.*'", "", text)[:60] if kind == "error" else ""


def candidates(source):
    """Smaller versions: statements dropped, blocks opened, functions dropped, expressions cut."""
    guard = re.compile(r"w\d+ \+= 1|if w\d+ > \d+:")
    tree = ast.parse(source)

    def blocks(t):
        for n in ast.walk(t):
            for part in ("body", "orelse"):
                b = getattr(n, part, None)
                if isinstance(b, list) and b and not isinstance(n, ast.Module):
                    yield n, part, b

    spots = [(k, j) for k, (_, _, b) in enumerate(blocks(tree)) for j in range(len(b))]
    for how in ("drop", "open"):
        for k, j in spots:
            t = ast.parse(source)
            n, part, b = list(blocks(t))[k]
            s = b[j]
            if guard.match(ast.unparse(s)) or isinstance(s, (ast.Pass, ast.Break, ast.Continue)):
                continue
            if how == "drop":
                new = b[:j] + b[j + 1 :]
                if not new and part == "body":
                    new = [ast.Pass()]
            elif isinstance(s, ast.If):
                new = b[:j] + s.body + b[j + 1 :]
            elif isinstance(s, ast.For):
                zero = ast.parse("0").body[0].value
                names = s.target.elts if isinstance(s.target, ast.Tuple) else [s.target]
                new = b[:j] + [ast.Assign([x], zero) for x in names] + s.body + b[j + 1 :]
            else:
                continue
            setattr(n, part, new)
            yield ast.unparse(ast.fix_missing_locations(t))
    for name in [f.name for f in tree.body if f.name != "k"]:
        t = ast.parse(source)
        t.body = [f for f in t.body if f.name != name]
        yield ast.unparse(t)
    count = sum(isinstance(x, ast.expr) for x in ast.walk(tree))
    for k in range(count):
        t = ast.parse(source)
        x = [x for x in ast.walk(t) if isinstance(x, ast.expr)][k]
        slices = (s.slice for s in ast.walk(t) if isinstance(s, ast.Subscript))
        if any(x is i for s in slices for i in ast.walk(s)):
            continue  # an index must stay below its limit
        parts = [c for c in ast.iter_child_nodes(x) if isinstance(c, ast.expr)]
        if isinstance(x, (ast.Subscript, ast.Constant, ast.Name, ast.Attribute, ast.Compare)):
            continue
        if isinstance(x, ast.Call):
            parts = x.args
        for c in parts:
            cut = Replace(x, c).visit(t)
            yield ast.unparse(ast.fix_missing_locations(cut))
            break


class Replace(ast.NodeTransformer):
    def __init__(self, old, new):
        self.old, self.new = old, new

    def visit(self, node):
        return self.new if node is self.old else self.generic_visit(node)


def reduce(seed, kind, text, seconds=120):
    """The smallest source found that fails in the same way, and how."""
    p = program(seed, Options(seed).general)
    source, wanted, end = p.source, family(kind, text), time.time() + seconds
    at, progress = 0, True
    while time.time() < end:
        waiting = [c for c in candidates(source) if len(c) < len(source)]
        if at >= len(waiting):
            if not progress:
                break
            at, progress = 0, False
            continue
        some = waiting[at : at + 25]
        answers, death = run([dict(seed=seed, source=c, only=kind) for c in some], 40)
        found = [[t for k, t in a["found"] if family(k, t) == wanted] for a in answers]
        if death and len(answers) < len(some):
            found.append([death] if family("crash", death) == wanted else [])
        hit = next((k for k, texts in enumerate(found) if texts), None)
        if hit is None:
            at += max(1, len(found))
        else:
            source, text, progress = some[hit], found[hit][0], True
            at += hit
    p.source = source
    used = set(re.findall(r"\w+", source))
    p.data = [d for d in p.data if d.name in used or d.array]
    return p, text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, help="the seed behind the last one")
    parser.add_argument("--seconds", type=float, default=1e9, help="starts no batch later")
    parser.add_argument("--reduce", type=int, default=3, help="how many failures to make smaller")
    parser.add_argument("--arch", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--show", action="store_true", help="only print the programs")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args.arch)
    ARCH[:] = ["--arch", args.arch]
    if args.show:
        for seed in range(args.first, args.last):
            p = program(seed, Options(seed).general)
            print(f"# seed {seed}: {vars(Options(seed))}, {p.arguments}")
            print(p.module())
        return 0
    begin, stats, why, failures = time.time(), collections.Counter(), collections.Counter(), []
    for first in range(args.first, args.last, 50):
        if time.time() - begin > args.seconds:
            break
        for a in run_batch(range(first, min(first + 50, args.last))):
            stats.update(a["stats"])
            why.update(a["why"])
            for kind, text in a["found"]:
                failures.append((a["seed"], kind, text))
                print(f"seed {a['seed']} {kind}: {text[:300]}", flush=True)
    seconds = time.time() - begin
    print(
        f"{stats['programs']} programs, {stats['refused']} refused, {len(failures)} failures, "
        f"{seconds:.0f} s"
    )
    print(dict(stats))
    for text, count in why.most_common():
        print(f"  {count} x {text}")
    seen = set()
    for seed, kind, text in failures:
        if len(seen) >= args.reduce or family(kind, text) in seen:
            continue
        seen.add(family(kind, text))
        p, text = reduce(seed, kind, text)
        print(f"\n--- seed {seed} {kind}: {text}\n{p.arguments}\n{p.module()}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
