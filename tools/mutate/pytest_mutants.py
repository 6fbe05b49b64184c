"""pytest plugin: collects once, then runs chosen tests in forked children, a request per line.

A request is JSON: `mutant` (0: none), `tests` (node ids in order, or null for all of this server's share),
`log` (where to note what each test comes past, or null), `limit` (seconds). The answer, a line too: `outcome` ("passed", "failed", "died" or "hung") and `test`, the one that ended it.
"""

import json
import mmap
import os
import shutil
import signal
import struct
import tempfile
import time

import _pytest.main
import pytest

NUMBER = struct.calcsize("i")
FILE_LIMIT = float(os.environ.get("QD_MUTANT_FILE_LIMIT", "20"))  # seconds of one test file, noting
TEST_LIMIT = 60


class Page:
    """What qd_mutant.h maps too."""

    def __init__(self, path):
        with open(path, "r+b") as f:
            self.bytes = mmap.mmap(f.fileno(), 0)

    def choose(self, number):
        self.bytes[:NUMBER] = struct.pack("i", number)

    def clear(self):
        self.bytes[NUMBER:] = bytes(len(self.bytes) - NUMBER)

    def seen(self):
        return [i for i, b in enumerate(self.bytes[NUMBER:]) if b]


class Child:
    """In the forked process: hooks around every test."""

    def __init__(self, page, log, progress):
        self.page, self.log, self.progress = page, log, progress
        self.spent, self.failed = {}, False

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        self.progress.seek(0)
        self.progress.truncate()
        self.progress.write(item.nodeid)
        self.progress.flush()
        if self.log:
            self.page.clear()
        self.failed = False
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        if self.log:
            file = item.nodeid.partition("::")[0]
            self.spent[file] = self.spent.get(file, 0) + seconds
            row = {"test": item.nodeid, "seconds": seconds, "ok": not self.failed}
            self.log.write(json.dumps(row | {"seen": self.page.seen()}) + "\n")
            self.log.flush()

    def pytest_runtest_setup(self, item):
        if self.log and self.spent.get(item.nodeid.partition("::")[0], 0) > FILE_LIMIT:
            pytest.skip("this file has had its time")

    def pytest_runtest_logreport(self, report):
        self.failed |= report.failed or report.outcome == "skipped"


def in_child(session, request, items, page, progress):
    os.setpgid(0, 0)
    quiet = os.open(
        os.environ.get("QD_MUTANT_OUTPUT", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND
    )
    for fd in (1, 2):
        os.dup2(quiet, fd)
    home = tempfile.mkdtemp(prefix="home", dir=os.environ["QD_MUTANT_SCRATCH"])
    os.environ["HOME"] = home
    os.environ.pop("XDG_CACHE_HOME", None)
    log = open(request["log"], "a") if request["log"] else None
    session.config.option.maxfail = 0 if log else 1
    session.items = items
    session.config.pluginmanager.register(Child(page, log, progress))
    try:
        _pytest.main.pytest_runtestloop(session)
    except session.Failed:
        pass
    except BaseException as e:
        os.write(2, repr(e).encode())
        os._exit(1)
    os._exit(1 if session.testsfailed else 0)


def wait(pid, limit):
    """Exit status of a child, None if it had to be killed."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.02)
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    descriptors = map(int, os.environ["QD_MUTANT_PIPES"].split())
    requests, answers = os.fdopen(next(descriptors)), os.fdopen(next(descriptors), "w", buffering=1)
    share, of = map(int, os.environ.get("QD_MUTANT_SHARE", "0/1").split("/"))
    page = Page(os.environ["QD_MUTANT_FILE"])
    by_name = {item.nodeid: item for item in session.items}
    files = sorted({name.partition("::")[0] for name in by_name})
    mine = [i for i in session.items if files.index(i.nodeid.partition("::")[0]) % of == share]
    print(json.dumps({"outcome": "ready", "tests": len(mine)}), file=answers)
    for line in requests:
        request = json.loads(line)
        names = request["tests"]
        items = mine if names is None else [by_name[n] for n in names if n in by_name]
        page.choose(request["mutant"])
        with tempfile.TemporaryFile("w+", dir=os.environ["QD_MUTANT_SCRATCH"]) as progress:
            pid = os.fork()
            if not pid:
                in_child(session, request, items, page, progress)
            status = wait(pid, request["limit"])
            try:
                os.killpg(pid, signal.SIGKILL)  # and what the tests have left behind
            except OSError:
                pass
            if status is None:
                os.waitpid(pid, 0)
            progress.seek(0)
            outcome = "hung" if status is None else "died" if os.WIFSIGNALED(status) else None
            outcome = outcome or ("failed" if os.WEXITSTATUS(status) else "passed")
            answer = json.dumps({"outcome": outcome, "test": progress.read()})
        page.choose(0)
        for name in os.listdir(os.environ["QD_MUTANT_SCRATCH"]):
            if name.startswith("home"):
                path = os.path.join(os.environ["QD_MUTANT_SCRATCH"], name)
                shutil.rmtree(path, ignore_errors=True)
        print(answer, file=answers)
    return True
