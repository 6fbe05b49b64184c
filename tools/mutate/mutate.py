"""Would a test notice? Small changes to the sources, one at a time, against the tests that come past them.

    python tools/mutate/mutate.py build FOLDER [--seed N] [--count N]      rewrites and compiles
    python tools/mutate/mutate.py cover FOLDER [--share I/N] [--files ..]  notes which tests come past what
    python tools/mutate/mutate.py kill FOLDER [--every K] [--from I] [--minutes M] [--only N ..]
    python tools/mutate/mutate.py report FOLDER
    python tools/mutate/mutate.py try FOLDER --only N --files tests/python/test_x.py ..

FOLDER is made: a copy of the last commit whose sources carry COUNT changes behind switches (`qd_mutant(17) ?
changed : original`), so one build serves them all. `cover` runs the C++ and Python tests once, unchanged.
`kill` switches on one change after the other and runs the tests that come past it, those of little time
first, until one fails, hangs or dies. What no test notices is listed by `report`. `try` runs this tree's
tests, new ones too, against one change (0: none, to see what fails anyway) in a process of their own: it
sees what acts at import, which `kill` does not, for its server has imported the package. Needs
`make build`, clang's headers, and `libclang` from PyPI in the Python that runs `build`.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ROOMS = (
    "pass", "autodiff", "frontend", "cache", "runtime", "session", "launcher", "layout", "codegen",
)  # fmt: skip
APART = {"src/frontend/diag.cpp", "src/runtime/cpu/perf_map.cpp"}  # texts; for a profiler's eyes
PAGE = 8192
BATCH = 12.0  # seconds of tests that are asked for at once


def sources(tree):
    rooms = [p for room in ROOMS for p in sorted((tree / "src" / room).rglob("*.cpp"))]
    return [p for p in rooms if str(p.relative_to(tree)) not in APART]


# --- build ---------------------------------------------------------------------------------------


def copy_of_head(tree):
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    archive = subprocess.Popen(["git", "-C", ROOT, "archive", "HEAD"], stdout=subprocess.PIPE)
    subprocess.run(["tar", "x", "-C", tree], stdin=archive.stdout, check=True)
    (tree / "build").mkdir()
    (tree / "build" / "lib").symlink_to("../python")


def choose(tree, seed, count):
    """Chosen sites by file, a line at most once, and the texts they belong to."""
    import sites

    commands = json.loads((ROOT / "build" / "compile_commands.json").read_text())
    by_file = {c["file"]: c["command"] for c in commands}
    every, texts = [], {}
    for path in sources(tree):
        name = str(path.relative_to(tree))
        command = by_file[str(ROOT / name)].replace(str(ROOT), str(tree))
        found, texts[name] = sites.find(path, command)
        for site in found:
            site.file = name
        every += found
    kinds = collections.Counter(re.sub(r"\d.*", "n", s.what) for s in every)
    print(f"{len(every)} places: {dict(kinds)}")
    random.Random(seed).shuffle(every)
    lines, chosen = set(), []
    for site in every:
        if (site.file, site.line) not in lines and len(chosen) < count:
            lines.add((site.file, site.line))
            chosen.append(site)
    for number, site in enumerate(chosen, 1):
        site.number = number
    return chosen, texts


def write_sources(tree, chosen, texts):
    import sites

    for name, text in texts.items():
        own = [s for s in chosen if s.file == name]
        path, new = tree / name, text
        if own:
            new = sites.rewritten(text, own)
        if path.read_bytes() != new:
            path.write_bytes(new)


def configure(tree, touched, python):
    shutil.copy(HERE / "qd_mutant.h", tree / "src" / "qd_mutant.h")
    shutil.copy(HERE / "listener.cpp", tree / "tests" / "cpp" / "mutant_listener.cpp")
    shutil.copy(HERE / "listener.cpp", tree / "tests" / "cpp" / "codegen" / "mutant_listener.cpp")
    quick = "\n".join(f'    "${{PROJECT_SOURCE_DIR}}/{name}"' for name in touched)
    with open(tree / "CMakeLists.txt", "a") as f:
        f.write(
            f'\nset_source_files_properties(\n{quick}\n    PROPERTIES COMPILE_OPTIONS "-w;-O1")\n'
        )
    cmake = ["cmake", "-S", tree, "-B", tree / "build", "-G", "Ninja"]
    subprocess.run(
        [*cmake, f"-DPython3_EXECUTABLE={python.absolute()}"], check=True, stdout=subprocess.DEVNULL
    )


def compile_all(tree, chosen, texts, jobs):
    """Builds; changes that do not compile are taken out, and what remains is returned."""
    while True:
        write_sources(tree, chosen, texts)
        command = ["cmake", "--build", tree / "build", f"-j{jobs}", "--", "-k", "0"]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode == 0:
            return chosen
        wrong = set(re.findall(r"(src/[\w/]+\.cpp):(\d+):(?:\d+:)? (?:fatal )?error", run.stdout))
        bad = [
            s
            for s in chosen
            if any(
                s.file == name
                and s.line <= int(line) <= s.line + texts[name].count(b"\n", s.start, s.end)
                for name, line in wrong
            )
        ]
        print(f"{len(bad)} changes do not compile", *(f"{s.file}:{s.line} {s.what}" for s in bad))
        if not bad:
            sys.exit(run.stdout[-6000:])
        chosen = [s for s in chosen if s not in bad]


def build(tree, args):
    sys.path.insert(0, str(HERE))
    copy_of_head(tree)
    chosen, texts = choose(tree, args.seed, args.count + args.count // 8)
    (tree / ".venv").symlink_to(args.python.absolute().parent.parent)
    configure(tree, sorted({s.file for s in chosen}), args.python)
    chosen = compile_all(tree, chosen, texts, args.jobs)[: args.count]
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    rows = [
        {
            "number": s.number, "file": s.file, "line": s.line, "what": s.what,
            "source": texts[s.file].split(b"\n")[s.line - 1].decode().strip(),
        }
        for s in chosen
    ]  # fmt: skip
    facts = {"seed": args.seed, "commit": commit, "changes": rows}
    (tree / "changes.json").write_text(json.dumps(facts, indent=1))
    print(f"{len(rows)} changes built")


# --- running tests -------------------------------------------------------------------------------


class Tests:
    """The two C++ programs, and a server that has collected the Python tests."""

    def __init__(self, tree, share="0/1", files=()):
        self.tree = tree
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="mutate"))
        self.page = self.scratch / "page"
        self.page.write_bytes(bytes(PAGE))
        python = str(tree / "python")
        self.environment = os.environ | {
            "QD_MUTANT_FILE": str(self.page),
            "QD_MUTANT_SCRATCH": str(self.scratch),
            "QD_MUTANT_SHARE": share,
            "HOME": str(self.scratch),
            "PYTHONPATH": os.pathsep.join([str(HERE), python]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.files = files
        self.start()

    def start(self):
        (answers, answer), (request, requests) = os.pipe(), os.pipe()
        self.answers, self.requests = os.fdopen(answers), os.fdopen(requests, "w", buffering=1)
        python = str(self.tree / ".venv" / "bin" / "python")
        command = [python, "-m", "pytest", "-q", "-p", "pytest_mutants", "-p", "no:cacheprovider"]
        command += ["-p", "no:xdist", "-p", "no:faulthandler"]
        command += [f"--basetemp={self.scratch / 'pytest'}"]
        with open(self.tree / "server.log", "a") as log:
            self.server = subprocess.Popen(
                [*command, *(f"tests/python/{f}" for f in self.files)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.tree,
                env=self.environment | {"QD_MUTANT_PIPES": f"{request} {answer}"},
                pass_fds=[request, answer],
                start_new_session=True,
            )
        os.close(request)
        os.close(answer)
        self.ready = json.loads(self.answers.readline())

    def python(self, mutant, tests, limit, log=None):
        request = {"mutant": mutant, "tests": tests, "limit": limit, "log": log and str(log)}
        for _ in range(2):  # a change may make a test end more than its own process
            try:
                self.requests.write(json.dumps(request) + "\n")
                return json.loads(self.answers.readline())
            except (BrokenPipeError, json.JSONDecodeError):
                print("the server has died", self.server.wait(), flush=True)
                self.start()
        return {"outcome": "died", "test": "pytest itself"}

    def switch(self, mutant):
        with open(self.page, "r+b") as page:  # others have it mapped: never cut off
            page.write(mutant.to_bytes(4, "little"))

    def cpp(self, mutant, program, names, limit, log=None):
        self.switch(mutant)
        command = [self.tree / "build" / program, "--gtest_brief=1"]
        command += ["--gtest_filter=" + ":".join(names)] if names else []
        command += [] if log else ["--gtest_fail_fast"]
        try:
            run = subprocess.run(
                command,
                capture_output=True,
                timeout=limit,
                env=self.environment | ({"QD_MUTANT_LOG": str(log)} if log else {}),
                cwd=self.scratch,
            )
        except subprocess.TimeoutExpired:
            return {"outcome": "hung", "test": program}
        finally:
            self.switch(0)
        failed = re.search(rb"\[  FAILED  \] ([\w./]+)", run.stdout)
        name = failed[1].decode() if failed else program
        outcome = "passed" if not run.returncode else "failed" if run.returncode > 0 else "died"
        return {"outcome": outcome, "test": name}

    def close(self):
        self.requests.close()
        self.server.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)


def cover(tree, args):
    os.environ["QD_MUTANT_FILE_LIMIT"] = args.file_limit
    tests = Tests(tree, args.share, args.files)
    share = args.share.replace("/", "of")
    stem = f"{share}{'-' + args.files[0] if args.files else ''}"
    print(f"{tests.ready['tests']} Python tests", flush=True)
    if args.share.startswith("0/") and not args.files and not args.python_only:
        for program in ("qd_tests", "qd_codegen_tests"):
            log = tree / f"cover-{program}.txt"
            log.unlink(missing_ok=True)
            print(program, tests.cpp(0, program, None, 900, log), flush=True)
    log = tree / f"cover-{stem}.jsonl"
    log.unlink(missing_ok=True)
    print(tests.python(0, None, args.minutes * 60, log))
    tests.close()


def coverage(tree):
    """number -> [(seconds, program or None, test)] of tests that passed unchanged."""
    found = collections.defaultdict(list)
    for program in ("qd_tests", "qd_codegen_tests"):
        for line in (tree / f"cover-{program}.txt").read_text().splitlines():
            name, seconds, ok, *seen = line.split()
            for number in seen if ok == "1" else ():
                found[int(number)].append((float(seconds), program, name))
    rows = {}
    for path in tree.glob("cover-*.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if row["ok"]:
                rows[row["test"]] = row
    for row in rows.values():
        for number in row["seen"]:
            found[number].append((row["seconds"], None, row["test"]))
    return {number: sorted(tests, key=lambda t: t[0]) for number, tests in found.items()}


def try_one(tests, number, covering, budget):
    """What ended it, and the seconds that took; `budget`: of Python tests, as they take unchanged."""
    began = time.monotonic()

    def result(answer, count):
        return answer | {"seconds": round(time.monotonic() - began, 1), "tests run": count}

    for program in ("qd_tests", "qd_codegen_tests"):
        names = [name for _, p, name in covering if p == program]
        if names:
            spent = sum(s for s, p, _ in covering if p == program)
            answer = tests.cpp(number, program, names, 20 + 10 * spent)
            if answer["outcome"] != "passed":
                return result(answer, len(names))
    own, count, total = [t for t in covering if t[1] is None], 0, 0.0
    while own and total < budget:
        batch, spent = [], 0.0
        while own and (not batch or spent + own[0][0] < BATCH):
            spent += own[0][0]
            batch.append(own.pop(0)[2])
        answer = tests.python(number, batch, 30 + 10 * spent)
        count, total = count + len(batch), total + spent
        if answer["outcome"] != "passed":
            return result(answer, count)
    outcome = {"outcome": "survived" if covering else "unreached", "test": ""}
    return result(outcome, count)


def kill(tree, args):
    facts = json.loads((tree / "changes.json").read_text())
    covering = coverage(tree)
    done_path = tree / "results.jsonl"
    done = (
        {json.loads(line)["number"] for line in done_path.read_text().splitlines()}
        if done_path.exists()
        else set()
    )
    chosen = [c for c in facts["changes"][args.first :: args.every] if c["number"] not in done]
    if args.only:
        chosen = [c for c in facts["changes"] if c["number"] in args.only]
    tests = Tests(tree)
    end = time.monotonic() + 60 * args.minutes
    for change in chosen:
        if time.monotonic() > end:
            break
        row = change | try_one(
            tests, change["number"], covering.get(change["number"], []), args.budget
        )
        with open(done_path, "a") as f:
            f.write(json.dumps(row) + "\n")
        print(
            f"{row['outcome']:9} {row['seconds']:6} s {row['file']}:{row['line']} {row['what']}  {row['test']}",
            flush=True,
        )
    tests.close()


def try_change(tree, args):
    (number,) = args.only
    with tempfile.TemporaryDirectory(prefix="mutate") as scratch:
        page = pathlib.Path(scratch) / "page"
        page.write_bytes(number.to_bytes(4, "little") + bytes(PAGE - 4))
        environment = {"QD_MUTANT_FILE": str(page), "HOME": scratch}
        environment["PYTHONPATH"] = str(tree / "python")
        python = tree / ".venv" / "bin" / "python"
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        run = subprocess.run([*command, *args.files], cwd=ROOT, env=os.environ | environment)
        reached = page.read_bytes()[4 + number]
    print("noticed" if run.returncode else "not noticed" if reached else "not reached")


def report(tree, args):
    facts = json.loads((tree / "changes.json").read_text())
    rows = {}
    for line in (tree / "results.jsonl").read_text().splitlines():
        row = json.loads(line)
        rows[row["number"]] = row
    rooms = collections.defaultdict(collections.Counter)
    for row in rows.values():
        room = row["file"].split("/")[1]
        room = "launcher" if room == "python" else room
        rooms[room][row["outcome"]] += 1
    outcomes = ("failed", "died", "hung", "survived", "unreached")
    print(
        f"Commit {facts['commit'][:7]}, seed {facts['seed']}, {len(rows)} of {len(facts['changes'])} changes.\n"
    )
    print("| room | changes | " + " | ".join(outcomes) + " | noticed |")
    print("|---" * (len(outcomes) + 3) + "|")
    rooms["all"] = sum(rooms.values(), collections.Counter())
    for room, counts in rooms.items():
        total = sum(counts.values())
        noticed = sum(counts[o] for o in ("failed", "died", "hung"))
        print(
            f"| {room} | {total} | "
            + " | ".join(str(counts[o]) for o in outcomes)
            + f" | {100 * noticed / total:.0f} % |"
        )
    print()
    for row in sorted(rows.values(), key=lambda r: (r["file"], r["line"])):
        if row["outcome"] in ("survived", "unreached"):
            print(
                f"- {row['file']}:{row['line']} ({row['number']}, {row['outcome']}) {row['what']}: `{row['source']}`"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("build", "cover", "kill", "report", "try"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / ".venv" / "bin" / "python")
    parser.add_argument("--share", default="0/1")
    parser.add_argument("--files", nargs="*", default=[])
    parser.add_argument("--file-limit", default="20", help="seconds of one test file")
    parser.add_argument("--python-only", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="*")
    parser.add_argument("--budget", type=float, default=240, help="seconds of tests a change")
    parser.add_argument("--minutes", type=float, default=60)
    args = parser.parse_args()
    action = {"try": try_change}.get(args.action) or globals()[args.action]
    action(args.folder.resolve(), args)


if __name__ == "__main__":
    main()
