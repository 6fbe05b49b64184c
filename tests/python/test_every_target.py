"""The showcase and random programs compile for every CPU level that we name, on both tiers."""

import ctypes
import os
import pathlib
import subprocess
import sys

import pytest

import quadrants as qd

HERE = pathlib.Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"
LEVELS = {
    "x86_64-linux-gnu": "x86-64 x86-64-v2 x86-64-v3 x86-64-v4 znver4 sapphirerapids".split(),
    "aarch64-linux-gnu": "neoverse-v2 apple-m1".split(),
}
SOURCES = {
    "photo_filters": [EXAMPLES / "photo_filters.py"],
    "mpm_fluid": [EXAMPLES / "mpm_fluid.py"],
    "f32": ["differential:0"],
    "f64": ["differential:7"],
    "f16": ["differential:10"],
}


class Options(ctypes.Structure):
    """abi::CompileOptions, to the end: what lies behind it is read otherwise."""

    _fields_ = [
        ("abi_version", ctypes.c_uint32),
        ("tier", ctypes.c_int32),
        ("cpu", ctypes.c_char_p),
        ("triple", ctypes.c_char_p),
        ("time_passes", ctypes.c_int32),
        ("unwanted", ctypes.c_void_p),
        ("on_stage", ctypes.c_void_p),
        ("threads", ctypes.c_int32),
        ("parts", ctypes.c_void_p),
    ]


class Blob(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


def compile_for(library, module, cpu, triple):
    """Bytes of both tiers' artefacts, or the compiler's message."""
    compilation, error, sizes = ctypes.c_void_p(), Blob(), []
    options = Options(library.qd_compiler_abi_version(), 0, cpu.encode(), triple.encode(), 0)
    failed = library.qd_compiler_begin(
        module, ctypes.c_size_t(len(module)), ctypes.byref(options), ctypes.byref(compilation),
        ctypes.byref(error),
    )  # fmt: skip
    for tier in () if failed else (0, 1):
        artefact = Blob()
        options.tier = tier
        failed = library.qd_compiler_emit(
            compilation, ctypes.byref(options), ctypes.byref(artefact), ctypes.byref(error)
        )
        if failed:
            break
        sizes.append(artefact.bytes)
        library.qd_compiler_free(ctypes.byref(artefact))
    if failed:
        return ctypes.string_at(error.data, error.bytes).decode()
    library.qd_compiler_end(compilation)
    return sizes


@pytest.mark.parametrize("source", SOURCES)
def test_every_level_compiles(established, tmp_path, source):
    if established:
        pytest.skip("looks into our compiler")
    done = subprocess.run(
        [sys.executable, HERE / "collect_modules.py", tmp_path, *SOURCES[source]],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0"),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    modules = {p.stem: p.read_bytes() for p in sorted(tmp_path.glob("*.bin"))}
    assert modules
    folder = pathlib.Path(qd.__file__).parent / "_lib"
    library = ctypes.CDLL(str(folder / "libqd_compiler.so"))
    for name, module in modules.items():
        for triple, cpus in LEVELS.items():
            for cpu in cpus:
                sizes = compile_for(library, module, cpu, triple)
                assert isinstance(sizes, list), f"{name} for {cpu}: {sizes}"
                assert min(sizes) > 500, f"{name} for {cpu}"
