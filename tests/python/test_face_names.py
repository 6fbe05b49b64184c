"""The public names: what dir() shows, what resolves, and what importing does."""

import os
import re
import subprocess
import sys

import pytest

import quadrants as qd

PUBLIC = """
    Backend BitpackedFields BufferView CRITICAL DEBUG DeviceCapability ERROR Event Field
    FieldsBuilder Format GraphStatus INFO Layout Matrix MatrixField MatrixNdarray MatrixTensor
    Mesh MeshInstance Ndarray QuadrantsAssertionError QuadrantsCompilationError
    QuadrantsNameError QuadrantsRuntimeError QuadrantsRuntimeTypeError QuadrantsSyntaxError
    QuadrantsTypeError SNode ScalarField ScalarNdarray Stream Struct StructField TRACE Template
    Tensor Vector VectorNdarray VectorTensor WARN abs acos activate ad algorithms amdgpu append
    arm64 asin assume_in_range atan2 atomic_add atomic_and atomic_cas atomic_exchange atomic_max
    atomic_min atomic_mul atomic_or atomic_sub atomic_xor axes bit_cast bit_shr block_local
    cache_read_only cast ceil checkpoint clock_counter clock_freq_hz cos cpu create_event
    create_stream cuda data_oriented dataclass deactivate deactivate_all_snodes
    dump_compile_config eig exp experimental extension f16 f32 f64 field float16 float32 float64
    floor frexp func get_addr global_thread_idx gpu graph graph_do_while graph_parallel
    graph_parallel_context grouped i i16 i32 i64 i8 ij ijk ijkl ijl ik ikl il init int16 int32
    int64 int8 interop is_active is_extension_enabled is_logging_effective j jk jkl jl k kernel
    kl l lang length linalg log loop_config make_spd math max mesh_local mesh_patch_idx metal
    min ndarray ndrange no_activate one perf_dispatch polar_decompose pow profiler pure pyfunc
    python randn random raw_div raw_mod real_func ref rescale_index reset root round rsqrt
    select set_logging_level simt sin solve sparse sparse_matrix_builder sqrt static
    static_assert static_print stop_grad stream_parallel svd sym_eig sync tan tanh template
    tensor tools types u1 u16 u32 u64 u8 uint1 uint16 uint32 uint64 uint8 volatile_load vulkan
    wrap x64 x86_64 zero
""".split()


def public(obj):
    # pytest rewrites the modules of a package with a plugin, which adds names like "@py_builtins".
    return sorted(n for n in dir(obj) if n.isidentifier() and not n.startswith("_"))


def test_package():
    found = set(public(qd)) - {"pytest_plugin"}
    assert found == set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_resolves(name):
    getattr(qd, name)


def test_unlisted():
    assert callable(qd.outer) and "outer" not in dir(qd)
    for name in ("_Tensor", "_VectorTensor", "_MatrixTensor", "_wrap"):
        getattr(qd, name)
    with pytest.raises(AttributeError, match="module 'quadrants' has no attribute 'nothing'"):
        qd.nothing


