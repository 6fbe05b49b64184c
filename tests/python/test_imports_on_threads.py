"""What is imported on first use, while a program has several threads: Ctrl-C leaves no lock of an import behind."""

import os
import signal
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
