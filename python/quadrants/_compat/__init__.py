"""Names that client programs and test suites of the established package touch.

Nothing inside depends on this room, except that `KernelDef` derives from `KernelFace`. Modules at the
import paths that those programs use re-export from here.
"""
