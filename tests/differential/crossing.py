"""Every source of a value meets every use of it at every place of a kernel.

    python tests/differential/crossing.py --jobs 2             # every triple, dtypes in turn
    python tests/differential/crossing.py --pairs              # some thousand that cover all pairs
    python tests/differential/crossing.py --sample             # triples of kinds of parts, as in the suite
    python tests/differential/crossing.py --oracle /path/to/python   # also run that interpreter's package
    python tests/differential/crossing.py --only "0-D field/add into 0-D field/inner loop/f32" --show

`crossing_parts.py` lists the parts, `crossing_cases.py` puts them together. A case is one kernel, named by its four parts; cases of one dtype
share a module of fields, and a process runs a module of them on each variant (`VARIANTS`): the IR
interpreter, both tiers, one and two threads, debug mode. All must leave identical bits in every field
and array, print the same lines and return the same; where the typed model of `model.py` knows the
constructs, its values too. With `--oracle` another package named quadrants runs the same modules in its
own Python, and differences are listed (`--record` writes them to `benchmarks/results`). A process that
dies is taken apart to find the case.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import pickle
import platform
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
from crossing_cases import batches, everything, module, pairs, sample

HERE = pathlib.Path(__file__).resolve().parent
MAIN = ["interpret/1", "1/2"]  # tier/threads[/debug or fast_math]
OTHERS = ["0/1", "1/1/debug", "0/2/fast", "interpret/1/debug"]
VARIANTS = MAIN + OTHERS


# --- running ---------------------------------------------------------------------------------------


def child(python, t, cases, variants, done, timeout, model):
    """({variant: {case: result}}, how it died and where) of a module in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "crossed.py"
        source.write_text(module(t, cases))
        result = pathlib.Path(folder) / "result"
        job = dict(
            source=str(source), result=str(result), t=t, variants=variants, model=model,
            measured=str(pathlib.Path(folder) / "measured"), done={v: list(rs) for v, rs in done.items()}, cases=[dict(name=c.name, params=c.params, method=c.method, touched=c.touched, prints=c.prints) for c in cases],
        )  # fmt: skip
        pathlib.Path(job["measured"]).write_bytes(pickle.dumps(done.get(variants[0], {})))
        env = dict(
            os.environ,
            ENABLE_QUADRANTS_HEADER_PRINT="0",
            PYTHONDONTWRITEBYTECODE="1",
            QD_ENABLE_PYBUF="0",
        )
        try:
            ended = subprocess.run(
                [python, str(HERE / "crossing_child.py")], input=json.dumps(job), capture_output=True,
                text=True, env=env, timeout=timeout, cwd=folder, errors="replace",
            )  # fmt: skip
            code, marks = ended.returncode, ended.stderr
        except subprocess.TimeoutExpired as slow:
            code, marks = "timeout", (slow.stderr or b"").decode(errors="replace")
        found = {}
        if result.exists():
            with result.open("rb") as f:
                while True:
                    try:
                        v, name, r = pickle.load(f)
                    except (EOFError, pickle.UnpicklingError):
                        break
                    found.setdefault(v, {})[name] = r
        if code == 0:
            return found, None
        at = re.findall(r"^@(\S+) (\S+)", marks, re.M)
        tail = [l for l in marks.splitlines() if l and not l.startswith("@")][-3:]
        return found, (at[-1] if at else None, f"exit {code}: {' | '.join(tail)[-400:]}")


def run_batch(python, t, cases, variants, model=True):
    """Results of all cases and deaths; a dead case is left out and the rest goes on."""
    results, deaths = {}, {}
    left = list(cases)
    while left:
        found, death = child(python, t, left, variants, results, 60 + 2 * len(left), model)
        for v, rs in found.items():
            results.setdefault(v, {}).update(rs)
        if death is None:
            break
        if death[0] is None:
            for c in left:
                deaths[c.name] = f"module: {death[1]}"
            break
        variant, name = death[0]
        deaths[name] = f"{variant}: {death[1]}"
        left = [c for c in left if c.name != name]
    return results, deaths


