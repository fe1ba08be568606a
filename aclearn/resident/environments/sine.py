"""Sine and cosine in float32 with the same bits on every device: those of NumPy.

Whether an agent hits a wall may hang on the last bit of a cosine, and libraries differ there. The
method is that of NumPy's vector code: Cody and Waite's reduction to ±π/4, then a polynomial.
"""

from typing import Any

from aclearn.resident.warp_setup import wp


def _number(hexadecimal: str) -> Any:
    return wp.constant(wp.float32(float.fromhex(hexadecimal)))


_TWO_OVER_PI, _ROUND = _number("0x1.45f306p-1"), _number("0x1.8p+23")
# minus π/2 in three parts
_P1, _P2, _P3 = _number("-0x1.921fb0p+0"), _number("-0x1.5110b4p-22"), _number("-0x1.846988p-48")
_C8, _C6, _C4 = _number("0x1.98e616p-16"), _number("-0x1.6c06dcp-10"), _number("0x1.55553cp-5")
_S9, _S7 = _number("0x1.7d3bbcp-19"), _number("-0x1.a06bbap-13")
_S5, _S3 = _number("0x1.11119ap-7"), _number("-0x1.555556p-3")


@wp.func
def _fused(a: wp.float32, b: wp.float32, c: wp.float32) -> wp.float32:
    """a·b + c, rounded once."""
    return wp.float32(wp.float64(a) * wp.float64(b) + wp.float64(c))


@wp.func
def cosine_sine(angle: wp.float32) -> wp.vec2:
    """Cosine and sine of an angle below 7e4 rad; their errors are below 1.5 units of the last bit.

    The kernel must be compiled with `fuse_fp: False`.
    """
    quadrant = (angle * _TWO_OVER_PI + _ROUND) - _ROUND
    x = _fused(quadrant, _P3, _fused(quadrant, _P2, _fused(quadrant, _P1, angle)))
    square = x * x
    cosine = _fused(_fused(_C8, square, _C6), square, _C4)
    cosine = _fused(_fused(cosine, square, -0.5), square, 1.0)
    sine = _fused(_fused(_fused(_S9, square, _S7), square, _S5), square, _S3)
    sine = _fused(wp.float32(sine * square), x, x)
    k = wp.int32(quadrant) & 3
    if k == 0:
        return wp.vec2(cosine, sine)
    if k == 1:
        return wp.vec2(-sine, cosine)
    if k == 2:
        return wp.vec2(-cosine, -sine)
    return wp.vec2(sine, -cosine)
