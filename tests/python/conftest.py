"""The fixture `backend` and the marker `oracle_differs`, for every test of this folder.

The suite uses the public API only, so it also runs on the established package (the oracle), which
validates the expectations. Where the specification asks for something else than that package does,
a test carries `oracle_differs(reason)` and is expected to fail there.
"""

import importlib.metadata
import os
import pathlib

import pytest

import quadrants as qd
from cuda_standin import cuda_driver, cuda_run  # noqa: F401
from helpers import Backend

try:
    ORACLE = importlib.metadata.version("quadrants") == "1.3.3"
except importlib.metadata.PackageNotFoundError:
    ORACLE = False
if (pathlib.Path(qd.__file__).parent / "_lib" / "libqd_compiler.so").exists():
    ORACLE = False

TARGETS = ["cpu", "cuda", "amdgpu", "vulkan", "metal"]


def present(name):
    wanted = os.environ.get("QD_TEST_TARGETS")
    if wanted is not None and name not in wanted.split(","):
        return False
    if name == "cpu":
        return True
    if ORACLE:  # its probes of absent drivers are noisy
        return False
    from quadrants.lang.misc import is_arch_supported

    return bool(is_arch_supported(getattr(qd, name)))


PRESENT = [name for name in TARGETS if present(name)]


def pytest_report_header(config):
    absent = [name for name in TARGETS if name not in PRESENT]
    return f"quadrants targets: {' '.join(PRESENT)} (skipped, not present: {' '.join(absent)})"


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "oracle_differs(reason, run=True): the established package does not do what the "
        "specification asks here; run=False where it would take the process down",
    )
    config.addinivalue_line(
        "markers", "of_cpus(reason): what it says is true of CPUs alone; skipped on other targets"
    )


def pytest_collection_modifyitems(items):
    for item in items:
        target = getattr(item, "callspec", None) and item.callspec.params.get("backend")
        if target not in (None, "cpu") and (mark := item.get_closest_marker("of_cpus")):
            item.add_marker(pytest.mark.skip(reason=f"of CPUs: {mark.args[0]}"))
    if not ORACLE:
        return
    for item in items:
        for mark in item.iter_markers("oracle_differs"):
            item.add_marker(
                pytest.mark.xfail(
                    reason=mark.args[0], strict=False, run=mark.kwargs.get("run", True)
                )
            )


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory):
    """Compiled kernels live here for one session, so runs never depend on each other."""
    return tmp_path_factory.mktemp("qdcache")


@pytest.fixture(scope="session")
def established():
    """True on the established package: for the few checks of what only this implementation has."""
    return ORACLE


@pytest.fixture(params=PRESENT)
def backend(request, cache_folder):
    """A freshly initialised runtime, once for every target of this machine."""
    b = Backend(request.param, cache_folder)
    b.init()
    yield b
    qd.reset()


@pytest.fixture
def debug_backend(backend):
    """The same with every check on."""
    backend.init(debug=True)
    return backend
