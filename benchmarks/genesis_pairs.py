"""Steps of a Franka scene by several builds that take turns, so that the machine's phases cancel.

    python benchmarks/genesis_pairs.py ENVIRONMENTS BUILD BUILD... [--burst STEPS] [--rounds N]

A build is a checkout whose `make build` has run, with switches behind it if need be
(`/work/old`, `.:QD_CPU_TARGET=haswell`), or `established`. Every build has a live process; in each
round all of them step for a moment, one after the other. Prints CPU milliseconds of a step and the
median and quartiles of the ratios to the first build: differences of two per cent show. Joint
positions after ten steps of the code that is timed must agree. Needs the environment that genesis.py
makes.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = HERE / "build" / "genesis" / "venv" / "bin" / "python"
TOLERANCE = 2e-5  # as in genesis.py


def serve(environments):
    """In a process of its own: reads numbers of steps, answers with the CPU seconds they took."""
    import time

    import genesis_scenes

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.path.pop(0)  # this folder, whose genesis.py is not the simulator
    import torch

    torch.set_num_threads(1)
    import genesis as gs
    import quadrants as qd

    gs.init(backend=gs.cpu, seed=0, logging_level="error")
    scene = gs.Scene(show_viewer=False)
    _, reads = genesis_scenes._franka(gs, scene, environments)
    scene.build(n_envs=environments)
    for _ in range(10):
        scene.step()
    if hasattr(qd._lib.core, "finish_optimisations"):
        qd._lib.core.finish_optimisations()
    scene.reset()
    for _ in range(10):
        scene.step()
    print("ready", *reads["qpos"]().cpu().numpy().ravel()[:9].tolist(), file=answers)
    for line in sys.stdin:
        start = time.thread_time()
        for _ in range(int(line)):
            scene.step()
        print(time.thread_time() - start, file=answers)
    os._exit(0)


def start(build, environments, home):
    env = dict(os.environ, HOME=str(home), PYTHONWARNINGS="ignore")
    env.pop("PYTHONPATH", None)
    if build != "established":
        tree, *switches = build.split(":")
        env["PYTHONPATH"] = str(pathlib.Path(tree).resolve() / "python")
        env.update(s.split("=", 1) for s in switches)
    home.mkdir()
    command = [PYTHON, pathlib.Path(__file__).resolve(), str(environments), "--serve"]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return subprocess.Popen(command, env=env, text=True, bufsize=1, **pipes)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("environments", type=int)
    parser.add_argument("builds", nargs="*")
    parser.add_argument("--burst", type=int)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--serve", action="store_true")
    args = parser.parse_args()
    if args.serve:
        serve(args.environments)
    burst = args.burst or max(2, 2500 // max(1, args.environments))
    with tempfile.TemporaryDirectory() as folder:
        homes = [pathlib.Path(folder) / str(k) for k in range(len(args.builds))]
        live = [start(b, args.environments, h) for b, h in zip(args.builds, homes, strict=True)]
        first = []
        try:
            for build, process in zip(args.builds, live, strict=True):
                ready, *positions = process.stdout.readline().split() or [""]
                if ready != "ready":
                    raise SystemExit(f"{build}: the scene does not start")
                first = first or positions
                far = [abs(float(a) - float(b)) for a, b in zip(positions, first, strict=True)]
                if not max(far) <= TOLERANCE:
                    raise SystemExit(f"{build}: positions differ by {max(far):.1e}")
            times = [[] for _ in live]
            order = list(range(len(live)))
            for _ in range(args.rounds):
                order.reverse()
                for k in order:
                    live[k].stdin.write(f"{burst}\n")
                    times[k].append(1e3 * float(live[k].stdout.readline()) / burst)
        finally:
            for process in live:
                process.kill()
                process.wait()
    for build, t in zip(args.builds, times, strict=True):
        ratios = [a / b for a, b in zip(t, times[0], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            f"{build}: {statistics.median(t):.3f} ms a step (least {min(t):.3f}), "
            f"{middle:.3f} of the first ({low:.3f} to {high:.3f})"
        )


if __name__ == "__main__":
    main()
