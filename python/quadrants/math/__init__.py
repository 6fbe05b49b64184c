"""`qd.math`: short vectors, shader-style functions, rotations, complex numbers, bit counting.

The functions are funcs of the kernel language: element-wise where that makes sense, callable from
kernels only. Literals are integers wherever possible, so that the operand's type decides.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

import math as _math
from typing import Any as _Any

import quadrants as qd
from quadrants.lang import impl as _impl
from quadrants.lang._ops.elementary import *  # noqa: F403
from quadrants.lang.kernel_impl import func as _func
from quadrants.lang.matrix import MatrixType as _MatrixType
from quadrants.lang.matrix import VectorType as _VectorType
from quadrants.lang.ops import ffs

pi: float = _math.pi
e: float = _math.e
inf: float = float("inf")
nan: float = float("nan")

_DEGREES = 180 / _math.pi
_RADIANS = _math.pi / 180
_LOG_2 = _math.log(2)


class _UnsignedVectorType(_VectorType):
    """A vector of the default unsigned integer."""

    @property
    def dtype(self) -> _Any:
        return _impl.get_runtime().default_up


vec2, vec3, vec4 = (_VectorType(n, float) for n in (2, 3, 4))
ivec2, ivec3, ivec4 = (_VectorType(n, int) for n in (2, 3, 4))
uvec2, uvec3, uvec4 = (_UnsignedVectorType(n, None) for n in (2, 3, 4))
mat2, mat3, mat4 = (_MatrixType(n, n, 2, float) for n in (2, 3, 4))


@_func
def clamp(x, xmin, xmax):
    """min(xmax, max(xmin, x)), element-wise: x limited to [xmin, xmax]."""
    return qd.min(xmax, qd.max(xmin, x))


@_func
def mix(x, y, a):
    """x (1 - a) + y a, element-wise: x for a = 0, y for a = 1, linear between.

    The result is a float, of integers too.
    """
    return x * (1.0 - a) + y * a


@_func
def step(edge, x):
    """0 where x is below the edge, 1 from it on, as default float; element-wise."""
    return qd.cast(x >= edge, float)


@_func
def smoothstep(edge0, edge1, x):
    """0 for x up to edge0, 1 from edge1 on, between them a cubic with zero slope at both ends.

    Args:
        edge0: number or vector.
        edge1: number or vector, not equal to edge0.
        x: number or vector of floats.
    """
    t = qd.min(1, qd.max(0, (x - edge0) / (edge1 - edge0)))
    return t * t * (3 - 2 * t)


@_func
def fract(x):
    """x minus its floor, element-wise, for floats."""
    return x - qd.floor(x)


@_func
def mod(x, y):
    """x - y floor(x / y), element-wise."""
    return x - y * qd.floor(x / y)


@_func
def sign(x):
    """-1, 0 or 1 as default float, by the sign of x; element-wise."""
    return qd.cast(x > 0, float) - qd.cast(x < 0, float)


@_func
def degrees(x):
    """x in radians converted to degrees, element-wise."""
    return x * _DEGREES


@_func
def radians(x):
    """x in degrees converted to radians, element-wise."""
    return x * _RADIANS


@_func
def log2(x):
    """Logarithm of x to base 2, element-wise."""
    return qd.log(x) / _LOG_2


@_func
def dot(x, y):
    """Scalar product of the vectors x and y; see `Matrix.dot`."""
    return x.dot(y)


@_func
def cross(x, y):
    """Vector product of x and y, of 2 or 3 components; see `Matrix.cross`."""
    return x.cross(y)


@_func
def length(x):
    """Euclidean length of the vector x."""
    return x.norm()


@_func
def distance(x, y):
    """Euclidean distance of the points x and y."""
    return (y - x).norm()


@_func
def normalize(v):
    """The vector v divided by its length; NaN for zeros."""
    return v / v.norm()


@_func
def reflect(x, n):
    """Direction of a ray x mirrored at a surface of unit normal n."""
    return x - (2.0 * x.dot(n)) * n


@_func
def refract(x, n, eta):
    """Direction of a ray after it enters a medium.

    Args:
        x: direction of the ray, a unit vector.
        n: surface normal, a unit vector pointing against the ray.
        eta: ratio of refractive indices, outside over inside.

    Returns:
        The refracted direction; zero on total internal reflection.
    """
    cosine = x.dot(n)
    k = 1 - eta * eta * (1 - cosine * cosine)
    out = qd.zero(x * k)
    if k >= 0:
        out = eta * x - (eta * cosine + qd.sqrt(k)) * n
    return out


@_func
def determinant(m):
    """Determinant of the square matrix m of at most 4 rows; see `Matrix.determinant`."""
    return m.determinant()


@_func
def inverse(mat):
    """Inverse of the square matrix mat of at most 12 rows; see `Matrix.inverse`."""
    return mat.inverse()


@_func
def eye(n: qd.template()):
    """The n x n identity in default float; n is a compile-time integer."""
    return qd.Matrix.identity(float, n)


@_func
def isnan(x):
    """Whether x, as default float, is not a number, element-wise; fast math does not drop it."""
    y = qd.cast(x, float)
    if qd.static(_impl.pyquadrants.default_fp == qd.f64):
        return (qd.bit_cast(y, qd.i64) & qd.i64(0x7FFFFFFFFFFFFFFF)) > qd.i64(0x7FF0000000000000)
    if qd.static(_impl.pyquadrants.default_fp == qd.f16):
        return (qd.cast(qd.bit_cast(y, qd.i16), qd.i32) & 0x7FFF) > 0x7C00
    return (qd.bit_cast(y, qd.i32) & 0x7FFFFFFF) > 0x7F800000


@_func
def isinf(x):
    """Whether x, as default float, is infinite, element-wise; fast math does not drop it."""
    y = qd.cast(x, float)
    if qd.static(_impl.pyquadrants.default_fp == qd.f64):
        return (qd.bit_cast(y, qd.i64) & qd.i64(0x7FFFFFFFFFFFFFFF)) == qd.i64(0x7FF0000000000000)
    if qd.static(_impl.pyquadrants.default_fp == qd.f16):
        return (qd.cast(qd.bit_cast(y, qd.i16), qd.i32) & 0x7FFF) == 0x7C00
    return (qd.bit_cast(y, qd.i32) & 0x7FFFFFFF) == 0x7F800000


@_func
def vdir(ang):
    """The unit vector (cos ang, sin ang); ang in radians."""
    return qd.Vector([qd.cos(ang), qd.sin(ang)])


@_func
def rotation2d(ang):
    """2 x 2 matrix that rotates column vectors counter-clockwise by ang radians."""
    c = qd.cos(ang)
    s = qd.sin(ang)
    return qd.Matrix([[c, -s], [s, c]])


@_func
def translate(dx, dy, dz):
    """4 x 4 matrix that moves points (columns, homogeneous) by dx, dy, dz."""
    return qd.Matrix(
        [[1.0, 0.0, 0.0, dx], [0.0, 1.0, 0.0, dy], [0.0, 0.0, 1.0, dz], [0.0, 0.0, 0.0, 1.0]]
    )


@_func
def scale(sx, sy, sz):
    """4 x 4 matrix that scales points (columns, homogeneous) by sx, sy, sz."""
    return qd.Matrix(
        [[sx, 0.0, 0.0, 0.0], [0.0, sy, 0.0, 0.0], [0.0, 0.0, sz, 0.0], [0.0, 0.0, 0.0, 1.0]]
    )


@_func
def rot_by_axis(axis, ang):
    """4 x 4 rotation about an axis: the 3 x 3 block is cos I + (1 - cos) u u^T - sin [u]x.

    Rodrigues' formula with the sense of row vectors.

    Args:
        axis: vector of 3 components; u is the axis normalised.
        ang: angle in radians.
    """
    c = qd.cos(ang)
    s = qd.sin(ang)
    u = axis / axis.norm()
    t = (1 - c) * u
    return qd.Matrix(
        [
            [c + t[0] * u[0], t[0] * u[1] + s * u[2], t[0] * u[2] - s * u[1], 0.0],
            [t[1] * u[0] - s * u[2], c + t[1] * u[1], t[1] * u[2] + s * u[0], 0.0],
            [t[2] * u[0] + s * u[1], t[2] * u[1] - s * u[0], c + t[2] * u[2], 0.0],
            [0.0, 0.0, 0.0, 1.0],
        ]
    )


@_func
def rot_yaw_pitch_roll(yaw, pitch, roll):
    """4 x 4 rotation: yaw about y, then pitch about x, then roll about z; radians."""
    about_z = rot_by_axis(qd.Vector([0.0, 0.0, 1.0]), roll)
    about_x = rot_by_axis(qd.Vector([1.0, 0.0, 0.0]), pitch)
    about_y = rot_by_axis(qd.Vector([0.0, 1.0, 0.0]), yaw)
    return about_z @ about_x @ about_y


@_func
def rotation3d(ang_x, ang_y, ang_z):
    """4 x 4 rotation by Euler angles in radians: `rot_yaw_pitch_roll(ang_z, ang_x, ang_y)`."""
    return rot_yaw_pitch_roll(ang_z, ang_x, ang_y)


@_func
def cmul(z1, z2):
    """Complex product of z1 and z2, vectors (re, im)."""
    return qd.Vector([z1[0] * z2[0] - z1[1] * z2[1], z1[0] * z2[1] + z1[1] * z2[0]])


@_func
def cconj(z):
    """Complex conjugate of z, a vector (re, im)."""
    return qd.Vector([z[0], -z[1]])


@_func
def cinv(z):
    """1 / z for a vector z = (re, im)."""
    return cconj(z) / z.dot(z)


@_func
def cdiv(z1, z2):
    """z1 / z2 for vectors (re, im)."""
    return cmul(z1, cconj(z2)) / z2.dot(z2)


@_func
def cexp(z):
    """Complex exponential of z, a vector (re, im)."""
    return qd.exp(z[0]) * qd.Vector([qd.cos(z[1]), qd.sin(z[1])])


@_func
def clog(z):
    """Principal branch of the logarithm of z, a vector (re, im)."""
    return qd.Vector([qd.log(z.norm()), qd.atan2(z[1], z[0])])


@_func
def cpow(z, n):
    """Principal branch of z ** n for a vector z = (re, im) and a real n; zero for z = 0."""
    r = z.norm()
    out = qd.zero(z * r)
    if r > 0:
        ang = n * qd.atan2(z[1], z[0])
        out = qd.exp(n * qd.log(r)) * qd.Vector([qd.cos(ang), qd.sin(ang)])
    return out


@_func
def csqrt(z):
    """Principal square root of z, a vector (re, im); zero for z = 0."""
    r = z.norm()
    ang = qd.atan2(z[1], z[0]) / 2
    return qd.sqrt(r) * qd.Vector([qd.cos(ang), qd.sin(ang)])


@_func
def fns(mask: qd.u32, base: qd.u32, offset: qd.i32) -> qd.u32:
    """Position of a set bit of mask, counted from bit base: PTX's `fns`.

    Args:
        mask: the bits.
        base: where to begin, 0 to 31.
        offset: n > 0 looks for the n-th set bit at or above base, n < 0 for the |n|-th at or below, 0
            for base itself.

    Returns:
        The position, 0xFFFFFFFF if there is none.
    """
    found = qd.u32(0xFFFFFFFF)
    left = qd.max(abs(offset), 1)
    stride = qd.select(offset < 0, -1, 1)
    at = qd.cast(base, qd.i32)
    while left > 0 and at >= 0 and at < 32:
        if (mask >> qd.cast(at, qd.u32)) & qd.u32(1) == qd.u32(1):
            left -= 1
            if left == 0:
                found = qd.cast(at, qd.u32)
        at += stride
        if offset == 0:
            left = 0
    return found


_PUBLIC = [name for name in [*globals()] if name[0] != "_" and name != "qd"]


def __dir__() -> list[str]:
    return [*_PUBLIC, *(name for name in [*globals()] if name[0] == "_")]
