"""Where each public name of `quadrants` lives: "module" or "module:attribute".

`dir(quadrants)` is the keys of this table. A name's module is imported when the name is first used.
"""

from quadrants._version import OPS

_OPS = (
    "bit_cast cast frexp random select static static_assert static_print volatile_load grouped zero one "
    "loop_config block_local cache_read_only assume_in_range no_activate mesh_local mesh_patch_idx "
    "global_thread_idx stop_grad clock_counter get_addr rescale_index"
)
_DTYPES = (
    "f16 f32 f64 float16 float32 float64 i8 i16 i32 i64 int8 int16 int32 int64 "
    "u1 u8 u16 u32 u64 uint1 uint8 uint16 uint32 uint64"
)
_MISC = (
    "init reset sync extension dump_compile_config is_extension_enabled "
    "cpu gpu x64 x86_64 arm64 cuda amdgpu metal vulkan python"
)
_ERRORS = (
    "QuadrantsAssertionError QuadrantsCompilationError QuadrantsNameError QuadrantsRuntimeError "
    "QuadrantsRuntimeTypeError QuadrantsSyntaxError QuadrantsTypeError"
)
_AXES = "i j k l ij ik il jk jl kl ijk ijl ikl jkl ijkl axes"

_BY_MODULE = {
    "quadrants.lang.ops": f"{_OPS} {OPS}",
    "quadrants.types.primitive_types": _DTYPES + " ref",
    "quadrants.lang.misc": _MISC,
    "quadrants.lang.exception": _ERRORS,
    "quadrants.lang.kernel_impl": "kernel func pyfunc real_func data_oriented pure",
    "quadrants.lang._ndrange": "ndrange",
    "quadrants.lang.matrix": "Matrix Vector",
    "quadrants.lang.struct": "Struct dataclass",
    "quadrants._logging": "CRITICAL DEBUG ERROR INFO TRACE WARN is_logging_effective set_logging_level",
    "quadrants.types.annotations": "Template template sparse_matrix_builder",
    "quadrants.types.enums": "DeviceCapability Format Layout",
    "quadrants._library": "eig make_spd polar_decompose randn solve svd sym_eig",
    "quadrants._library.sparse": "is_active activate deactivate append length",
    "quadrants.lang.snode": "SNode deactivate_all_snodes root " + _AXES,
    "quadrants.lang._data.fields_builder": "FieldsBuilder",
    "quadrants.lang.field": "BitpackedFields Field MatrixField ScalarField StructField field",
    "quadrants.lang._ndarray": "MatrixNdarray Ndarray ScalarNdarray VectorNdarray ndarray",
    "quadrants.lang.buffer_view": "BufferView",
    "quadrants._tensor": "Backend MatrixTensor Tensor VectorTensor tensor wrap",
    "quadrants.lang.stream": "Event Stream create_event create_stream stream_parallel",
    "quadrants.lang.graph": "GraphStatus checkpoint graph_do_while graph_parallel graph_parallel_context",
    "quadrants.lang.mesh": "Mesh MeshInstance",
    "quadrants.lang._perf_dispatch": "perf_dispatch",
    "quadrants.lang.clock": "clock_freq_hz",
}

NAMES: dict[str, str] = {
    name: f"{module}:{name}" for module, names in _BY_MODULE.items() for name in names.split()
}
NAMES.update(
    {
        name: f"quadrants.{name}"
        for name in "ad algorithms experimental interop lang linalg math profiler sparse tools types".split()
    }
)
NAMES.update({"graph": "quadrants.lang.graph", "simt": "quadrants.lang.simt"})

# Resolve as attributes but are not listed by dir().
UNLISTED: dict[str, str] = {
    "outer": "quadrants.lang.simt._tile:outer",
    "_Tensor": "quadrants._tensor:Tensor",
    "_VectorTensor": "quadrants._tensor:VectorTensor",
    "_MatrixTensor": "quadrants._tensor:MatrixTensor",
    "_wrap": "quadrants._tensor:wrap",
    "_tensor": "quadrants._tensor",
    "_funcs": "quadrants._funcs",
    "_logging": "quadrants._logging",
    "_lib": "quadrants._lib",
    "_snode": "quadrants._snode",
    "_test_tools": "quadrants._test_tools",
}
