"""Every target of the table: present ones run a kernel, the others say why they do not."""

import pytest

import quadrants as qd
from conftest import PRESENT, TARGETS
from helpers import Backend


@pytest.mark.parametrize("name", TARGETS)
def test_target_runs_a_kernel(name, cache_folder):
    if name not in PRESENT:
        pytest.skip(f"{name}: no such device or driver on this machine")
    Backend(name, cache_folder).init()
    x = qd.field(qd.i32, 5)

    @qd.kernel
    def fill():
        for i in x:
            x[i] = i * i

    fill()
    assert x.to_numpy().tolist() == [0, 1, 4, 9, 16]
    qd.reset()


def test_cpu_is_the_default(cache_folder):
    qd.init(offline_cache_file_path=str(cache_folder))
    assert qd.cfg.arch == qd.cpu
    assert qd.cpu in (qd.x64, qd.arm64)
    assert qd.x64 is qd.x86_64
    qd.reset()


def test_unsupported_target_falls_back_or_raises(cache_folder):
    foreign = qd.arm64 if qd.cpu == qd.x64 else qd.x64
    qd.init(arch=foreign, offline_cache_file_path=str(cache_folder))
    assert qd.cfg.arch == qd.cpu
    with pytest.raises(RuntimeError, match="is not supported"):
        qd.init(arch=foreign, enable_fallback=False)
    qd.init(arch=[foreign, qd.cpu], offline_cache_file_path=str(cache_folder))
    assert qd.cfg.arch == qd.cpu
    qd.reset()
