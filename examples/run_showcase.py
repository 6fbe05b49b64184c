"""Runs the photograph and the fluid twice each, with an empty cache and then with a filled one.

`make run` calls this. Every run is a process of its own; the pictures land in `out/`.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


def run(script, home):
    """(start to first picture, steady state, whole process) in ms, and the files written."""
    caches = {"XDG_CACHE_HOME": home, "QD_OFFLINE_CACHE_FILE_PATH": f"{home}/qdcache"}
    begin = time.perf_counter()
    command = [sys.executable, str(HERE / script), "--times", *sys.argv[1:]]
    done = subprocess.run(command, env=os.environ | caches, capture_output=True, text=True)
    total = 1e3 * (time.perf_counter() - begin)
    if done.returncode:
        sys.exit(f"{script} failed:\n{done.stdout}{done.stderr}")
    line = json.loads(done.stdout.splitlines()[-1])
    return (*line["times"].values(), total), line["files"]


def main():
    print(f"{'':18} {'':6} {'first picture':>14} {'steady state':>14} {'whole process':>14}   (ms)")
    written = []
    for script in ("photo_filters.py", "mpm_fluid.py"):
        with tempfile.TemporaryDirectory(prefix="showcase") as home:
            for state in ("cold", "warm"):
                times, files = run(script, home)
                cells = " ".join(f"{t:14.1f}" for t in times)
                print(f"{script:18} {state:6} {cells}", flush=True)
        written += files
    print("first picture: import of quadrants, init, compiling or loading, and the work itself")
    print("pictures:", *written, sep="\n  ")


if __name__ == "__main__":
    main()
