"""Programs on a stand-in for NVIDIA's driver (standins/cuda.c) that logs what it is asked."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
CC = shutil.which("cc")
driver_marks = [
    pytest.mark.oracle_differs("has a driver of its own"),
    pytest.mark.skipif(not CC, reason="no C compiler"),
]


@pytest.fixture(scope="module")
def cuda_driver(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    subprocess.run(
        [CC, "-shared", "-fPIC", "-O1", "-o", folder / "libcuda.so.1", HERE / "standins/cuda.c"],
        check=True,
    )
    return folder


@pytest.fixture
def cuda_run(cuda_driver, tmp_path):
    """Runs a program; gives its output's lines and the driver's log."""

    def go(program, fault="", fails=False, **environment):
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        env = {
            **os.environ,
            "LD_LIBRARY_PATH": str(cuda_driver),
            "QD_FAKE_CUDA_LOG": str(log),
            "QD_FAKE_CUDA": fault,
            "QD_PTXAS": "",  # not the one that this machine may have
            "QD_OFFLINE_CACHE_FILE_PATH": str(tmp_path / "cache"),
            "ENABLE_QUADRANTS_HEADER_PRINT": "0",
            **environment,
        }
        path = tmp_path / "program.py"
        path.write_text("import numpy as np\nimport quadrants as qd\n" + program)
        done = subprocess.run(
            [sys.executable, path], env=env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == (1 if fails else 0), done.stderr
        lines = [x for x in done.stdout.splitlines() if not x.startswith("[Quadrants]")]
        log = log.read_text().splitlines() if log.exists() else []
        return lines, log, done.stderr

    return go
