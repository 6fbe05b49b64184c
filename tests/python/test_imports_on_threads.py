"""What is imported on first use, while a program has several threads: Ctrl-C leaves no lock of an import behind."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from quadrants import _lazy


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Makes a module with that code and gives its name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made = []

    def make(code):
        name = f"quadrants_probe_{len(made)}"
        (tmp_path / f"{name}.py").write_text(
            "import threading, time\nthread = threading.get_ident()\n" + code
        )
        made.append(name)
        return name

    yield make
    for name in made:
        sys.modules.pop(name, None)


@pytest.fixture
def another_thread():
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    yield
    over.set()
    thread.join()


main_only = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="about the main thread"
)


@main_only
def test_the_main_thread_lets_another_import(module, another_thread):
    assert _lazy.load(module("")).thread != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        _lazy.load(module("1 / 0"))
    nested = module("")
    outer = _lazy.load(module(f"from quadrants import _lazy\ninner = _lazy.load({nested!r})"))
    assert outer.inner.thread == outer.thread
    seen = []
    worker = threading.Thread(
        target=lambda: seen.append(_lazy.load(module("")).thread == threading.get_ident())
    )
    worker.start()
    worker.join()
    assert seen == [True]


@main_only
@pytest.mark.run_in_serial
def test_an_interrupted_import_goes_on(module, another_thread, request):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    name = module("time.sleep(1)\nready = True")
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        _lazy.load(name)
    assert time.monotonic() - began < 0.9
    assert _lazy.load(name).ready


IMPORTS_AT_ONCE = """
import importlib, sys, threading
import quadrants as qd

parent, child = sys.argv[1:]
sys.setswitchinterval(1e-6)
barrier, failed = threading.Barrier(4), []

def run(ask):
    barrier.wait()
    try:
        ask()
    except BaseException as e:
        failed.append(e)

asks = [lambda: importlib.import_module(f"{parent}.{child}"), lambda: importlib.import_module(parent)] * 2
threads = [threading.Thread(target=run, args=(ask,)) for ask in asks]
for t in threads: t.start()
for t in threads: t.join()
assert not failed, failed
"""


@pytest.mark.parametrize(
    "package, module",
    [
        ("quadrants.lang.simt", "block"),
        ("quadrants.tools", "np2ply"),
        ("quadrants.linalg", "_solvers"),
        ("quadrants._snode", "fields_builder"),
    ],
)
def test_a_package_and_its_module_at_once(package, module, tmp_path):
    """No public package imports a module of its own: who imports that on another thread waits for it."""
    path = tmp_path / "imports.py"
    path.write_text(IMPORTS_AT_ONCE)
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, path, package, module], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
    before = "import sys\nimport quadrants as qd\n"
    code = f"{before}import {package}\nassert '{package}.{module}' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "module, names",
    [
        ("quadrants.ad", "Tape FwdMode no_grad"),
        ("quadrants.algorithms", "parallel_sort sort reduce_add"),
        ("quadrants.lang", "kernel func field Matrix init cpu"),
        ("quadrants.lang.impl", "field ndarray root static grouped"),
        ("quadrants.lang.misc", "extension i ij loop_config"),
        ("quadrants.lang.snode", "activate append length SNode"),
        ("quadrants.lang.matrix", "Matrix Vector MatrixField"),
        ("quadrants.tools", "PLYWriter write_vtk"),
        ("quadrants.linalg", "SparseMatrix SparseSolver"),
    ],
)
def test_star_imports_bring_what_is_found_elsewhere(module, names):
    scope = {}
    exec(f"from {module} import *", scope)
    assert {*names.split()} <= {*scope}
