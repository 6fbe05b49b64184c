"""`qd.init` without a runtime (`_test_mode`), options, environment, logging."""

import copy
import os
import subprocess
import sys

import pytest

import quadrants as qd
from quadrants.lang import impl
from quadrants.lang._config import CompileConfig, config_rows

NOT_INITIALISED = "Maybe you forgot to call `qd.init\\(\\)` first?"


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in list(os.environ):
        if name.startswith("QD_"):
            monkeypatch.delenv(name)
    yield
    qd.reset()
    qd.set_logging_level("info")


def try_init(**options):
    return qd.init(_test_mode=True, **options)


def test_special_options():
    special = try_init()
    assert (special.log_level, special.gdb_trigger, special.short_circuit_operators) == (
        "info",
        False,
        True,
    )
    assert (special.print_full_traceback, special.unrolling_limit) == (False, 32)
    assert try_init(log_level="DEBUG", unrolling_limit=0).unrolling_limit == 0
    assert impl.get_runtime().unrolling_limit == 32  # not installed in this mode
    with pytest.raises(qd.QuadrantsRuntimeError, match=NOT_INITIALISED):
        impl.get_runtime().prog


def test_environment(monkeypatch, capfd):
    monkeypatch.setenv("QD_UNROLLING_LIMIT", "7")
    monkeypatch.setenv("QD_PRINT_FULL_TRACEBACK", "1")
    special = try_init()
    assert special.unrolling_limit == 7 and special.print_full_traceback is True
    assert try_init(unrolling_limit=3).unrolling_limit == 3
    warning = (
        'Environment variable QD_UNROLLING_LIMIT=7 overridden by qd.init argument "unrolling_limit"'
    )
    err = capfd.readouterr().err
    assert warning in err and err.startswith("[W ")
    monkeypatch.setenv("QD_DEBUG", "true")
    with pytest.raises(ValueError):
        try_init()
    monkeypatch.setenv("QD_DEBUG", "")
    try_init()


def test_environ_may_be_swapped(monkeypatch):
    monkeypatch.setattr(os, "environ", {"QD_UNROLLING_LIMIT": "9"})
    assert try_init().unrolling_limit == 9


def test_default_types(monkeypatch):
    try_init(default_fp=copy.deepcopy(qd.f64), default_ip=qd.i64)
    runtime = impl.get_runtime()
    assert (
        runtime.default_fp is qd.f64
        and runtime.default_ip is qd.i64
        and runtime.default_up is qd.u64
    )
    assert qd.math.vec3.dtype is qd.f64 and qd.math.uvec2.dtype is qd.u64
    try_init()
    assert runtime.default_fp is qd.f32 and qd.math.vec3.dtype is qd.f32
    monkeypatch.setenv("QD_DEFAULT_FP", "64")
    try_init()
    assert runtime.default_fp is qd.f64
    monkeypatch.setenv("QD_DEFAULT_FP", "16")
    with pytest.raises(ValueError, match="should be 32 or 64"):
        try_init()
    monkeypatch.delenv("QD_DEFAULT_FP")
    for wrong in (dict(default_fp=qd.i32), dict(default_ip=qd.i16)):
        with pytest.raises(AssertionError):
            qd.init(_test_mode=True, **wrong)


def test_errors():
    with pytest.raises(KeyError, match="zzz, yyy"):
        try_init(zzz=1, yyy=2)
    with pytest.raises(KeyError, match="default_ip"):
        try_init(default_up=qd.u32)
    for wrong in (
        dict(debug=1),
        dict(opt_level=2.0),
        dict(random_seed=2**40),
        dict(debug_dump_path=3),
    ):
        with pytest.raises(TypeError):
            try_init(**wrong)


def test_versions():
    try_init(require_version="1.3")
    try_init(require_version="1.2.9rc1")
    with pytest.raises(
        Exception, match="mismatch. Required version >= 1.4.0, installed version = 1.3.3"
    ):
        try_init(require_version="1.4")
    for text in ("1", "abc", ""):
        with pytest.raises(Exception, match="major.minor.patch"):
            try_init(require_version=text)


@pytest.mark.oracle_differs("other texts")
def test_a_version_is_a_text():
    for version in (1.3, 1, (1, 3), b"1.3"):
        with pytest.raises(TypeError, match="require_version is a str such as '1.3.0', got"):
            try_init(require_version=version)


