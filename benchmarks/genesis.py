"""Genesis, a robot simulator, on the established package and on ours, in turn.

    python benchmarks/genesis.py [--scenes franka,mpm,...] [--rounds N] [--measure SECONDS] [--jobs FOLDER]

Makes an environment with genesis-world and torch (about 8 GB) under benchmarks/build/genesis, which
brings the established package; ours takes its place through PYTHONPATH. For each scene and package:
a cold process (empty cache, with the border timed), a warm one, and the states of the first steps,
which are compared number for number before any time is shown. Writes a table and the numbers to
benchmarks/results/.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
VERSION = "genesis-world==1.4.5"
SCENES = (
    "franka franka_64 franka_1024 collision terrain sensors mpm sph pbd fem".split()  # in this order
)
FIELDS = ("franka",)  # also in field mode
# Largest difference over the first ten steps, relative to the largest value of the established
# package: f32, sums in another order.
TOLERANCE = 2e-5


def environment(folder):
    python = folder / "venv" / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "torch", VERSION], check=True)
        (folder / "ready").write_text(VERSION)
    return python


def run(python, package, scene, home, extra):
    env = dict(os.environ, HOME=str(home), PYTHONWARNINGS="ignore")
    env.pop("PYTHONPATH", None)
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    if package == "ours":
        env["PYTHONPATH"] = str(HERE.parent / "python")
    states = home / f"{scene}.npz"
    command = [python, HERE / "genesis_scenes.py", scene, "--states", states, *extra]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise SystemExit(f"{package}, {scene}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    is_ours = answer["package"] == str(HERE.parent / "python" / "quadrants")
    assert is_ours == (package == "ours"), answer["package"]
    return answer["numbers"], states


def compare(python, scene, ours, theirs):
    """The largest relative difference over all that a scene reads."""
    code = (
        "import sys, numpy as np\n"
        "a, b = (np.load(p) for p in sys.argv[1:])\n"
        "worst = 0.0\n"
        "for k in b.files:\n"
        "    x, y = a[k].astype('f8'), b[k].astype('f8')\n"
        "    assert x.shape == y.shape and (np.isfinite(x) == np.isfinite(y)).all(), k\n"
        "    m = np.isfinite(y)\n"
        "    if m.any(): worst = max(worst, abs(x[m] - y[m]).max() / max(1e-3, abs(y[m]).max()))\n"
        "print(worst)\n"
    )
    done = subprocess.run([python, "-c", code, ours, theirs], capture_output=True, text=True)
    if done.returncode:
        return float("inf")
    return float(done.stdout)


def measure(python, folder, scene, args, fields):
    extra = ["--fields"] if fields else []
    found = {}
    for package in ("established", "ours"):
        home = folder / "homes" / package
        home.mkdir(parents=True, exist_ok=True)  # keeps what Genesis itself caches: meshes
        shutil.rmtree(home / ".cache" / "quadrants", ignore_errors=True)
        cold, _ = run(python, package, scene, home, [*extra, "--border"])
        found[package] = {"cold": cold, "warm": [], "steps/s": []}
    for _ in range(args.rounds):  # interleaved
        for package in ("established", "ours"):
            home = folder / "homes" / package
            warm, _ = run(python, package, scene, home, [*extra, "--border"])
            found[package]["warm"].append(warm)
            speed, states = run(
                python, package, scene, home, [*extra, "--measure", str(args.measure)]
            )
            found[package]["steps/s"].append(speed["steps/s"])
            found[package]["states"] = str(states)
    found["difference"] = compare(
        python, scene, found["ours"]["states"], found["established"]["states"]
    )
    return found


def table(results):
    lines = [
        "Each cell: established / ours. CPU seconds inside the package: the main thread in its kernels",
        "and constructors; cold, also what all other threads need beyond those of a warm process.",
        "Cold: empty cache. Steps per second: median (best).",
        "",
        "| scene | build + first step, cold, s | inside, cold, CPU s | build, warm, s | inside, warm, CPU s | steps/s | ratio | largest difference |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, r in results.items():
        e, o = r["established"], r["ours"]
        build = "build and first step s"

        def both(key, when, e=e, o=o):
            if when == "cold":
                return f"{e['cold'][key]:.2f} / {o['cold'][key]:.2f}"
            median = [statistics.median(w[key] for w in p["warm"]) for p in (e, o)]
            return f"{median[0]:.2f} / {median[1]:.2f}"

        def inside(p):
            border, others = "border, CPU s", "other threads, CPU s"
            warm = [statistics.median(w[key] for w in p["warm"]) for key in (border, others)]
            return p["cold"][border] + max(0, p["cold"][others] - warm[1]), warm[0]

        (cold_e, warm_e), (cold_o, warm_o) = inside(e), inside(o)
        steps = [statistics.median(p["steps/s"]) for p in (e, o)]
        best = [max(p["steps/s"]) for p in (e, o)]
        lines.append(
            f"| {name} | {both(build, 'cold')} | {cold_e:.2f} / {cold_o:.2f} | {both(build, 'warm')} | "
            f"{warm_e:.2f} / {warm_o:.2f} | {steps[0]:.0f} ({best[0]:.0f}) / {steps[1]:.0f} ({best[1]:.0f}) | "
            f"{steps[1] / steps[0]:.2f} | {r['difference']:.1e} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", default=",".join(SCENES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", type=float, default=3.0)
    parser.add_argument("--folder", type=pathlib.Path, default=HERE / "build" / "genesis")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    python = environment(args.folder)
    results, failed = {}, []
    for scene in args.scenes.split(","):
        for fields in (False, True) if scene in FIELDS else (False,):
            name = scene + (", fields" if fields else "")
            print(f"{name} ...", flush=True)
            results[name] = measure(python, args.folder, scene, args, fields)
            print(table({name: results[name]}).splitlines()[-1], flush=True)
            if results[name]["difference"] > TOLERANCE:
                failed.append(name)
    text = table(results)
    stem = (
        HERE / "results" / f"{datetime.date.today()}-genesis-{platform.machine()}-{os.cpu_count()}t"
    )
    stem.with_suffix(".md").write_text(f"# {VERSION} on both packages\n\n{text}\n")
    stem.with_suffix(".json").write_text(json.dumps(results, indent=1))
    print(text)
    print(f"written: {stem}.md")
    if failed:
        raise SystemExit(f"states differ: {', '.join(failed)}")


if __name__ == "__main__":
    main()
