"""Version of the package. `VERSION` is the release whose behaviour it has."""

VERSION = (1, 3, 3)
LLVM_VERSION = "22.1.0"
COMMIT = "00000000"