MODULES = {
    "ad": "FwdMode Tape clear_all_gradients grad_for grad_replaced no_grad",
    "graph": "do_while parallel parallel_context",
    "sparse": "grid usage",
    "interop": "get_mps_command_queue",
    "algorithms": "PrefixSumExecutor exclusive_scan_add exclusive_scan_max exclusive_scan_min "
    "exclusive_scan_scratch_slots parallel_sort reduce_add reduce_by_key_add "
    "reduce_by_key_scratch_slots reduce_max reduce_min reduce_scratch_slots select "
    "select_scratch_slots sort sort_scratch_slots",
    "math": "pi e inf nan vec2 vec3 vec4 mat2 mat3 mat4 ivec2 ivec3 ivec4 uvec2 uvec3 uvec4 acos asin "
    "atan2 ceil cos exp floor log max min pow round sin sqrt tan tanh clamp mix step smoothstep fract "
    "mod sign degrees radians log2 dot cross length distance normalize reflect refract determinant "
    "inverse eye isnan isinf vdir rotation2d translate scale rot_by_axis rot_yaw_pitch_roll rotation3d "
    "cmul cdiv cconj cinv cexp clog csqrt cpow popcnt clz ffs fns",
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    assert public(getattr(qd, name)) == sorted(MODULES[name].split())


@pytest.mark.oracle_differs("shows some of its inside")
def test_simt():
    assert public(qd.simt) == "Tile16x16 Tile32x32 block grid subgroup warp".split()


def test_types():
    assert set(public(qd.types)) == set(
        "BufferViewType NDArray Template annotations buffer_view_type compound_types enums f16 f32 f64 "
        "float16 float32 float64 i16 i32 i64 i8 int16 int32 int64 int8 is_integral is_real is_signed "
        "is_tensor matrix ndarray ndarray_type primitive_types quant ref sparse_matrix_builder struct "
        "template u1 u16 u32 u64 u8 uint1 uint16 uint32 uint64 uint8 utils vector".split()
    )


def test_matrix():
    patterns = qd.lang.matrix._generate_swizzle_patterns
    words = [w for letters in ("xyzw", "rgba", "stpq") for w in patterns(letters)]
    assert len(words) == 1020
    methods = (
        "all any cast cols cross determinant diag dot field fill frobenius_inner get_shape identity "
        "inverse max min ndarray norm norm_inv norm_sqr normalized one outer_product rows sum tensor "
        "to_list to_numpy trace transpose unit zero"
    ).split()
    assert public(qd.Matrix) == sorted(methods + words)
    assert patterns("xy", 2) == ["x", "y", "xx", "xy", "yx", "yy"]


def test_struct():
    assert public(qd.Struct) == ["entries", "field", "items", "keys", "methods", "to_dict"]


def test_function_names():
    for name in "acos atomic_add zero ndrange loop_config static svd init kernel".split():
        assert getattr(qd, name).__name__ == name
    assert qd.lang.ops.logical_not.__name__ == "logical_not"
    assert qd.graph.__name__ == "quadrants.lang.graph" and qd.ad.__name__ == "quadrants.ad"
    assert qd.Template.__name__ == "Template" and qd.template is qd.Template
    for obj in (qd.f32, qd.template(), qd.types.vector(3, qd.f32)):
        assert not hasattr(obj, "__name__")


def run(code, **env):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env}
    )


def test_import_is_light():
    heavy = "{m for m in ('torch', 'numpy', 'inspect', 'ast') if m in sys.modules}"
    code = f"import sys; before = {heavy}; import quadrants; print(*sorted({heavy} - before))"
    assert run(code, ENABLE_QUADRANTS_HEADER_PRINT="0").stdout.strip() == ""


def test_the_first_field_imports_no_heavy_module():
    heavy = "{m for m in ('torch', 'numpy', 'inspect', 'ast', 'dataclasses', 'numbers') if m in sys.modules}"
    code = f"""
import sys
import quadrants as qd
before = {heavy}
qd.init(arch=qd.cpu, log_level=qd.ERROR)
x, v, a = qd.field(qd.f32, 4), qd.Vector.field(3, qd.f32, shape=2), qd.ndarray(qd.f32, 5)
s = qd.types.struct(p=qd.f32).field(shape=3)
x[1], v[0], a[2], s[1].p = 1.0, [1, 2, 3], x[0], 5.0
print(a[2], sorted({heavy} - before))
"""
    assert run(code, ENABLE_QUADRANTS_HEADER_PRINT="0").stdout.endswith("0.0 []\n")


def test_banner():
    line = run("import quadrants").stdout
    assert line.startswith("[Quadrants] version 1.3.3, llvm ") and ", python 3." in line
    for off in ("false", "0", "F"):
        assert run("import quadrants", ENABLE_QUADRANTS_HEADER_PRINT=off).stdout == ""


@pytest.mark.parametrize(
    "close",
    [
        "os.close(1)",
        "sys.stdout = None",
        "sys.stdout.close()",
        "sys.stdout = open('/dev/full', 'w')",
        "sys.stdout = open('/dev/null', 'w'); sys.stdout.close()",
        "r, w = os.pipe(); os.close(r); sys.stdout = open(w, 'w')",
    ],
)
@pytest.mark.parametrize("early", [True, False])
def test_nobody_has_to_read_the_banner(close, early, tmp_path):
    shown = "with open(sys.argv[1], 'w') as f: f.write(str(qd.lang.impl.get_runtime()._prog is not None))"
    steps = [close, "import quadrants as qd"][:: 1 if early else -1]
    program = "\n".join(["import os, sys", *steps, "qd.init(arch=qd.cpu)", shown, "os._exit(0)"])
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "end")], timeout=60)
    assert done.returncode == 0
    assert (tmp_path / "end").read_text() == "True"


@pytest.mark.parametrize(
    "content, told",
    [
        ("1763900000.0\n1.3.10\n", "latest version 1.3.10, "),
        ("x\n 1.4 ", "latest version 1.4, "),
        ("x\n1.3.3", ""),
        ("x\n1.2.9", ""),
        ("x\n2.0.0rc1", ""),
        ("9.9.9", ""),
        ("", ""),
        (b"\xff\n\xff", ""),
    ],
)
def test_banner_names_a_newer_version(tmp_path, content, told):
    (tmp_path / "quadrants").mkdir()
    content = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "quadrants" / "timestamp").write_bytes(content)
    line = run("import quadrants", XDG_CACHE_HOME=str(tmp_path)).stdout
    assert line.startswith(f"[Quadrants] version 1.3.3, {told}llvm ")


