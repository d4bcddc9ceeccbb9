"""The transforms of Winograd's convolution along one axis, with few operations.

F(m, 3) computes m results of a filter of 3 taps from m + 2 products (Lavin and Gray, "Fast
algorithms for convolutional neural networks", 2015). In two dimensions each transform is applied to
the rows, then to the columns of what that gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from compiler.codegen.native.llvm_ir import Function, Value

Transform: TypeAlias = Callable[[Function, Sequence[Value]], list[Value]]


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
    even, odd = _scaled(f, -4, d[2], d[4]), _scaled(f, -4, d[1], d[3])
    first = _scaled(f, 4, d[0], _scaled(f, -5, d[2], d[4]))
    return [first, f.add(even, odd), f.sub(even, odd)]


def _image4_high(f: Function, d: Sequence[Value]) -> list[Value]:
    near, far = f.sub(d[4], d[2]), f.sub(d[3], d[1])
    last = _scaled(f, 4, d[1], _scaled(f, -5, d[3], d[5]))
    return [_scaled(f, 2, far, near), _scaled(f, -2, far, near), last]


def _image2_low(f: Function, d: Sequence[Value]) -> list[Value]:
    return [f.sub(d[0], d[2]), f.add(d[1], d[2])]


def _image2_high(f: Function, d: Sequence[Value]) -> list[Value]:
    return [f.sub(d[2], d[1]), f.sub(d[1], d[3])]


def _filter4(f: Function, g: Sequence[Value]) -> list[Value]:
    def times(factor: float, a: Value) -> Value:
        return f.mul(a, f.constant(a.type, factor))

    ends = times(-1 / 6, f.add(g[0], g[2]))
    far = _scaled(f, 1 / 6, g[2], times(1 / 24, g[0]))
    return [
        times(1 / 4, g[0]),
        _scaled(f, -1 / 6, g[1], ends),
        _scaled(f, 1 / 6, g[1], ends),
        _scaled(f, 1 / 12, g[1], far),
        _scaled(f, -1 / 12, g[1], far),
        g[2],
    ]


def _filter2(f: Function, g: Sequence[Value]) -> list[Value]:
    ends = f.mul(f.add(g[0], g[2]), f.constant(g[0].type, 0.5))
    return [g[0], _scaled(f, 0.5, g[1], ends), _scaled(f, -0.5, g[1], ends), g[2]]


def _result4(f: Function, p: Sequence[Value]) -> list[Value]:
    near, near_odd = f.add(p[1], p[2]), f.sub(p[1], p[2])
    far, far_odd = f.add(p[3], p[4]), f.sub(p[3], p[4])
    return [
        f.add(f.add(p[0], near), far),
        _scaled(f, 2, far_odd, near_odd),
        _scaled(f, 4, far, near),
        f.add(_scaled(f, 8, far_odd, near_odd), p[5]),
    ]


def _result2(f: Function, p: Sequence[Value]) -> list[Value]:
    return [f.add(f.add(p[0], p[1]), p[2]), f.sub(f.sub(p[1], p[2]), p[3])]
