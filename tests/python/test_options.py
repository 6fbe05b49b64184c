"""Every option of `qd.init`: its default, what it takes, what it refuses (spec 50, section 4)."""

import json

import pytest

import quadrants as qd
from helpers import raises

ON = """advanced_optimization cfg_optimization fast_math cache_loop_invariant_global_vars
demote_dense_struct_fors make_thread_local make_block_local detect_read_only real_matrix_scalarize
make_cpu_multithreading_loop offline_cache quant_opt_store_fusion quant_opt_atomic_demotion
make_mesh_block_local optimize_mesh_reordered_mapping mesh_localize_to_end_mapping
demote_no_access_mesh_fors""".split()
OFF = """debug check_out_of_bound flatten_if move_loop_invariant_outside_if force_scalarize_matrix
half2_vectorization raise_on_templated_floats kernel_profiler timeline ad_stack_experimental_enabled
external_metal_command_queue_is_torch_queue print_ir print_preprocessed_ir print_ir_dbg_info
print_accessor_ir print_struct_llvm_ir print_kernel_llvm_ir print_kernel_llvm_ir_optimized
print_kernel_asm print_kernel_amdgcn mesh_localize_from_end_mapping mesh_localize_all_attr_mappings
experimental_auto_mesh_local""".split()
NUMBERS = {
    "opt_level": 1, "default_cpu_block_dim": 32, "default_gpu_block_dim": 128,
    "saturating_grid_dim": 0, "max_block_dim": 1024, "num_compile_threads": 4, "random_seed": 0,
    "cuda_stack_limit": 0, "ad_stack_size": 0, "ad_stack_sparse_threshold_bytes": 104857600,
    "offline_cache_max_size_of_files": 104857600, "external_metal_command_queue": 0,
    "auto_mesh_local_default_occupacy": 4, "device_memory_GB": 1.0, "device_memory_fraction": 0.0,
    "offline_cache_cleaning_factor": 0.25,
}  # fmt: skip
TEXTS = {
    "vk_api_version": "",
    "offline_cache_cleaning_policy": "lru",
    "debug_dump_path": "/tmp/ir/",
}
DROPPED = {  # inert in this release; the established package has no field of that name
    "constant_folding": True, "use_llvm": True, "verbose": True, "lower_access": True,
    "simplify_before_lower_access": True, "simplify_after_lower_access": True,
    "cpu_block_dim_adaptive": True, "verbose_kernel_launches": False, "gpu_max_reg": 0,
}  # fmt: skip
DEFAULTS = {**dict.fromkeys(ON, True), **dict.fromkeys(OFF, False), **NUMBERS, **TEXTS}
WRONG = {bool: (1, 0, 2.0, "x", None, [1]), int: (2.0, "x", None, [1], 2**64), float: ("x", None, [1]),
         str: (1, 2.0, None, True, [1])}  # fmt: skip
UNSIGNED = "cuda_stack_limit ad_stack_sparse_threshold_bytes external_metal_command_queue".split()


def start(backend, **options):
    qd.init(arch=backend.arch, offline_cache_file_path=str(backend.cache_folder), **options)


def test_defaults(backend):
    start(backend)
    assert {name: getattr(qd.cfg, name) for name in DEFAULTS} == DEFAULTS


@pytest.mark.oracle_differs("it has no such fields")
def test_dropped_fields(backend):
    start(backend, **DROPPED)
    assert {name: getattr(qd.cfg, name) for name in DROPPED} == DROPPED


def test_wrong_values(backend):
    start(backend)
    cfg = qd.cfg
    for name, default in DEFAULTS.items():
        for value in WRONG[type(default)] + (-1,) * (name in UNSIGNED):
            with pytest.raises(TypeError):
                setattr(cfg, name, value)
    for name in ("debug", "opt_level", "device_memory_GB", "vk_api_version"):
        for value in WRONG[type(DEFAULTS[name])]:
            with pytest.raises(TypeError):
                qd.init(arch=backend.arch, _test_mode=True, **{name: value})


def test_written_values(backend):
    start(backend)
    for name, default in DEFAULTS.items():
        value = not default if isinstance(default, bool) else default * 2 + type(default)(3)
        setattr(qd.cfg, name, value)
        assert getattr(qd.cfg, name) == value
    with pytest.raises(AttributeError):
        qd.cfg.no_such_option = 1
    start(backend)


@pytest.mark.oracle_differs("it fails when the cache is cleaned")
@pytest.mark.parametrize("bytes", [0, -1])
def test_cache_size_must_be_positive(backend, bytes):
    with pytest.raises(TypeError):
        start(backend, offline_cache_max_size_of_files=bytes)


def test_block_local_raises_opt_level(backend, capfd):
    start(backend, opt_level=0, offline_cache=False)
    f = qd.field(qd.i32, 8)

    @qd.kernel
    def fill():
        qd.block_local(f)
        for i in f:
            f[i] = 1

    fill()
    assert qd.cfg.opt_level == 1 and f.to_numpy().sum() == 8
    assert "opt_level = 1 is enforced" in capfd.readouterr().err


@pytest.mark.oracle_differs("it crashes without CUPTI", run=False)
def test_timeline(backend, tmp_path):
    @qd.kernel
    def work() -> qd.i32:
        total = 0
        for i in range(100):
            total += i
        return total

    path = tmp_path / "timeline.json"
    for on in (True, False):
        start(backend, timeline=on, kernel_profiler=True)
        work(), work()
        qd.lang.misc.timeline_save(str(path))
        events = json.loads(path.read_text())
        assert len(events) >= 2 if on else not events
        assert all(e["ph"] == "X" and e["dur"] > 0 and "work" in e["name"] for e in events)
        qd.lang.misc.timeline_clear()
        qd.lang.misc.timeline_save(str(path))
        assert json.loads(path.read_text()) == []


def test_print_non_pure(backend, capsys):
    @qd.kernel
    def plain():
        pass

    @qd.kernel(fastcache=True)
    def declared():
        pass

    for on in (True, False):
        start(backend, print_non_pure=on)
        plain(), plain(), declared()
        lines = [x for x in capsys.readouterr().out.splitlines() if "[NOT_PURE]" in x]
        assert len(lines) == on and all(x.endswith("not pure: plain") for x in lines)


def test_unknown_keywords(backend):
    with raises(KeyError, "first", "second"):
        start(backend, first=1, second=2)
    with raises(KeyError, "default_ip"):
        start(backend, default_up=qd.u32)
    assert qd.cfg is None
