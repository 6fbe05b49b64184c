"""Runs programs, each in a process of its own that is forked from a clean one.

Reads paths from stdin, one a line; answers with one line of JSON each: how the process ended
("ok", "raised", "SIGSEGV", ... "timeout"), the class and the text of the exception, and what was
printed.
"""

import io
import json
import os
import signal
import sys

import numpy as np  # noqa: F401  programs start with it

import quadrants as qd

LIMIT = 60  # seconds


def _run(path, answer):
    sys.argv = [path]
    qd.init(arch=qd.cpu, offline_cache=False, log_level=qd.ERROR)
    out = sys.stdout = io.StringIO()
    end = {"end": "ok"}
    try:
        with open(path) as f:
            code = compile(f.read(), path, "exec")
        exec(code, {"__name__": "__main__", "np": np, "qd": qd, "sys": sys})
    except BaseException as e:
        end = {"end": "raised", "class": type(e).__name__, "text": str(e)}
    end["printed"] = out.getvalue()
    os.write(answer, json.dumps(end).encode())


def main():
    sys.stdout = sys.stderr  # what the package prints is no answer
    for line in sys.stdin:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            signal.alarm(LIMIT)
            _run(line.rstrip("\n"), write)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            text = answer.read()
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            text = json.dumps({"end": "timeout" if name == "SIGALRM" else name})
        print(text, flush=True, file=sys.__stdout__)


main()
