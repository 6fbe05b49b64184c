"""The benchmarks, in one command: opponents installed, contenders interleaved, results compared.

`python benchmarks/run.py [--quick] [--only CASE ...] [--contenders WHO ...]`

The interpreter that runs this file stands for `ours`; the opponents live in `benchmarks/.venv`,
made here from `requirements.txt`; the C++ opponent is compiled into `benchmarks/build`. Each
measurement is a process of its own with a home and caches of its own. In a round every contender
runs once, and rounds start with a different one each. Cold means an empty cache; warm means that
one earlier process filled it. Times appear only for contenders whose results agree. Medians over
rounds, their spread, and ratios go to the terminal and to `results/<date>-<machine>.json` and `.md`.
"""

import argparse
import datetime
import hashlib
import importlib
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import venv

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "cases")]

import child  # noqa: E402

ORDER = ("import_init", "first_call", "warm_guards", "memory", "launch")
ORDER += ("saxpy", "sum", "jacobi", "nbody", "mpm", "gradients", "user_kernels", "ladder")
CXX = ["g++", "-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]


# --- contenders ----------------------------------------------------------------------------------


def install_opponents():
    home, wanted = HERE / ".venv", (HERE / "requirements.txt").read_text()
    stamp = home / hashlib.sha256((wanted + sys.version).encode()).hexdigest()[:16]
    if not stamp.exists():
        print("installing the opponents ...", flush=True)
        venv.create(home, clear=True, with_pip=True)
        pip = [str(home / "bin" / "pip"), "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(HERE / "requirements.txt")], check=True)
        stamp.touch()
    return str(home / "bin" / "python")


def compile_cpp():
    (HERE / "build").mkdir(exist_ok=True)
    sources, library = sorted((HERE / "cpp").glob("*.cpp")), HERE / "build" / "libkernels.so"
    subprocess.run([*CXX, *map(str, sources), "-o", str(library)], check=True)


def versions(python):
    code = "import importlib.metadata as m; [print(d.name, d.version) for d in m.distributions()]"
    run = subprocess.run([python, "-c", code], capture_output=True, text=True)
    names = ("quadrants", "taichi", "numba", "warp-lang", "jax", "jaxlib", "numpy", "llvmlite")
    return dict(line.split() for line in run.stdout.splitlines() if line.split()[0] in names)


def machine(pythons):
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())
    gcc = subprocess.run(["g++", "--version"], capture_output=True, text=True).stdout
    commit = subprocess.run(
        ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return {
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "cpu": cpu[1] if cpu else platform.processor(),
        "threads": os.cpu_count(),
        "memory GiB": round(int(memory[1]) / 2**20, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "g++": gcc.split("\n")[0],
        "commit": commit.stdout.strip() if commit.returncode == 0 else "",
        "load average at start": os.getloadavg()[0],
        "versions": {who: versions(python) for who, python in pythons.items()},
    }


# --- measuring -----------------------------------------------------------------------------------


def environment(home, threads, spin):
    """Nothing of the caller's settings but PATH, and every cache inside `home`."""
    kept = {k: os.environ[k] for k in ("PATH", "LANG", "LD_LIBRARY_PATH") if k in os.environ}
    return {
        **kept,
        "HOME": home,
        "BENCH_TMP": home,
        "PYTHONPATH": str(HERE),
        "XDG_CACHE_HOME": f"{home}/cache",
        "QD_OFFLINE_CACHE_FILE_PATH": f"{home}/qd",
        "TI_OFFLINE_CACHE_FILE_PATH": f"{home}/ti",
        "NUMBA_CACHE_DIR": f"{home}/numba",
        "WARP_CACHE_PATH": f"{home}/warp",
        "OMP_NUM_THREADS": str(threads),
        "NUMBA_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "active" if spin else "passive",
    }


def run_child(python, case, flags, home, timeout, threads, spin=False):
    """The child's JSON line, or {"error": why}."""
    command = [python, str(HERE / "cases" / f"{case}.py"), "--threads", str(threads), *flags]
    try:
        run = subprocess.run(
            command,
            env=environment(home, threads, spin),
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=home,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"more than {timeout} s"}
    if run.returncode == 0 and run.stdout.strip():
        # A package may write its banner into a buffer that is written behind ours.
        return json.loads([line for line in run.stdout.splitlines() if line.startswith("{")][-1])
    lines = run.stderr.replace(f"{HERE.parent}/", "").strip().splitlines() or [""]
    return {"error": f"exit {run.returncode}: {lines[-1][:200]}"}


def measure(name, case, contenders, pythons, args):
    """{contender: {"numbers": {number: [one per round]}, "result": {name: [distinct ones]}, "notes": []}}"""
    out = {who: {"numbers": {}, "result": {}, "notes": []} for who in contenders}
    for turn in range(args.rounds):
        shift = turn % len(contenders)
        for part in getattr(case, "PARTS", ("",)):
            for who in contenders[shift:] + contenders[:shift]:
                run_phases(name, case, who, part, pythons[who], args, out[who])
        print(f"  {name}: round {turn + 1} of {args.rounds}", flush=True)
    return out


def run_phases(name, case, who, part, python, args, record):
    program, spin = who.removesuffix(child.SPIN), who.endswith(child.SPIN)
    flags = ["--contender", program, *(["--part", part] if part else [])]
    flags += ["--quick"] if args.quick else []
    phases = list(case.PHASES) if "cold" in case.PHASES else ["prime", *case.PHASES]
    if program in ("cpp", "jax"):  # keep nothing for a later process
        phases.remove("prime")
    with tempfile.TemporaryDirectory(prefix="bench") as home:
        for phase in phases:
            more = ["--prime"] if phase == "prime" else []
            timeout = getattr(case, "TIMEOUT", 120)
            line = run_child(python, name, flags + more, home, timeout, args.threads, spin)
            if "error" in line:
                note = f"{phase} {part}: {line['error']}".replace(" :", ":")
                if note not in record["notes"]:
                    record["notes"].append(note)
                return
            if phase == "prime":
                continue
            for number, value in line["numbers"].items():
                record["numbers"].setdefault(f"{phase} {number}", []).append(value)
            for key, value in line["result"].items():  # of every round and phase, all are compared
                seen = record["result"].setdefault(key, [])
                seen += [value] if value not in seen else []
            record["notes"] += [n for n in line["notes"] if n not in record["notes"]]


# --- judging -------------------------------------------------------------------------------------


def flat(value):
    if isinstance(value, list):
        return [x for v in value for x in flat(v)]
    return [value]


def disagreements(case, measured):
    """Texts about results that differ from the established package's, else the C++, else any."""
    tolerance, reference, texts = getattr(case, "TOLERANCE", 1e-6), {}, []
    trusted = sorted(measured, key=lambda w: (w != "established", w != "cpp"))
    for who, record in ((w, measured[w]) for w in trusted):
        for key, value in ((k, v) for k, values in record["result"].items() for v in values):
            other, theirs = reference.setdefault(key, (who, flat(value)))
            mine = flat(value)
            scale = max(map(abs, theirs), default=0.0) or 1.0
            far = [abs(a - b) / scale for a, b in zip(mine, theirs)]
            if len(mine) != len(theirs) or not all(d <= tolerance for d in far):  # NaN disagrees
                worst = max(far, default=0.0)
                texts.append(
                    f"{key}: {who} differs from {other} by {worst:.2g} of the largest value"
                )
    return texts


def verdict(target, number, medians):
    """'' without a target, else what was asked of `ours` and whether it holds."""
    mine = medians.get("ours", {}).get(number)
    if target is None:
        return ""
    if isinstance(target, list):
        return "; ".join(verdict(t, number, medians) for t in target)
    if isinstance(target, tuple):
        who, ratio = target
        rows = [medians.get(w, {}).get(number) for w in (who, who + child.SPIN)]  # the faster one
        theirs = min((ms for ms in rows if ms is not None), default=None)
        text = f">= {ratio} x {who}"
        holds = None if mine is None or theirs is None else theirs / mine >= ratio
    else:
        text, holds = f"<= {target}", None if mine is None else mine <= target
    return text + {None: "", True: " yes", False: " NO"}[holds]


def short(value):
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(case, measured):
    """A row per number: median (min-max) per contender, ours relative to others, what is asked."""
    medians = {
        who: {n: statistics.median(v) for n, v in record["numbers"].items()}
        for who, record in measured.items()
    }
    names = list(dict.fromkeys(n for record in measured.values() for n in record["numbers"]))
    rivals = [
        w
        for w in ("established", "cpp", "cpp" + child.SPIN)
        if w in measured and "ours" in measured
    ]
    heads = ["number", *measured, *(f"{w} / ours" for w in rivals), "asked of ours"]
    rows = [heads, ["---"] * len(heads)]
    for n in names:
        row = [n]
        for who, record in measured.items():
            v = record["numbers"].get(n)
            spread = f" ({short(min(v))}-{short(max(v))})" if v and len(v) > 1 else ""
            row.append(short(medians[who][n]) + spread if v else "")
        for who in rivals:
            a, b = medians[who].get(n), medians["ours"].get(n)
            row.append(f"{a / b:.2f}" if a is not None and b else "")
        rows.append([*row, verdict(getattr(case, "TARGETS", {}).get(n), n, medians)])
    return rows


def markdown(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(r, widths)) + " |" for r in rows]
    return "\n".join(lines)


# --- the command ---------------------------------------------------------------------------------


def report(name, case, measured):
    """(Markdown for one case, what ours missed). Who computes something else shows no times."""
    wrong = disagreements(case, measured)
    losers = {w for w in measured if any(f": {w} differs" in t for t in wrong)}
    shown = {who: record for who, record in measured.items() if who not in losers}
    rows = table(case, shown)
    lines = [f"### {name}", "", case.__doc__.strip(), "", markdown(rows), ""]
    lines += [f"- RESULTS DISAGREE, times withheld: {t}" for t in wrong]
    lines += [f"- {who}: {note}" for who, r in measured.items() for note in r["notes"]]
    missed = [f"{name}: {row[0]}" for row in rows if row[-1].endswith(" NO")]
    if "ours" in losers:
        missed.append(f"{name}: results of ours")
    if "ours" in measured and not measured["ours"]["numbers"]:
        missed.append(f"{name}: does not run")
    return "\n".join(lines), missed


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter loops")
    parser.add_argument("--only", nargs="+", choices=ORDER, default=ORDER, metavar="CASE")
    parser.add_argument("--contenders", nargs="+", choices=child.ALL, default=child.ALL)
    parser.add_argument("--rounds", type=int, help="default 5; 2 with --quick")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--name", help="of the result files; default <date>-<machine>")
    args = parser.parse_args()
    args.rounds = args.rounds or (2 if args.quick else 5)
    return args


def main():
    args = parse()
    alone = all(who == "ours" or who.startswith("cpp") for who in args.contenders)
    opponents = sys.executable if alone else install_opponents()
    if any(who.startswith("cpp") for who in args.contenders):
        compile_cpp()
    pythons = {who: sys.executable if who == "ours" else opponents for who in child.ALL}
    facts = machine({"ours": sys.executable, "opponents": opponents})
    facts |= {"rounds": args.rounds, "quick": args.quick, "threads": args.threads}
    texts, raw, missed = [], {}, []
    for name in (n for n in ORDER if n in args.only):
        case = importlib.import_module(name)
        contenders = [who for who in args.contenders if who in case.CONTENDERS]
        if not contenders:
            continue
        raw[name] = measure(name, case, contenders, pythons, args)
        text, short_of = report(name, case, raw[name])
        missed += short_of
        texts.append(text)
        print(f"\n{text}\n", flush=True)
        save(args, facts, raw, texts)
    if "ours" in args.contenders:
        texts.append("### Missed by ours\n\n" + ("\n".join(f"- {m}" for m in missed) or "Nothing."))
        print(texts[-1])
        save(args, facts, raw, texts)
    sys.exit(1 if any(m.endswith(("results of ours", "does not run")) for m in missed) else 0)


def save(args, facts, raw, texts):
    """Written after every case, so that an interrupted run leaves what it has."""
    label = re.sub(r"[^\w.]+", "-", facts["cpu"]).strip("-").lower()
    stem = args.name or f"{facts['date'][:10]}-{label}-{facts['threads']}t"
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    content = {"machine": facts, "cases": raw}
    (folder / f"{stem}.json").write_text(json.dumps(content, indent=1) + "\n")
    about = "\n".join(f"- {k}: {v}" for k, v in facts.items())
    body = "\n\n".join(texts)
    (folder / f"{stem}.md").write_text(f"# Benchmarks\n\n{about}\n\n{body}\n")


if __name__ == "__main__":
    shutil.which("g++") or sys.exit("benchmarks need g++")
    main()
