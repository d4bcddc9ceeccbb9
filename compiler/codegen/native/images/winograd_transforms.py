"""The transforms of Winograd's convolution along one axis, with few operations.

F(m, 3) computes m results of a filter of 3 taps from m + 2 products (Lavin and Gray, "Fast
algorithms for convolutional neural networks", 2015). In two dimensions each transform is applied to
the rows, then to the columns of what that gives.

F(4, 3) evaluates polynomials at 0, ±3/4, ±3/2 and infinity: rounding errors are a quarter of those
at the usual 0, ±1, ±2 (Barabasz et al., "Error analysis and improving the accuracy of Winograd
convolution for deep neural networks", 2020), and all factors but the filters' are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from compiler.codegen.native.llvm_ir import Function, Value

Transform: TypeAlias = Callable[[Function, Sequence[Value]], list[Value]]

NEAR, FAR = 0.75, 1.5
"""The points of F(4, 3), with both signs; the far ones are twice as far from 0."""


def image_transform(m: int) -> tuple[Transform, Transform]:
    """The transform of m + 2 neighbouring elements, as its first and its second half."""
    return (_image4_low, _image4_high) if m == 4 else (_image2_low, _image2_high)


def filter_transform(m: int) -> Transform:
    """The transform of 3 taps to m + 2 numbers."""
    return _filter4 if m == 4 else _filter2


def result_transform(m: int) -> Transform:
    """The transform of m + 2 products to m results."""
    return _result4 if m == 4 else _result2


def _scaled(f: Function, factor: float, a: Value, b: Value) -> Value:
    """Compute factor * a + b."""
    return f.fma(a, f.constant(a.type, factor), b)


def _image4_low(f: Function, d: Sequence[Value]) -> list[Value]:
    even, odd = _scaled(f, -(FAR**2), d[2], d[4]), _scaled(f, -(FAR**2), d[1], d[3])
    first = _product_of_points(f, d[0], d[2], d[4])
    return [first, _scaled(f, NEAR, odd, even), _scaled(f, -NEAR, odd, even)]


def _image4_high(f: Function, d: Sequence[Value]) -> list[Value]:
    even, odd = _scaled(f, -(NEAR**2), d[2], d[4]), _scaled(f, -(NEAR**2), d[1], d[3])
    last = _product_of_points(f, d[1], d[3], d[5])
    return [_scaled(f, FAR, odd, even), _scaled(f, -FAR, odd, even), last]


def _product_of_points(f: Function, a: Value, b: Value, c: Value) -> Value:
    """Compute the coefficients of (x² - NEAR²)(x² - FAR²) times a, b and c."""
    return _scaled(f, NEAR**2 * FAR**2, a, _scaled(f, -(NEAR**2 + FAR**2), b, c))


def _image2_low(f: Function, d: Sequence[Value]) -> list[Value]:
    return [f.sub(d[0], d[2]), f.add(d[1], d[2])]


def _image2_high(f: Function, d: Sequence[Value]) -> list[Value]:
    return [f.sub(d[2], d[1]), f.sub(d[1], d[3])]


def _filter4(f: Function, g: Sequence[Value]) -> list[Value]:
    near = 1 / (2 * NEAR**2 * (NEAR**2 - FAR**2))
    far = 1 / (2 * FAR**2 * (FAR**2 - NEAR**2))
    first = f.mul(g[0], f.constant(g[0].type, 1 / (NEAR**2 * FAR**2)))
    return [first, *_at_points(f, g, NEAR, near), *_at_points(f, g, FAR, far), g[2]]


def _at_points(f: Function, g: Sequence[Value], point: float, factor: float) -> list[Value]:
    """A filter's polynomial at a point and at its negative, times a factor."""
    even = _scaled(f, factor * point**2, g[2], f.mul(g[0], f.constant(g[0].type, factor)))
    return [
        _scaled(f, factor * point, g[1], even),
        _scaled(f, -factor * point, g[1], even),
    ]


def _filter2(f: Function, g: Sequence[Value]) -> list[Value]:
    ends = f.mul(f.add(g[0], g[2]), f.constant(g[0].type, 0.5))
    return [g[0], _scaled(f, 0.5, g[1], ends), _scaled(f, -0.5, g[1], ends), g[2]]


def _result4(f: Function, p: Sequence[Value]) -> list[Value]:
    near, near_odd = f.add(p[1], p[2]), f.sub(p[1], p[2])
    far, far_odd = f.add(p[3], p[4]), f.sub(p[3], p[4])
    ratio = FAR / NEAR

    def times(factor: float, a: Value) -> Value:
        return f.mul(a, f.constant(a.type, factor))

    return [
        f.add(f.add(p[0], near), far),
        times(NEAR, _scaled(f, ratio, far_odd, near_odd)),
        times(NEAR**2, _scaled(f, ratio**2, far, near)),
        _scaled(f, NEAR**3, _scaled(f, ratio**3, far_odd, near_odd), p[5]),
    ]


def _result2(f: Function, p: Sequence[Value]) -> list[Value]:
    return [f.add(f.add(p[0], p[1]), p[2]), f.sub(f.sub(p[1], p[2]), p[3])]
