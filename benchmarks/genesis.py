"""Genesis, a robot simulator, on the established package and on ours, in turn.

    python benchmarks/genesis.py [--gpu] [--scenes franka,mpm,...] [--rounds N] [--measure SECONDS] [--folder FOLDER]

Makes an environment with genesis-world and torch (about 8 GB) under benchmarks/build/genesis, which
brings the established package; ours takes its place through PYTHONPATH. For each scene and package:
a cold process (empty cache, with the border timed), a warm one, and the states of the first steps,
which are compared number for number before any time is shown. A warm process of ours may run the front
end for no kernel. Then what genesis_compile.py tells: importing, decorating, and the ten largest
kernels. Writes tables and numbers to benchmarks/results/.
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
GPU_SCENES = "franka franka_4096 collision sensors mpm".split()
FIELDS = ("franka", "franka_64")  # also in field mode
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


def start(package, home, command, **variables):
    """What a process with this package prints last, read as JSON, and its stderr."""
    env = dict(os.environ, HOME=str(home), PYTHONWARNINGS="ignore", **variables)
    env.pop("PYTHONPATH", None)
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    if package == "ours":
        env["PYTHONPATH"] = str(HERE.parent / "python")
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise SystemExit(f"{package}, {command}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1]), done.stderr


def run(python, package, scene, home, extra):
    states = home / f"{scene}.npz"
    command = [python, HERE / "genesis_scenes.py", scene, "--states", states, *extra]
    answer, _ = start(package, home, command)
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
    extra = ["--fields"] * fields + ["--gpu"] * args.gpu
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


def lowered_warm(r):
    return max(w["front end ran"] for w in r["ours"]["warm"])


def compile_report(python, folder):
    """Importing and decorating, the best of five processes, and the largest kernels of `franka`."""
    command = [python, HERE / "genesis_compile.py"]
    home = folder / "homes" / "ours"
    best = {}
    for _ in range(5):
        for mode in ("import", "decorate"):
            for key, value in start("ours", home, [*command, mode])[0].items():
                best[key] = min(value, best.get(key, value))
    logs = []
    for tier in "01":
        scene = [python, HERE / "genesis_scenes.py", "franka", "--states", home / "franka.npz"]
        _, log = start(
            "ours", home, scene, QD_COMPILE_REPORT="2", QD_CPU_TIER=tier, QD_OFFLINE_CACHE="0"
        )
        logs.append(folder / f"tier{tier}.log")
        logs[-1].write_text(log)
    shown = subprocess.run([*command, "table", *logs], capture_output=True, text=True, check=True)
    return (
        f"`import quadrants` beyond numpy: {1e3 * best['import s']:.1f} ms, torch imported: "
        f"{bool(best['imports torch'])}. Decorating {best['decorations']} kernels and funcs at Genesis' "
        f"import: {1e3 * best['decorating s']:.1f} ms.\n\n{shown.stdout}"
    )


def table(results):
    lines = [
        "Each cell: established / ours. CPU seconds inside the package: the main thread in its kernels",
        "and constructors; cold, also what all other threads need beyond those of a warm process.",
        "Cold: empty cache. The rest: what ours would need to optimise kernels that have not run for",
        "long by then, as those that go on running do later. Front end: kernels of ours that a warm",
        "process lowers. Steps per second: median (best), all optimised.",
        "",
        "| scene | build + first step, cold, s | inside, cold, CPU s | the rest, CPU s | build, warm, s | inside, warm, CPU s | front end | steps/s | ratio | largest difference |",
        "|---|---|---|---|---|---|---|---|---|---|",
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
            f"| {name} | {both(build, 'cold')} | {cold_e:.2f} / {cold_o:.2f} | "
            f"{o['cold']['optimising the rest, CPU s']:.2f} | {both(build, 'warm')} | "
            f"{warm_e:.2f} / {warm_o:.2f} | {lowered_warm(r)} | {steps[0]:.0f} ({best[0]:.0f}) / {steps[1]:.0f} ({best[1]:.0f}) | "
            f"{steps[1] / steps[0]:.2f} | {r['difference']:.1e} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", action="store_true", help="on an NVIDIA GPU")
    parser.add_argument("--scenes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", type=float, default=3.0)
    parser.add_argument("--folder", type=pathlib.Path, default=HERE / "build" / "genesis")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    python = environment(args.folder)
    stem = (
        HERE / "results" / f"{datetime.date.today()}-genesis-{platform.machine()}-{os.cpu_count()}t"
    )
    if args.gpu:
        stem = stem.with_name(stem.name + "-gpu")
    scenes = args.scenes.split(",") if args.scenes else GPU_SCENES if args.gpu else SCENES
    results, failed = {}, []

    def write(report=""):  # after each scene: a stopped run keeps what it has
        text = f"# {VERSION} on both packages\n\n{table(results)}\n{report}"
        stem.with_suffix(".md").write_text(text)
        stem.with_suffix(".json").write_text(json.dumps(results, indent=1))

    for scene in scenes:
        for fields in (False, True) if scene in FIELDS and not args.gpu else (False,):
            name = scene + (", fields" if fields else "")
            print(f"{name} ...", flush=True)
            results[name] = measure(python, args.folder, scene, args, fields)
            write()
            print(table({name: results[name]}).splitlines()[-1], flush=True)
            if results[name]["difference"] > TOLERANCE:
                failed.append(f"states of {name} differ")
            if lowered_warm(results[name]):
                failed.append(f"{name}: a warm process ran the front end")
    if not args.gpu:
        write("\n## Compiling, ours\n\n" + compile_report(python, args.folder))
    print(f"written: {stem}.md")
    if failed:
        raise SystemExit("; ".join(failed))


if __name__ == "__main__":
    main()
