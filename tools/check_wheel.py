"""Tries an installed wheel: `python -I check_wheel.py SOURCE_TREE`, from outside the tree.

A kernel compiles and runs, versions are right, pytest finds the plugin, and neither Python nor the
dynamic linker took anything from the source tree.
"""

import inspect
import pathlib
import re
import subprocess
import sys
import sysconfig
from importlib.metadata import distribution

import numpy as np

import quadrants as qd
from quadrants._lib import core


@qd.kernel
def double(x: qd.types.ndarray(), s: qd.f32) -> qd.f32:
    total = 0.0
    for i in range(x.shape[0]):
        x[i] = 2 * x[i] + s
        total += x[i]
    return total


def main() -> None:
    tree = pathlib.Path(sys.argv[1]).resolve()
    package = pathlib.Path(inspect.getfile(qd)).parent
    assert package.parent == pathlib.Path(sysconfig.get_path("platlib")), package

    wheel = distribution("quadrants")
    declared = re.search(r'^version = "(.+)"$', (tree / "pyproject.toml").read_text(), re.M)
    assert wheel.version == declared[1], wheel.version
    assert wheel.version.startswith(qd.__version_str__ + "+native."), wheel.version
    assert re.fullmatch(r"[0-9a-f]{12}|unknown", core.get_commit_hash()), core.get_commit_hash()
    natives = sorted(f.name for f in wheel.files if f.name.endswith(".so"))
    assert natives == [
        "libqd_compiler.so",
        "libqd_linalg.so",
        f"quadrants_python{sysconfig.get_config_var('EXT_SUFFIX')}",
    ]
    strays = [
        str(f)
        for f in wheel.files
        if f.suffix in (".o", ".a", ".cpp", ".h", ".txt") and ".dist-info" not in str(f)
    ]
    assert not strays, strays

    qd.init(arch=qd.cpu, offline_cache=False)
    x = np.arange(1000, dtype=np.float32)
    assert double(x, 1.0) == np.sum(2.0 * np.arange(1000) + 1)
    assert x[999] == 1999 and core.counters()["compiled"] == 1

    used = {m.__file__ for m in sys.modules.values() if getattr(m, "__file__", None)}
    used |= set(re.findall(r" (/\S+)$", pathlib.Path("/proc/self/maps").read_text(), re.M))
    inside = [f for f in used if tree in pathlib.Path(f).resolve().parents]
    assert not inside, inside

    plugins = subprocess.run(
        [sys.executable, "-I", "-m", "pytest", "--trace-config", "--collect-only", "-q"],
        capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert f"{package}/pytest_plugin.py" in plugins, plugins
    print(
        f"wheel: {wheel.version} works in {sys.version.split()[0]}, commit {core.get_commit_hash()}"
    )


if __name__ == "__main__":
    main()
