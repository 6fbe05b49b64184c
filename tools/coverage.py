#!/usr/bin/env python3
"""Which lines of the compiler do programs reach? Line coverage of rooms of `src`.

    tools/coverage.py build                     # build-coverage: both objects, with counters, unoptimised
    tools/coverage.py run COMMAND...            # a command whose `quadrants` is that build
    tools/coverage.py report [--rooms pass,frontend,codegen] [--lines FILE] [--record TITLE]
    tools/coverage.py clear                     # forgets the counts

`--lines` writes the lines that were never reached, with their text. Crashed processes leave no counts.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys

from package_links import link_package

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-coverage"
ROOMS = "pass,frontend,codegen,compiler"


def build():
    subprocess.run(
        ["cmake", "-S", ".", "-B", str(BUILD), "-G", "Ninja", "-DQD_COVERAGE=ON", "-DQD_BUILD_TESTS=OFF",
         f"-DPython3_EXECUTABLE={sys.executable}"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    subprocess.run(["cmake", "--build", str(BUILD), "-j", os.environ.get("JOBS", "2")], check=True)
    link_package(BUILD)


def run(command):
    path = os.pathsep.join(filter(None, [str(BUILD), os.environ.get("PYTHONPATH")]))
    return subprocess.run(command, env=dict(os.environ, PYTHONPATH=path)).returncode


def counts():
    """{source below src: {line: times}}, over all objects."""
    files = sorted(BUILD.rglob("*.gcda"))
    out = {}
    for first in range(0, len(files), 20):
        done = subprocess.run(
            ["gcov", "--json-format", "--stdout", *map(str, files[first : first + 20])],
            cwd=BUILD, capture_output=True, text=True, check=True,
        )  # fmt: skip
        for text in done.stdout.splitlines():
            for f in json.loads(text)["files"]:
                path = pathlib.Path(os.path.normpath(BUILD / f["file"]))
                if not path.is_relative_to(ROOT / "src"):
                    continue
                lines = out.setdefault(str(path.relative_to(ROOT / "src")), {})
                for line in f["lines"]:
                    n = line["line_number"]
                    lines[n] = lines.get(n, 0) + line["count"]
    return out


def report(args):
    found = counts()
    rooms = args.rooms.split(",")
    rows, missed = [], []
    for path, lines in sorted(found.items()):
        if path.split("/")[0] not in rooms:
            continue
        hit = sum(c > 0 for c in lines.values())
        rows.append((path, hit, len(lines)))
        text = (ROOT / "src" / path).read_text().splitlines()
        missed += [(path, n, text[n - 1]) for n, c in sorted(lines.items()) if not c]
    table = ["| room | lines | reached | % |", "|---|---|---|---|"]
    for room in rooms:
        part = [r for r in rows if r[0].split("/")[0] == room]
        hit, of = sum(r[1] for r in part), sum(r[2] for r in part)
        table.append(f"| {room} | {of} | {hit} | {100 * hit / max(of, 1):.1f} |")
    print("\n".join(table))
    for path, hit, of in sorted(rows, key=lambda r: r[1] - r[2]):
        if hit < of:
            print(f"{path}: {of - hit} of {of} not reached")
    if args.lines:
        args.lines.write_text("".join(f"{p}:{n}: {t.strip()}\n" for p, n, t in missed))
    if args.record:
        date = datetime.date.today().isoformat()
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
        )
        where = ROOT / "benchmarks" / "results" / f"coverage-{date}.md"
        head = [
            f"# Line coverage by programs, {date}",
            "",
            f"{args.record}; commit {commit.stdout.strip()}.",
            "",
        ]
        where.write_text("\n".join([*head, *table, ""]))
        print(f"wrote {where}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build")
    commands.add_parser("clear")
    r = commands.add_parser("report")
    r.add_argument("--rooms", default=ROOMS)
    r.add_argument("--lines", type=pathlib.Path)
    r.add_argument("--record", help="write the table to benchmarks/results; says what ran")
    if len(sys.argv) > 2 and sys.argv[1] == "run":
        return run(sys.argv[2:])
    args = parser.parse_args()
    if args.command == "build":
        build()
    elif args.command == "clear":
        for f in BUILD.rglob("*.gcda"):
            f.unlink()
    else:
        report(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
