"""Re-exports of the compatibility room."""

from quadrants._compat.dataclass_trees import (
    expand_func_arguments,
    populate_global_vars_from_dataclass,
    unpack_ast_struct_expressions,
)

__all__ = [
    "expand_func_arguments",
    "populate_global_vars_from_dataclass",
    "unpack_ast_struct_expressions",
]
