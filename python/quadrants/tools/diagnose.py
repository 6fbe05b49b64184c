"""Facts about the environment, for bug reports."""

import os
import platform
import sys


def main() -> None:
    """Prints system, Python, packages and the variables that matter."""
    import numpy

    import quadrants as qd

    print(f"quadrants {qd.__version_str__} at {os.path.dirname(qd.__file__)}")
    print(f"python {sys.version.split()[0]} at {sys.executable}, numpy {numpy.__version__}")
    print(f"system {platform.platform()}, {os.cpu_count()} CPUs")
    for arch in qd._lib.core.Arch:
        print(f"arch {arch.name}: {'yes' if qd.lang.misc.is_arch_supported(arch) else 'no'}")
    for name, value in sorted(os.environ.items()):
        if name.startswith(("QD_", "CUDA_", "LD_", "XDG_CACHE")):
            print(f"{name}={value}")


if __name__ == "__main__":
    main()
