"""Arrays that several processes see: atomics are atomics, however many threads a process has."""

import multiprocessing as mp
from multiprocessing import shared_memory

import numpy as np
import pytest

import quadrants as qd
from helpers import Array

pytestmark = pytest.mark.run_in_serial
ROUNDS, TURNS = 200, 20_000


@qd.kernel
def summed(c: Array, n: qd.i32):
    for i in range(n):
        c[0] += 1


@qd.kernel
def counted(c: Array, n: qd.i32):
    for i in range(n):
        if qd.atomic_add(c[0], 1) < 0:
            c[1] = 1


@qd.kernel
def locked(c: Array, n: qd.i32):
    for i in range(n):
        while qd.atomic_cas(c[1], 0, 1) != 0:
            pass
        c[0] = c[0] + 1
        qd.atomic_exchange(c[1], 0)


def work(name, kernel, threads, barrier):
    qd.init(arch=qd.cpu, cpu_max_num_threads=threads)
    if name.endswith(".bin"):
        c = np.memmap(name, np.int32, "r+", shape=64)
    else:
        memory = shared_memory.SharedMemory(name)
        c = np.ndarray((64,), np.int32, memory.buf)
    launch = globals()[kernel]
    launch(np.zeros(64, np.int32), 1)
    barrier.wait()
    for _ in range(ROUNDS):
        launch(c, TURNS)
    del c


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kernel", ["summed", "counted", "locked"])
def test_processes_lose_no_update(kernel, threads):
    context = mp.get_context("spawn")
    memory = shared_memory.SharedMemory(create=True, size=256)
    c = np.ndarray((64,), np.int32, memory.buf)
    c[:] = 0
    barrier = context.Barrier(2)
    arguments = (memory.name, kernel, threads, barrier)
    processes = [context.Process(target=work, args=arguments) for _ in range(2)]
    try:
        for p in processes:
            p.start()
        for p in processes:
            p.join(60)
        assert [p.exitcode for p in processes] == [0, 0]
        assert c[0] == 2 * ROUNDS * TURNS
    finally:
        for p in processes:
            p.kill()
        del c
        memory.close()
        memory.unlink()


def test_a_memory_map_is_shared(tmp_path):
    path = str(tmp_path / "map.bin")
    c = np.memmap(path, np.int32, "w+", shape=64)
    context = mp.get_context("spawn")
    barrier = context.Barrier(2)
    arguments = (path, "locked", 1, barrier)
    processes = [context.Process(target=work, args=arguments) for _ in range(2)]
    for p in processes:
        p.start()
    for p in processes:
        p.join(60)
        p.kill()
    assert c[0] == 2 * ROUNDS * TURNS
