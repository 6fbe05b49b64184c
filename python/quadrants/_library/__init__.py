"""Small dense linear algebra and normal random numbers, written in the kernel language.

`inverse` and `determinant` are what the matrix methods of that name call.
"""

import quadrants as qd
from quadrants._library.decompose import polar_decompose, svd
from quadrants._library.eigen import eig, make_spd, sym_eig
from quadrants._library.inverses import determinant, inverse
from quadrants._library.linear import solve
from quadrants.lang import impl as _impl
from quadrants.lang.kernel_impl import func

_TURN = 6.283185307179586


@func
def randn_in(dt: qd.template()):
    radius = qd.sqrt(-2 * qd.log(1 - qd.random(dt)))
    return radius * qd.cos(qd.cast(_TURN, dt) * qd.random(dt))


@func
def randn(dt=None):
    """A random number of the standard normal distribution, always finite.

    By the transform of Box and Muller ("A note on the generation of random normal deviates", 1958) from
    two numbers of `qd.random`.

    Args:
        dt: f32 or f64, the default float if None.
    """
    if qd.static(dt in (None, float)):
        if qd.static(_impl.pyquadrants.default_fp == qd.f64):
            return randn_in(qd.f64)
        return randn_in(qd.f32)
    return randn_in(dt)
