"""Enumerations shared by Python and native code; members' values are part of the native contract."""

from enum import Enum
from typing import Any


class Arch(Enum):
    x64 = 0
    arm64 = 1
    python = 3
    cuda = 4
    metal = 5
    amdgpu = 7
    vulkan = 8


class Extension(Enum):
    sparse = 0
    quant = 1
    mesh = 2
    quant_basic = 3
    data64 = 4
    adstack = 5
    bls = 6
    assertion = 7
    extfunc = 8


class Layout(Enum):
    AOS = 1
    SOA = 2
    NULL = 3


class SNodeType(Enum):
    root = 0
    dense = 1
    dynamic = 2
    pointer = 3
    bitmasked = 4
    hash = 5
    place = 6
    bit_struct = 7
    quant_array = 8


class AutodiffMode(Enum):
    NONE = 0
    FORWARD = 1
    REVERSE = 2
    VALIDATION = 3


class BoundaryMode(Enum):
    UNSAFE = 0
    CLAMP = 1


_FORMATS = (
    "unknown r8 rg8 rgba8 rgba8srgb bgra8 bgra8srgb r8u rg8u rgba8u r8i rg8i rgba8i r16 rg16 rgb16 rgba16 "
    "r16u rg16u rgb16u rgba16u r16i rg16i rgb16i rgba16i r16f rg16f rgb16f rgba16f r32u rg32u rgb32u rgba32u "
    "r32i rg32i rgb32i rgba32i r32f rg32f rgb32f rgba32f depth16 depth24stencil8 depth32f"
)


def __getattr__(name: str) -> Any:
    if name != "Format":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = Enum("Format", _FORMATS.split(), start=0, module=__name__)
    globals()["Format"] = made
    return made


_CPU = frozenset(Extension) - {Extension.bls}
EXTENSIONS: dict[Arch, frozenset[Extension]] = {
    Arch.x64: _CPU,
    Arch.arm64: _CPU - {Extension.extfunc},
    Arch.cuda: frozenset(Extension) - {Extension.extfunc},
    Arch.amdgpu: frozenset(
        {
            Extension.quant,
            Extension.quant_basic,
            Extension.data64,
            Extension.adstack,
            Extension.assertion,
        }
    ),
    Arch.metal: frozenset({Extension.adstack}),
    Arch.vulkan: frozenset({Extension.adstack}),
    Arch.python: frozenset(),
}