def equal(a, b, tolerance=0.0, any_nan=False):
    """None, or where two results differ; with `any_nan` whatever stands for a NaN of `a` is right."""
    if a.get("error") or b.get("error"):
        if bool(a.get("error")) == bool(b.get("error")):
            return None
        return f"{a.get('error') or 'fine'} and {b.get('error') or 'fine'}"
    if a.get("printed") != b.get("printed"):
        return f"printed {a.get('printed')!r} and {b.get('printed')!r}"
    for name, x in a["values"].items():
        y = np.asarray(b["values"][name])
        x = np.asarray(x)
        with np.errstate(all="ignore"):
            same = x == y
            if x.dtype.kind == "f":
                same |= (x != x) & (any_nan | (y != y))
                if tolerance:
                    same |= np.abs(x - y) <= tolerance * np.maximum(np.abs(x), np.abs(y))
        if not np.all(same):
            at = tuple(int(i) for i in np.argwhere(~np.atleast_1d(same))[0])
            return f"{name}{list(at)}: {np.atleast_1d(x)[at]!r} and {np.atleast_1d(y)[at]!r}"
    return None


def judge(cases, results, deaths, variants):
    """(id, kind, text) of what is wrong, and counts."""
    found, stats = [], dict(cases=len(cases), modelled=0, undecided=0, unmodelled=0)
    for c in cases:
        if c.name in deaths:
            found.append((c.id, "crash", deaths[c.name]))
            continue
        base = results.get(variants[0], {}).get(c.name)
        for v in variants:
            r = results.get(v, {}).get(c.name)
            if r is None:
                found.append((c.id, "missing", v))
            elif r.get("error"):
                found.append((c.id, "error", f"{v}: {r['error']}"))
                break
            elif base is not None and (d := equal(base, r, any_nan="fast" in v)):
                found.append((c.id, "bits", f"{variants[0]} against {v}: {d}"))
                break
        m = results.get("model", {}).get(c.name)
        if m is None:
            continue
        if "why" in m:
            stats["unmodelled" if m["why"] != "undecidable" else "undecided"] += 1
            stats.setdefault("why", {}).setdefault(m["why"], c.id)
        else:
            stats["modelled"] += 1
            if m["difference"]:
                found.append((c.id, "value", m["difference"]))
    return found, stats


TOLERANCE = {"f16": 2e-3, "f32": 2e-6, "f64": 1e-12}


def lacking_there(case):
    """Whether the established package is known to abort or to refuse the case."""
    _, use, place, t = case.id.split("/")
    narrow = t in ("i8", "i16", "u8", "u16", "u1")
    if narrow and re.match(
        "min|max|augmented power|power|minimum|sub|and |or |xor|add into (local|0-D)", use
    ):
        return True
    if t not in ("i32", "f16", "f32", "f64") and use in ("index of vector", "index of matrix"):
        return True
    arrays = {"out", "a", "a0", "b"} & set(re.findall(r"\w+", case.text.partition("@qd.kernel")[0]))
    return place.startswith("real_func") and bool(arrays)


def against(cases, results, oracle, deaths, base):
    """(id, text) where the established package differs from ours."""
    out = []
    for c in cases:
        ours, theirs = results.get(base, {}).get(c.name), oracle.get("oracle", {}).get(c.name)
        if c.name in deaths:
            out.append((c.id, "theirs dies", deaths[c.name]))
        elif ours and theirs:
            # A float that both print with six digits may end otherwise.
            d = equal(ours, theirs, TOLERANCE.get(c.id.rsplit("/", 1)[1], 1e-12))
            if d:
                kind = (
                    "theirs refuses"
                    if theirs.get("error")
                    else "values"
                    if not ours.get("error")
                    else "ours refuses"
                )
                out.append((c.id, kind, d))
    return out


# --- the command -----------------------------------------------------------------------------------


def run(names, variants=VARIANTS, jobs=1, oracle=None, minutes=1e9, say=lambda text: None):
    """Runs cases; (failures, stats, differences from the oracle)."""
    failures, total, differences = [], {}, []
    begin = time.time()

    def one(batch):
        t, cases = batch
        if time.time() - begin > minutes * 60:
            return [], {}, []
        results, deaths = run_batch(sys.executable, t, cases, variants)
        found, stats = judge(cases, results, deaths, variants)
        other = []
        if oracle:
            shared = [c for c in cases if not lacking_there(c)]
            theirs, dead = run_batch(oracle, t, shared, ["oracle"], model=False)
            stats["oracle"] = len(shared)
            other = against(shared, results, theirs, dead, variants[0])
            alone = []  # there, a kernel's real_funcs are those of another kernel now and then
            for case, kind, text in other:
                if kind == "values":
                    c = next(c for c in shared if c.id == case)
                    again = against(
                        [c],
                        results,
                        *run_batch(oracle, t, [c], ["oracle"], model=False),
                        variants[0],
                    )
                    alone += again or [(case, "values there only in company", text)]
                else:
                    alone.append((case, kind, text))
            other = alone
        return found, stats, other

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for found, stats, other in pool.map(one, batches(names)):
            failures += found
            differences += other
            for k, v in stats.items():
                if isinstance(v, dict):
                    total.setdefault(k, {}).update(v)
                else:
                    total[k] = total.get(k, 0) + v
            for f in found:
                say(f"{f[1]}: {f[0]}: {f[2].strip()[-300:]}")
            for f in other:
                say(f"oracle: {f[1]}: {f[0]}: {f[2].strip()[-200:]}")
    return failures, total, differences