def test_version():
    assert qd.__version__ == (1, 3, 3) and qd.__version_str__ == "1.3.3"


DEPRECATED = """
import warnings
import quadrants as qd

@qd.kernel(graph=True)
def k(flag: qd.types.ndarray(qd.i32, ndim=0)):
    while qd.graph_do_while(flag):
        with qd.graph_parallel_context():
            with qd.graph_parallel():
                for i in range(1):
                    flag[None] = 0

def main():
    qd.init(arch=qd.cpu, log_level="error")
    flag = qd.ndarray(qd.i32, ())
    for _ in range(2):
        k(flag)
        for old in qd.simt.block.mem_sync, qd.simt.grid.memfence:
            try:
                old()
            except ValueError:
                pass
        qd.experimental.real_func(lambda: None)
        qd.algorithms.parallel_sort(qd.field(qd.i32, 4))
        qd.algorithms.PrefixSumExecutor(8)
    warnings.warn("what another package deprecates", DeprecationWarning)
"""
OLD_NAMES = """
    graph_do_while graph_parallel_context graph_parallel simt.block.mem_sync simt.grid.memfence
    experimental.real_func algorithms.parallel_sort algorithms.PrefixSumExecutor
""".split()


@pytest.mark.parametrize(
    "start",
    [
        "import program; program.main()",
        "import runpy; runpy.run_path('program.py', run_name='main')['main']()",
    ],
)
@pytest.mark.oracle_differs("those that point at modules of the user's are ignored")
def test_deprecations_of_the_package_show_once(tmp_path, monkeypatch, start):
    (tmp_path / "program.py").write_text(DEPRECATED)
    monkeypatch.chdir(tmp_path)
    err = run(start, PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path])).stderr
    for name in OLD_NAMES:
        assert len(re.findall(rf"qd\.{re.escape(name)}\b\S* is deprecated", err)) == 1, (name, err)
    assert "what another package deprecates" not in err


@pytest.mark.parametrize(
    "options, before, after, shown",
    [
        ("", "", "", "once"),
        ("ignore", "", "", "no"),
        ("ignore::DeprecationWarning", "", "", "no"),
        ("error", "", "", "raised"),
        ("always", "", "", "twice"),
        ("", "warnings.simplefilter('error', DeprecationWarning)", "", "raised"),
        ("", "warnings.filterwarnings('ignore', category=DeprecationWarning)", "", "no"),
        ("", "", "warnings.simplefilter('ignore')", "no"),
        ("", "", "warnings.filterwarnings('error', 'qd.experimental')", "raised"),
        ("", "warnings.resetwarnings()", "", "once"),
    ],
)
@pytest.mark.oracle_differs("its own rule stands before the command line's")
def test_rules_of_the_user_for_deprecations(tmp_path, monkeypatch, options, before, after, shown):
    (tmp_path / "program.py").write_text(
        "import quadrants as qd\ndef main():\n for _ in range(2): qd.experimental.real_func(lambda: None)\n"
    )
    code = f"import warnings\n{before}\nimport program\n{after}\nprogram.main()"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    out = run(code, PYTHONPATH=path, PYTHONWARNINGS=options)
    got = out.stderr.count("DeprecationWarning: qd.experimental.real_func")
    raised = "Traceback" in out.stderr
    assert ("raised" if raised else ("no", "once", "twice")[got]) == shown, out.stderr


@pytest.mark.parametrize(
    "variable, value, text",
    [
        ("QD_LOG_LEVEL", "bogus", "RuntimeError: Unknown logging level [bogus]."),
        ("QD_LOG_LEVEL", "warn", None),
        ("QD_LOG_LEVEL", "", None),
        (
            "QD_PERFDISPATCH_FORCE",
            "a:b,c",
            "ValueError: Malformed QD_PERFDISPATCH_FORCE entry 'c'.",
        ),
        ("QD_PERFDISPATCH_FORCE", "a:b", None),
    ],
)
@pytest.mark.oracle_differs("its text names the place in its source")
def test_variables_that_are_read_at_import(variable, value, text):
    path = os.pathsep.join(sys.path)
    out = run("import quadrants; print('imported')", **{variable: value, "PYTHONPATH": path})
    assert text in out.stderr if text else not out.stderr and "imported" in out.stdout, out.stderr
    assert bool(out.returncode) == bool(text)
