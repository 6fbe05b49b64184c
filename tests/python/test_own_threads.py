"""Our threads and first calls, and what a program did to its signals and its floating-point mode."""

import os
import subprocess
import sys

SIGNALS = """
import os, signal
import quadrants as qd

qd.init(qd.cpu, cpu_max_num_threads=4, log_level="error")
x = qd.field(qd.i32, 100000)

@qd.kernel
def fill():
    for i in x:
        x[i] = i

fill()
assert len(os.listdir("/proc/self/task")) > 1
mine = {signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM}
signal.pthread_sigmask(signal.SIG_BLOCK, mine)
for s in mine:
    for _ in range(10):
        os.kill(os.getpid(), s)
        assert signal.sigtimedwait(mine, 20).si_signo == s
print("waited")
"""


def test_blocked_signals_wait_for_the_program(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(SIGNALS)
    env = dict(os.environ, OPENBLAS_NUM_THREADS="1")  # its threads take any signal
    done = subprocess.run([sys.executable, program], env=env, stdout=subprocess.PIPE, timeout=120)
    assert done.returncode == 0
    assert done.stdout.decode().endswith("waited\n")


ROUNDING = """
import ctypes, sys
import quadrants as qd

fesetround = ctypes.CDLL("libm.so.6").fesetround
qd.init(qd.cpu, default_fp=qd.f64, log_level="error")

@qd.kernel
def k() -> qd.f64:
    return qd.f64(0.1) * 3.0 + 1e-17

@qd.kernel
def f() -> qd.f32:
    return qd.f32(0.1) * qd.f32(0.7)

if sys.argv[1] == "upward":
    assert fesetround({"x86_64": 0x800, "aarch64": 0x400000}[sys.argv[2]]) == 0
values = k(), f()
fesetround(0)
print(*(v.hex() for v in values))
"""


def test_cached_constants_are_rounded_to_nearest(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(ROUNDING)

    def run(mode, cache):
        env = dict(os.environ, QD_OFFLINE_CACHE_FILE_PATH=str(tmp_path / cache))
        command = [sys.executable, program, mode, os.uname().machine]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True, timeout=120)
        return done.stdout.splitlines()[-1]

    run("upward", "one")
    assert run("nearest", "one") == run("nearest", "two")
