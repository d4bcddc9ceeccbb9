"""The gradient of a convolution by its input: convolutions of the output's gradient.

An input pixel y receives `d_out[o] * filter[k]` for all o * stride + k * dilation = y + padding.
For pixels of one remainder of y + padding by the stride (a phase) these are the same taps k, and o
moves by 1 where y moves by the stride: one contraction for each combination of phases. Consecutive
phases that differ only in how far the operands are offset are a batch axis of one contraction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product as combinations

from compiler.codegen.native.llvm_ir import Type
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.axes import Axis, contiguous, merged
from compiler.codegen.native.products.contraction import Contraction, Steps
from compiler.codegen.native.products.convolution import Convolution, at, label, last
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.codegen.native.products.nest import contraction_kernel
from compiler.codegen.native.products.packed import packed_steps
from compiler.codegen.native.products.padding import Margins, pad_call
from compiler.codegen.native.products.tiles import choose_tiling, extent
from compiler.ir.dims import Size, product
from compiler.ir.windows import StaticWindow
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Phase:
    """The input pixels of one remainder on an axis: start, start + stride, …

    They read `taps` entries of the kernel, `kernel_step` apart and the last one `kernel_last`, at
    output pixels `out_step` apart, the first one at `out_first` for the first input pixel.

    With a `count` above 1 it stands for the consecutive phases start, start + 1, …; from each to
    the next `kernel_last` increases by `kernel_move` and `out_first` by `out_move`.
    """

    start: int
    stride: int
    taps: int
    kernel_last: int = 0
    kernel_step: int = 1
    out_first: int = 0
    out_step: int = 1
    count: int = 1
    kernel_move: int = 0
    out_move: int = 0

    def joined(self, following: Phase) -> Phase | None:
        """This and the phase that follows as one; None unless they are alike but for offsets."""
        moves = following.kernel_last - self.kernel_last, following.out_first - self.out_first
        if self.count > 1:
            done = self.count - 1
            moves = moves[0] - done * self.kernel_move, moves[1] - done * self.out_move
        alike = (self.taps, self.kernel_step, self.out_step) == (
            following.taps, following.kernel_step, following.out_step,
        )  # fmt: skip
        if not alike or (self.count > 1 and moves != (self.kernel_move, self.out_move)):
            return None
        return replace(self, count=self.count + 1, kernel_move=moves[0], out_move=moves[1])


def phases(window: StaticWindow) -> list[Phase]:
    """The phases of an axis, by their start.

    Consecutive phases without taps are one, where they have equally many pixels.
    """
    result: list[Phase] = []
    step, size = window.tap_step, window.size
    kernel, stride, dilation, before = window.kernel, window.stride, window.dilation, window.before
    starts = {(tap * dilation - before) % stride: tap for tap in range(min(step, kernel))}
    end = 0
    for start in sorted(starts):
        result += _without_taps(end, start, stride, size)
        end = start + 1
        taps = range(starts[start], kernel, step)
        first = (start + before - taps[-1] * dilation) // stride
        out_step = step * dilation // stride
        result.append(Phase(start, stride, len(taps), taps[-1], step, first, out_step))
    return result + _without_taps(end, stride, stride, size)


def _without_taps(start: int, end: int, stride: int, size: Size) -> list[Phase]:
    """Phases start, start + 1, … before `end` that read no tap."""
    if not isinstance(size, int):
        return [Phase(first, stride, 0) for first in range(start, end)]
    last = min(max(start, size % stride), end)  # the first that has one pixel less
    runs = [(start, last), (last, end)]
    return [Phase(first, stride, 0, count=to - first) for first, to in runs if first < to]


def joined_phases(each: Sequence[Phase], size: Size) -> list[Phase]:
    """Join consecutive phases of an axis of `size` that have equally many pixels.

    >>> window = StaticWindow.fitting(288, 64, stride=32, before=16)
    >>> [phase.count for phase in joined_phases(phases(window), 288)]
    [16, 16]
    """
    result: list[Phase] = []
    for phase in each:
        join = None
        if result and _count(size, result[-1]) == _count(size, phase):
            join = result[-1].joined(phase)
        result[-1:] = [join] if join else [*result[-1:], phase]
    return result


def listed_phases(conv: Convolution) -> int:
    """How many phases `axis_phases` lists on an axis, at most, before it joins them."""
    return max(
        min(w.kernel, w.stride) if isinstance(w.size, int) else w.stride for w in conv.windows
    )


def axis_phases(conv: Convolution) -> list[list[Phase]]:
    """The joined phases of each axis; the gradient has a contraction for each combination."""
    return [joined_phases(phases(window), window.size) for window in conv.windows]


def image_gradient(
    machine: Machine, element: Type, conv: Convolution, *, epilogue: Epilogue | None = None,
    constant: bool = False,
) -> Steps:  # fmt: skip
    """Kernels of the gradient by the input: d_input[n, y…, c], channels last.

    Operands: "d_out", "filter", "out" (the gradient), those of the epilogue, whose strides are
    over the input's axes (images, spatial…, channels); scratch: "packed0", … and "padded" if the
    output's gradient is padded. `constant` says that the filters never change.
    """
    epilogue = epilogue or Epilogue()
    margins = _margins(conv)
    name, steps, scratch = "d_out", Steps(()), dict[str, Size]()
    if margins.any:
        name, size = "padded", conv.out_size
        scratch["padded"] = product([conv.images, *margins.around(size), conv.filters])
        call = pad_call(
            machine, element, conv.images, size, conv.filters, margins, ("d_out", "padded")
        )  # fmt: skip
        steps = Steps((call,), (), scratch)
    for number, combination in enumerate(combinations(*axis_phases(conv))):
        spec = _phase(element, conv, margins, combination, epilogue)
        if spec is not None:
            more = _steps(spec, machine, constant, (name, "filter"), f"packed{number}")
            steps = steps.then(more)
    return steps


def _steps(
    spec: Contraction, machine: Machine, constant: bool, names: tuple[str, str], scratch: str
) -> Steps:
    """The kernels of a phase; one without taps only stores what the epilogue makes of zeros."""
    if any(axis.count == 0 for axis in spec.sums):
        tiling = choose_tiling(machine, spec.element, extent(spec), False)
        call = contraction_kernel(spec, machine, tiling)
        return Steps((replace(call, arguments=(*names, *call.arguments[2:])),))
    return packed_steps(spec, machine, constant, names=names, scratch=scratch)


def _margins(conv: Convolution) -> Margins:
    """Zeros around the output's gradient, so that every tap of every input pixel reads one."""
    before: list[int] = []
    after: list[int] = []
    for window in conv.windows:
        reach = window.dilation * (window.kernel - 1)
        before.append(max(0, -((window.before - reach) // window.stride)))
        after.append(max(0, -((window.after - reach) // window.stride)))
    return Margins(tuple(before), tuple(after))


def _phase(
    element: Type, conv: Convolution, margins: Margins, phase: Sequence[Phase],
    epilogue: Epilogue,
) -> Contraction | None:  # fmt: skip
    """The contraction of a combination of phases; None if the input has no such pixel."""
    results = epilogue.strides(contiguous([conv.images, *conv.size, conv.channels]))
    counts = [_count(size, axis_phase) for size, axis_phase in zip(conv.size, phase, strict=True)]
    if 0 in counts:
        return None
    _, channel, spatial = conv.filter_strides()
    image, *rows, _ = contiguous([conv.images, *margins.around(conv.out_size), conv.filters])
    offsets: dict[str, Size] = {"a": 0, "b": 0}
    for place, axis_phase in enumerate(phase):
        first = axis_phase.out_first + margins.before[place]
        offsets["a"] = (
            offsets["a"] + product([first, rows[place]]) if axis_phase.taps else offsets["a"]
        )
        offsets["b"] = offsets["b"] + axis_phase.kernel_last * spatial[place]
        for name, strides in results.items():
            moved = product([axis_phase.start, strides[place + 1]])
            offsets[name] = offsets.get(name, 0) + moved
    types = {"a": element, "b": element} | epilogue.types(element)
    axes = [Axis(conv.images, {"a": image} | at(results, 0))]
    for place, (axis_phase, count) in enumerate(zip(phase, counts, strict=True)):
        strides = {n: product([axis_phase.stride, s]) for n, s in at(results, place + 1).items()}
        axes.append(Axis(count, {"a": rows[place]} | strides))
    return Contraction(
        label("image_gradient", conv, epilogue.label), element,
        [*_groups(conv, results), *_phase_axes(phase, rows, spatial, results)],
        merged(axes), _sums(conv, phase, rows),
        Axis(conv.group_channels, {"b": channel} | last(results)), types, offsets=offsets,
        start=epilogue.start, finish=epilogue.finish, outputs=epilogue.outputs,
    )  # fmt: skip


def _count(size: Size, phase: Phase) -> Size:
    """The input pixels of a phase."""
    return (size - phase.start + (phase.stride - 1)) // phase.stride


def _phase_axes(
    phase: Sequence[Phase], rows: Sequence[Size], spatial: Sequence[Size],
    results: Mapping[str, Sequence[Size]],
) -> list[Axis]:  # fmt: skip
    """A batch axis for each axis of joined phases."""
    axes: list[Axis] = []
    for place, axis_phase in enumerate(phase):
        if axis_phase.count > 1:
            strides = dict(at(results, place + 1))
            strides["a"] = product([axis_phase.out_move, rows[place]])
            strides["b"] = axis_phase.kernel_move * spatial[place]
            axes.append(Axis(axis_phase.count, strides))
    return axes


def _groups(conv: Convolution, results: Mapping[str, Sequence[Size]]) -> list[Axis]:
    """The axis of groups, if there are several."""
    if conv.groups == 1:
        return []
    filter, _, _ = conv.filter_strides()
    strides: dict[str, Size] = {"a": conv.group_filters, "b": filter * conv.group_filters}
    for name, stride in last(results).items():
        strides[name] = product([stride, conv.group_channels])
    return [Axis(conv.groups, strides)]


def _sums(conv: Convolution, phase: Sequence[Phase], rows: Sequence[Size]) -> list[Axis]:
    """The taps of each axis, last entry of the kernel first, then the filters."""
    filter, _, spatial = conv.filter_strides()
    taps = [
        Axis(
            axis_phase.taps,
            {"a": product([axis_phase.out_step, row]), "b": -axis_phase.kernel_step * step},
        )
        for axis_phase, row, step in zip(phase, rows, spatial, strict=True)
    ]
    return [*taps, Axis(conv.group_filters, {"a": 1, "b": filter})]