@pytest.mark.parametrize("standard_output", ["the reader has gone", "closed", "full"])
def test_the_line_that_nobody_can_read(standard_output):
    program = f"""
import os, sys
import quadrants as qd
if {standard_output == "full"}:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
elif {standard_output == "closed"}:
    os.close(1)
else:
    read, write = os.pipe()
    os.dup2(write, 1)
    os.close(read)
qd.init(arch=qd.cpu, offline_cache=False)
x = qd.field(qd.i32, 3)
print(x[1], file=sys.stderr, flush=True)
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "0\n"), done.stderr


def test_arch(capfd, monkeypatch):
    try_init(arch=[qd.cpu])
    assert f"[Quadrants] Starting on arch={qd.cpu.name}" in capfd.readouterr().out
    try_init(arch="cpu")
    assert "Arch=['cpu'] is not supported, falling back to CPU" in capfd.readouterr().err
    with pytest.raises(RuntimeError, match="is not supported"):
        try_init(arch="cpu", enable_fallback=False)
    monkeypatch.setenv("QD_ARCH", "nonsense")
    with pytest.raises(ValueError):
        try_init()
    assert [(k.name, k.value) for k in qd.Layout] == [("AOS", 0), ("SOA", 1), ("NULL", 2)]
    assert str(qd.x64) == "Arch.x64" and qd.x64 is qd.x86_64 and len({*qd.gpu}) == 4
    assert copy.deepcopy(qd.x64) is qd.x64
    assert not qd.lang.misc.is_arch_supported("x64") and qd.lang.misc.is_arch_supported(qd.cpu)


def test_caching_conflict(monkeypatch):
    monkeypatch.setenv("QD_LOAD_IR", "1")
    with pytest.raises(ValueError, match="QD_LOAD_IR"):
        try_init()
    try_init(offline_cache=False, src_ll_cache=False)


def test_before_init():
    qd.reset()
    assert qd.cfg is None
    for use in (qd.sync, impl.current_cfg, lambda: impl.get_runtime().prog, qd.dump_compile_config):
        with pytest.raises(qd.QuadrantsRuntimeError, match=NOT_INITIALISED):
            use()


def test_config_object():
    cfg = CompileConfig()
    assert cfg.offline_cache is False and cfg.arch is qd.cpu and cfg.default_fp is qd.f32
    for name, row in config_rows().items():
        assert type(getattr(cfg, name)) is row.type
        setattr(cfg, name, getattr(cfg, name))
    cfg.offline_cache_max_size_of_files = 2**31 - 1
    cfg.device_memory_GB = 2
    assert cfg.device_memory_GB == 2.0
    for name, value in (
        ("debug", 0),
        ("opt_level", "1"),
        ("cuda_stack_limit", -1),
        ("arch", "x64"),
    ):
        with pytest.raises(TypeError):
            setattr(cfg, name, value)
    with pytest.raises(AttributeError):
        cfg.nothing = 1
    assert cfg.as_dict()["default_fp"] == "f32"


def test_root_of_the_caches(tmp_path):
    """C's environment is asked, each time: os.putenv() is not seen in os.environ."""
    before = os.environ.get("XDG_CACHE_HOME", "")
    try:
        for name in ("a", "b"):
            os.putenv("XDG_CACHE_HOME", str(tmp_path / name))
            root = str(tmp_path / name / "quadrants")
            assert qd._lib.core.get_repo_dir() == root + os.sep
            assert CompileConfig().offline_cache_file_path == os.path.join(root, "qdcache")
        os.putenv("XDG_CACHE_HOME", "")
        home = os.path.join(os.path.expanduser("~"), ".cache", "quadrants", "")
        assert qd._lib.core.get_repo_dir() == home
    finally:
        os.putenv("XDG_CACHE_HOME", before)


def test_reset_hooks():
    seen = []
    impl.on_reset(lambda: seen.append(1))
    qd.reset()
    assert seen == [1]
    impl._at_reset.pop()


def test_extensions():
    supported = qd.lang.misc.is_extension_supported
    assert supported(qd.x64, qd.extension.data64) and not supported(qd.vulkan, qd.extension.data64)
    assert supported(qd.arm64, qd.extension.assertion)


@pytest.mark.oracle_differs("it has all of them")
def test_extensions_tell_the_truth(backend):
    """A feature is reported if and only if using it works."""

    @qd.kernel
    def counts(x: qd.types.ndarray()):
        for i in x:
            x[i] = 2**40

    @qd.kernel
    def differentiable(x: qd.template(), y: qd.template()):
        y[None] += x[None]

    def adstack():
        x, y = (qd.field(qd.f32, (), needs_grad=True) for _ in range(2))
        with qd.ad.Tape(y):
            differentiable(x, y)

    def quant():
        packed = qd.BitpackedFields(32)
        packed.place(qd.field(qd.types.quant.int(5)))

    uses = {
        "sparse": lambda: qd.root.pointer(qd.i, 4).place(qd.field(qd.i32)),
        "quant": quant,
        "quant_basic": quant,
        "mesh": lambda: qd.lang.mesh._TriMesh(),
        "data64": lambda: counts(qd.ndarray(qd.i64, 4)),
        "adstack": adstack,
        "extfunc": lambda: qd.lang.source_builder.SourceBuilder.from_source(
            "int f() { return 1; }"
        ),
    }
    for name, use in uses.items():
        backend.init(default_ip=qd.i64)
        if qd.lang.misc.is_extension_supported(qd.cfg.arch, getattr(qd.extension, name)):
            use()
        else:
            with pytest.raises(qd.QuadrantsRuntimeError):
                use()


