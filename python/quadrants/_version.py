"""Version of the package, and what its build wrote. `VERSION` is the release whose behaviour it has."""

try:
    from quadrants._build_info import COMMIT, LLVM_VERSION, OPS
except ModuleNotFoundError:  # nothing is built yet
    COMMIT, LLVM_VERSION, OPS = "00000000", "22", ""

VERSION = (1, 3, 3)
