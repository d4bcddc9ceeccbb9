"""Phases of image gradients: which elements of a strided image the same taps of windows cover.

Windows that move by a stride s cover every s-th element of an axis with the same taps, and no
element with all of them: with 3 taps and stride 2, every other element with taps 0 and 2, and those
between with tap 1. A gradient that reads only these taps multiplies no zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.dims import Size, is_multiple
from compiler.ir.opdef.kernel_builder import KernelBuilder, Number
from compiler.ir.windows import Window
from compiler.ops.image.conv_geometry import (
    PositionsInBounds,
    covering_counts,
    every,
    plus,
    times,
    within,
)
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Phase:
    """One phase of an image axis: element n is at `element + n * stride`.

    Of the taps, `taps` cover it: tap t is `tap + t * tap_step`, of the window at position
    `n + position - t * advance`. `tap_count` are as many, but never 0: a compiler takes divisors
    for nonzero.
    """

    window: Window
    taps: Number
    tap_count: Number
    element: Number
    tap: Number
    position: Number

    @classmethod
    def of(cls, k: KernelBuilder, window: Window, number: Number) -> Phase:
        """Return a phase by its number below the stride; the first ones have the most taps.

        With a common divisor of stride and dilation, some elements are in gaps: no tap covers them.
        """
        stride, dilation, step = window.stride, window.dilation, window.tap_step
        common, before = stride // step, k.size(window.before)
        if stride == 1:
            taps = k.size(window.kernel)
            return cls(window, taps, taps, 0, 0, before)
        tap, gap = (number, 0) if common == 1 else (k.mod(number, step), k.div(number, step))
        covering = k.div(k.size(window.kernel + step - 1) - tap, step)
        most = most_taps(window)
        count = 1 if isinstance(most, int) and most == 1 else covering
        taps = covering if common == 1 else k.where(k.equal(gap, 0), covering, 0)
        if dilation == 1 and window.before == 0:
            return cls(window, taps, count, tap, tap, 0)
        element = k.mod(times(tap, dilation) + plus(gap, times(before, stride - 1)), stride)
        start = plus(before, element) + (step * dilation - times(tap, dilation))
        return cls(window, taps, count, element, tap, k.div(start, stride) - dilation // common)

    def element_at(self, n: Number) -> Number:
        """Return the position in the image of element n."""
        return plus(self.element, times(n, self.window.stride))

    def tap_at(self, t: Number) -> Number:
        """Return the tap with number t of those that cover the elements."""
        return plus(self.tap, times(t, self.window.tap_step))

    def window_at(self, k: KernelBuilder, n: Number, t: Number) -> tuple[Number, Number]:
        """Return the window that covers element n with tap t, and whether it exists.

        `t` is 0 if no phase has more taps.
        """
        window = self.window
        back = times(t, window.dilation * window.tap_step // window.stride)
        shift = self.position if isinstance(back, int) else self.position - back
        at = plus(shift, n)
        return at, within(k, at, shift, phase_length(window) - 1, window.count)


def most_taps(window: Window) -> Size:
    """Return the number of taps of the phases that have the most."""
    return covering_counts([window])[0]


def phase_length(window: Window) -> Size:
    """Return the number of elements of an axis in a phase; the last one may not exist."""
    return (window.size + (window.stride - 1)) // window.stride


def covering_windows(
    k: KernelBuilder, phases: Sequence[Phase], elements: Sequence[Number], taps: Sequence[Number]
) -> PositionsInBounds:
    """Return the windows that cover elements of phases with taps, by number, and if they exist."""
    pairs = [phase.window_at(k, n, t) for phase, n, t in zip(phases, elements, taps, strict=True)]
    inside = every(*(exists for _, exists in pairs))
    return [at for at, _ in pairs], None if inside is True else inside


def elements_exist(
    k: KernelBuilder, phases: Sequence[Phase], positions: Sequence[Number]
) -> Number | None:
    """Return whether elements of phases are in the image; None if they always are."""
    pairs = [(phase.window, at) for phase, at in zip(phases, positions, strict=True)]
    cut = [at < k.size(w.size) for w, at in pairs if not is_multiple(w.size, w.stride)]
    return every(*cut) if cut else None