def test_logging(capfd, monkeypatch):
    from quadrants import _logging

    _logging.warn("a {} b", 1)
    err = capfd.readouterr().err
    assert (
        err.startswith("[W ")
        and "[test_face_init.py:test_logging@" in err
        and err.endswith("] a 1 b\n")
    )
    for given, shown in {
        "braces {x} stay": "braces {x} stay",
        "so do {} {0} {": "so do {} {0} {",
        "two {{}} are one": "two {} are one",
    }.items():
        _logging.info(given)
        assert capfd.readouterr().err.endswith(f"] {shown}\n")
    with pytest.raises(IndexError):
        _logging.info("{} {}", 1)
    _logging.debug("hidden")
    assert capfd.readouterr().err == ""
    qd.set_logging_level(qd.DEBUG)
    assert qd.is_logging_effective("debug") and not qd.is_logging_effective(qd.TRACE)
    _logging._get_logging("debug")("shown")
    assert capfd.readouterr().err.startswith("[D ")
    with pytest.raises(RuntimeError, match="broken"):
        _logging.error("broken")
    with pytest.raises(
        RuntimeError, match="Levels = trace, debug, info, warn, error, critical, off"
    ):
        qd.set_logging_level("loud")
    for level in ("WARN", "warning", "", None):
        for use in (qd.set_logging_level, qd.is_logging_effective):
            with pytest.raises(RuntimeError, match="Unknown logging level"):
                use(level)
    try_init(log_level="WARN")  # alone in lower-casing
    assert qd.WARN == "warn"


def test_python_backend_needs_no_native():
    assert impl.is_python_backend() is False


def test_one_config_is_filled_by_each_init():
    cfg = impl.default_cfg()
    qd.reset()
    assert (cfg.debug, cfg.opt_level, cfg.offline_cache) == (False, 1, False)
    cfg.debug = True
    assert impl.default_cfg() is cfg and impl.default_cfg().debug  # kept until a reset
    qd.init(arch=qd.cpu, opt_level=2, default_fp=qd.f64, log_level=qd.ERROR)
    assert impl.default_cfg() is cfg and qd.cfg is not cfg
    assert (cfg.debug, cfg.opt_level, cfg.default_fp) == (False, 2, qd.f64)
    cfg.opt_level, qd.cfg.random_seed = 5, 3
    assert (qd.cfg.opt_level, cfg.random_seed) == (2, 0)
    qd.reset()
    assert (cfg.opt_level, cfg.default_fp) == (1, qd.f32)
    qd.init(arch=qd.cpu, random_seed=4, log_level=qd.ERROR, _test_mode=True)
    assert impl.default_cfg() is cfg and cfg.random_seed == 4 and cfg.offline_cache
    assert qd.cfg is None
    with pytest.raises(KeyError):
        qd.init(arch=qd.cpu, opt_level=4, nonsense=3)
    assert impl.default_cfg() is cfg and cfg.opt_level == 4


@pytest.mark.oracle_differs("it names the library alone")
def test_a_missing_driver_is_told_once(tmp_path):
    code = """
import quadrants as qd
from quadrants._lib import core
from quadrants.lang.misc import is_arch_supported
for arch in qd.cuda, qd.amdgpu, qd.gpu, qd.cuda:
    qd.init(arch=arch)
print(core.with_cuda(), is_arch_supported(qd.amdgpu))
"""
    for off, told in ("", [1, 1]), ("0", [0, 0]):
        env = {**os.environ, "LD_LIBRARY_PATH": "", "PYTHONPATH": os.pathsep.join(sys.path)}
        if off:
            env.update(QD_ENABLE_CUDA=off, QD_ENABLE_AMDGPU=off)
        out = subprocess.run(
            [sys.executable, "-c", code.rpartition("print")[0] if off else code],
            env=env, capture_output=True, text=True,
        )  # fmt: skip
        assert not out.returncode, out.stderr
        if not off and "True" in out.stdout:
            pytest.skip("there is a driver")
        got = [out.stderr.count(f"{name} cannot be used: ") for name in ("cuda", "amdgpu")]
        assert got == told, out.stderr
