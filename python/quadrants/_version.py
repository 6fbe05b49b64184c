"""Version of the package, and what its build wrote. `VERSION` is the release whose behaviour it has."""

try:
    from quadrants._build_info import COMMIT, ELEMENTARY, LLVM_VERSION
except ModuleNotFoundError:  # nothing is built yet
    COMMIT, ELEMENTARY, LLVM_VERSION = "00000000", "", "22"

VERSION = (1, 3, 3)