def record(total, failures, differences, seconds):
    import quadrants as qd

    date = datetime.date.today().isoformat()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True
    )
    cpu = next(
        (l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")),
        platform.machine(),
    )
    kinds = {}
    for _, kind, _ in differences:
        kinds[kind] = kinds.get(kind, 0) + 1
    lines = [
        f"# Sources, uses and places crossed, {date}",
        "",
        f"`python {' '.join(sys.argv)}` at {commit.stdout.strip()} on {cpu}, {os.cpu_count()} hardware threads, "
        f"Python {platform.python_version()}, quadrants {'.'.join(map(str, qd.__version__))}.",
        "",
        "| what | number |",
        "|---|---|",
        f"| cases: one kernel each | {total.get('cases', 0)} |",
        f"| of these also computed by the typed model | {total.get('modelled', 0)} |",
        f"| not decided or not known to the model | {total.get('undecided', 0) + total.get('unmodelled', 0)} |",
        f"| cases with a difference, an error or a crash | {len({f[0] for f in failures})} |",
        f"| cases also run by the established package | {total.get('oracle', 0)} |",
        *(f"| there: {kind} | {n} |" for kind, n in sorted(kinds.items())),
        f"| minutes | {seconds / 60:.1f} |",
        "",
    ]
    lines += [
        f"- {kind}: {case}: `{text.strip().splitlines()[-1][:150]}`"
        for case, kind, text in failures
    ]
    lines += [
        f"- there {kind}: {case}: `{text.strip().splitlines()[-1][:150]}`"
        for case, kind, text in differences
    ]
    path = HERE.parent.parent / "benchmarks" / "results" / f"crossing-{date}.md"
    path.write_text("\n".join(lines).rstrip() + "\n")
    print(f"wrote {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--pairs", action="store_true", help="cover pairs of parts instead of triples"
    )
    parser.add_argument("--sample", action="store_true", help="cover pairs of kinds of parts")
    parser.add_argument("--seed", type=int, default=0, help="another draw of dtypes and pairs")
    parser.add_argument(
        "--only", help="parts of the wanted cases' ids, separated by '/'; empty is any"
    )
    parser.add_argument(
        "--show", action="store_true", help="print the cases' texts and do not run them"
    )
    parser.add_argument("--slice", help="K/N: each Nth case from K")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop early")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument(
        "--oracle", help="the Python of an environment with the established package"
    )
    parser.add_argument("--out", type=pathlib.Path, help="failures and differences as JSON lines")
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    names = list((sample if args.sample else pairs if args.pairs else everything)(args.seed))
    if args.only:
        wanted = args.only.split("/")
        names = [n for n in names if all(w in ("", x) for w, x in zip(wanted, n))] or [
            tuple(wanted)
        ]
    if args.slice:
        k, n = map(int, args.slice.split("/"))
        names = names[k::n]
    if args.show:
        for t, cases in batches(names):
            print(module(t, cases))
        return 0
    begin = time.time()
    failures, total, differences = run(
        names,
        args.variants.split(","),
        args.jobs,
        args.oracle,
        args.minutes,
        lambda s: print(s, flush=True),
    )
    seconds = time.time() - begin
    why = total.pop("why", {})
    print(
        f"{total} in {seconds:.0f} s, {len(failures)} failures, {len(differences)} differences from the oracle"
    )
    for w, example in sorted(why.items()):
        print(f"not modelled: {w} ({example})")
    if args.record:
        record(total, failures, differences, seconds)
    if args.out:
        with args.out.open("w") as f:
            for x in failures:
                f.write(json.dumps(x) + "\n")
            for x in differences:
                f.write(json.dumps(["oracle", *x]) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
