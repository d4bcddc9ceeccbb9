"""`slice`."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Dim, Size
from compiler.ir.opdef import OpDef, Share, Slots, Types, attr_list, reads, writes
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.opdef.layout_rules import Order, PermutedOp, permuted_axes
from compiler.ir.opdef.size_comparison import differs_from_slice, is_less
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.math.axes import (
    Sizes,
    drop_axes,
    int_values,
    normalize_axis,
    static_count,
    zeros_shaped,
)
from compiler.ops.shared_kernels import window

AXIS_END = 10_000_000
"""End of an axis as recorded for `x[1:]`; larger numbers mean the same."""


# ---- slice --------------------------------------------------------------------------------------


def slice_length(size: Size, start: int, end: int) -> Size:
    """Return the number of indices from `start` to `end`; negative ones count from the end.

    A symbolic size is assumed to be large enough for a non-empty slice, as it must be; the result
    is unknown if it still depends on the size.
    """
    if isinstance(size, int):
        return len(range(size)[start:end])
    if not size.known:
        return UNKNOWN
    if end - start == 1 or (start == -1 and end >= AXIS_END):
        return 1
    if start >= 0 and end >= AXIS_END:
        return size - start
    return size - start + end if start >= 0 > end else UNKNOWN


def is_short(size: Size, length: Size, start: int | None) -> bool:
    """Return whether a slice of an axis is known to be empty; one index must exist."""
    if isinstance(length, int) and isinstance(size, Dim) and start is not None:
        return is_less(size, start + 1 if start >= 0 else -start)
    return is_less(length, 1)


def slice_index(
    sizes: Sizes, axes: list[int], starts: list[int], ends: list[int], single: list[int]
) -> tuple[slice, ...]:
    """Return the index that slices some axes; raise ValueError for an empty slice.

    A slice from -1 to 0 of an axis in `single` is its last index: the end was computed as start +
    1.
    """
    index = [slice(None)] * len(sizes)
    for axis, start, end in zip(axes, starts, ends, strict=True):
        last = axis in single and (start, end) == (-1, 0)
        index[axis] = slice(start, None if last else end)
        if not range(sizes[axis])[index[axis]]:
            raise ValueError(f"slice: {start}:{end} of an axis of size {sizes[axis]} is empty")
    return tuple(index)


def sizes_without(sizes: Sizes, axes: list[int]) -> list[int]:
    """Return the sizes with the given axes removed; `[1]` if none remains."""
    removed = [axis % len(sizes) for axis in axes]
    return [size for axis, size in enumerate(sizes) if axis not in removed] or [1]


def int_values_text(
    k: SourceBuilder, listing: Operand | None, single: list[Operand], attribute: list[int]
) -> str:
    """Return source text for numbers in one tensor, in one tensor each, or in an attribute."""
    if listing is None and not single:
        return str(attribute)
    tensors = f"[{', '.join(map(str, single))}]" if single else "None"
    return f"{k.function(int_values)}({listing}, {tensors}, {attribute})"


class Slicing(OpDef):
    """The inputs of a slice: numbers as attributes, in one tensor, or in one tensor each."""

    computes_in_fp32 = False

    Input = reads()
    StartsTensor = reads(optional=True, no_grad=True)
    EndsTensor = reads(optional=True, no_grad=True)
    StartsTensorList = reads(optional=True, many=True, no_grad=True)
    EndsTensorList = reads(optional=True, many=True, no_grad=True)
    Out = writes()
    axes = attr_list(int)
    starts = attr_list(int)
    ends = attr_list(int)
    infer_flags = attr_list(int)
    decrease_axis = attr_list(int)

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        axes = {"axes": permuted_axes(self.axes, order)}
        return None if self.decrease_axis else PermutedOp(frozenset({"Input", "Out"}), axes)

    def known(
        self,
        name: str,
        listing: TensorType | None,
        single: list[TensorType],
        attribute: list[int],
    ) -> list[int | None]:
        """Return a number per entry of `axes`, None if it comes from a tensor.

        The attribute is valid nevertheless where `infer_flags` is 1. Raises BadAttribute unless
        there is one number per axis.
        """
        count = len(self.axes)
        actual = static_count(self.kind, name, listing) if listing else len(single or attribute)
        if actual != count:
            raise BadAttribute(
                f"{self.kind}: there are {actual} '{name}', expected one for each of {self.axes}"
            )
        if listing is None and not single:
            return list(attribute)
        sure = len(attribute) == len(self.infer_flags) == count
        flags = self.infer_flags if sure else [-1] * count
        return [attribute[i] if flag == 1 else None for i, flag in enumerate(flags)]

    def decreased(self, Input: TensorType, sizes: Sequence[Size]) -> TensorType:
        """Return the type without `decrease_axis`; raise ShapeError unless its sizes are 1."""
        removed = [
            normalize_axis(self.kind, a, Input.rank, "decrease_axis") for a in self.decrease_axis
        ]
        for axis in removed:
            if isinstance(sizes[axis], int) and sizes[axis] != 1:
                raise ShapeError(
                    f"{self.kind}: 'decrease_axis' holds {axis}, but axis {axis} of Input {Input} "
                    f"has {sizes[axis]} elements"
                )
        return Input.with_shape(drop_axes(sizes, removed))

    def whole(self, part: DeviceOperand, whole: DeviceOperand) -> DeviceOperand:
        """View a slice with the rank of the whole: removed axes have size 1."""
        removed = [axis % whole.type.rank for axis in self.decrease_axis]
        rest = iter(part.shape)
        return part.reshaped([1 if a in removed else next(rest) for a in range(whole.type.rank)])


class Slice(Slicing, op="slice"):
    """Out = the slice `starts`:`ends` of each of `axes`; negative indices count from the end.

    Out-of-range ends are clamped; an empty slice is an error. The axes in `decrease_axis`, of which
    one index is taken, are removed. Reference: slice_op.h.
    """

    linear_in = (("Input",),)
    is_cheap = True

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Input = s.Input
        starts = self.known("starts", s.get("StartsTensor"), s.all("StartsTensorList"), self.starts)
        ends = self.known("ends", s.get("EndsTensor"), s.all("EndsTensorList"), self.ends)
        sizes = list(Input.shape)
        for declared_axis, start, end in zip(self.axes, starts, ends, strict=True):
            axis = normalize_axis(self.kind, declared_axis, Input.rank, "axes: axis")
            if start is None or end is None:
                sizes[axis] = UNKNOWN
            else:
                sizes[axis] = self.length(Input, axis, start, end)
            if is_short(Input.shape[axis], sizes[axis], start):
                raise ShapeError(f"slice: {start}:{end} of axis {axis} of Input {Input} is empty")
        return self.decreased(Input, sizes)

    def length(self, Input: TensorType, axis: int, start: int, end: int) -> Size:
        """Return the length of a slice; 1 along an axis that is removed."""
        size = Input.shape[axis]
        length = slice_length(size, start, end)
        if length != UNKNOWN or axis not in {each % Input.rank for each in self.decrease_axis}:
            return length
        return 0 if differs_from_slice(1, size, start, end) else 1

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Input, d_Out = s.Input, s.d_Out
        fixed = not (
            s.get("StartsTensor")
            or s.get("EndsTensor")
            or s.all("StartsTensorList")
            or s.all("EndsTensorList")
        )
        bounds = zip(self.axes, self.starts, self.ends, strict=True) if fixed else ()
        if not self.decrease_axis and any(
            differs_from_slice(d_Out.shape[axis], Input.shape[axis], start, end)
            for axis, start, end in bounds
        ):
            raise ShapeError(f"slice_grad: Out@GRAD is {d_Out}, which is no such slice of {Input}")
        return {"Input": Input}

    def numpy(
        self,
        Input: Array,
        StartsTensor: Array | None,
        EndsTensor: Array | None,
        StartsTensorList: list[Array] | None,
        EndsTensorList: list[Array] | None,
    ) -> Array:
        starts = int_values(StartsTensor, StartsTensorList, self.starts)
        ends = int_values(EndsTensor, EndsTensorList, self.ends)
        taken = Input[slice_index(Input.shape, self.axes, starts, ends, self.decrease_axis)]
        return taken.reshape(sizes_without(taken.shape, self.decrease_axis))

    def grad(
        self,
        Input: Shape,
        StartsTensor: Array | None,
        EndsTensor: Array | None,
        StartsTensorList: list[Array] | None,
        EndsTensorList: list[Array] | None,
        d_Out: Array,
    ) -> dict[str, Array]:
        starts = int_values(StartsTensor, StartsTensorList, self.starts)
        ends = int_values(EndsTensor, EndsTensorList, self.ends)
        d_Input = zeros_shaped(Input, d_Out)
        taken = d_Input[slice_index(d_Input.shape, self.axes, starts, ends, self.decrease_axis)]
        taken[...] = d_Out.reshape(taken.shape)
        return {"Input": d_Input}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Input, Out = s.Input, s.Out
        starts = int_values_text(k, s.get("StartsTensor"), s.all("StartsTensorList"), self.starts)
        ends = int_values_text(k, s.get("EndsTensor"), s.all("EndsTensorList"), self.ends)
        share = self.share(Input.type)
        if share is None or not k.is_view_of(Out, Input, share):
            part = self.part(k, Input, starts, ends)
            k.line(f"np.copyto({self.whole_view(Out, Input)}, {part})")

    def shares(self, types: Types) -> list[Share]:
        """Return Out as a view of Input, if one axis is sliced at known indices."""
        share = None if len(types) > 2 else self.share(types["Input"][0])
        return [] if share is None else [share]

    def share(self, Input: TensorType) -> Share | None:
        """Return Out as a part of Input; None for slices of several axes or at unknown indices."""
        if len(self.axes) != 1 or len(self.starts) != 1 or len(self.ends) != 1:
            return None
        axis, start = self.axes[0] % Input.rank, self.starts[0]
        whole = Input.shape[axis]
        size = slice_length(whole, start, self.ends[0])
        first = start if start >= 0 else whole + start
        is_static = isinstance(size, int) or size.known
        return Share(("Input", 0), ("Out", 0), axis, first, size) if is_static else None

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        d_Out, d_Input = s.d_Out, s.d_Input
        starts = int_values_text(k, s.get("StartsTensor"), s.all("StartsTensorList"), self.starts)
        ends = int_values_text(k, s.get("EndsTensor"), s.all("EndsTensorList"), self.ends)
        part = self.part(k, d_Input, starts, ends)
        k.line(f"{d_Input}.fill(0)")
        k.line(f"np.copyto({part}, {self.whole_view(d_Out, d_Input)})")

    def part(self, k: SourceBuilder, whole: Operand, starts: str, ends: str) -> str:
        """Return source text for the slice, bound once if the indices are attributes."""
        indices = f"{self.axes}, {starts}, {ends}, {self.decrease_axis}"
        part = f"{whole}[{k.function(slice_index)}({whole}.shape, {indices})]"
        fixed = starts == str(self.starts) and ends == str(self.ends)
        return k.at_bind(part, [whole], "part") if fixed else part

    def whole_view(self, part: Operand, whole: Operand) -> str:
        """Return a view of a slice with the rank of the whole: removed axes have size 1."""
        removed = [axis % whole.type.rank for axis in self.decrease_axis]
        rest = iter(part.shape)
        return part.view([1 if a in removed else next(rest) for a in range(whole.type.rank)])

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Input = s.Input
        window(k, Input, self.whole(s.Out, Input), self.first(Input.shape))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_Input = s.d_Input
        first = [0 - offset for offset in self.first(d_Input.shape)]
        window(k, self.whole(s.d_Out, d_Input), d_Input, first)

    def first(self, sizes: Shape) -> list[Size]:
        """Return the first index of the slice along each axis."""
        indices: list[Size] = [0] * len(sizes)
        for axis, start in zip(self.axes, self.starts, strict=True):
            size = sizes[axis]
            indices[axis] = range(size)[start:].start if isinstance(size, int) else start
            if start < 0 and not isinstance(size, int):
                indices[axis] = size + start
        return indices
