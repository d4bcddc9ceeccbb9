"""`strided_slice`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import Slots, attr_list, reads
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.math.axes import Sizes, int_values, normalize_axis, zeros_shaped
from compiler.ops.shape.slicing import Slicing, sizes_without
from compiler.ops.shared_kernels import among


def stride_range(size: int, start: int, end: int, stride: int) -> range:
    """Return the indices of a strided slice of an axis, with the reference's semantics.

    With a negative stride, an end of -1 is before the first index. A negative stride reverses the
    indices that the positive stride takes of the same range, so unlike in Python the step counts
    from the other end. Raises ValueError for an invalid or empty range.
    """
    first = start + size if start < 0 else start
    last = end + size if end < 0 and not (end == -1 and stride < 0) else end
    low, high = (first, last) if stride > 0 else (last + 1, first + 1)
    if stride == 0 or low >= high or low > size:
        raise ValueError(
            f"{start}:{end}:{stride} is empty or out of range for an axis of size {size}"
        )
    index_range = range(size)[max(0, low) : max(0, high) : abs(stride)]
    return index_range if stride > 0 else index_range[::-1]


def stride_index(
    sizes: Sizes,
    axes: list[int],
    starts: list[int],
    ends: list[int],
    strides: list[int],
    single: list[int],
) -> tuple[slice, ...]:
    """Return the index of strided slices; -1 to 0 is the last index of an axis in `single`."""
    index = [slice(None)] * len(sizes)
    for axis, start, end, stride in zip(axes, starts, ends, strides, strict=True):
        last = axis in single and (start, end) == (-1, 0)
        index_range = (
            range(sizes[axis])[-1:] if last else stride_range(sizes[axis], start, end, stride)
        )
        stop = index_range.stop if index_range.stop >= 0 else None
        taken = slice(index_range.start, stop, index_range.step)
        index[axis] = taken if len(index_range) else slice(0, 0)
    return tuple(index)


class StridedSlice(Slicing, op="strided_slice"):
    """Out = the slice `starts`:`ends`:`strides` of each of `axes`.

    A negative stride takes the same indices in reverse, and an end of -1 then includes the first
    index. `infer_flags` have no effect beside a tensor of all starts, ends or strides.
    Reference: strided_slice_op.h.
    """

    StridesTensor = reads(optional=True, no_grad=True)
    StridesTensorList = reads(optional=True, many=True, no_grad=True)
    strides = attr_list(int)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Input = s.Input
        listings = s.get("StartsTensor"), s.get("EndsTensor"), s.get("StridesTensor")
        starts = self.known("starts", listings[0], s.all("StartsTensorList"), self.starts)
        ends = self.known("ends", listings[1], s.all("EndsTensorList"), self.ends)
        strides = self.known("strides", listings[2], s.all("StridesTensorList"), self.strides)
        sizes, is_listed = list(Input.shape), any(listing is not None for listing in listings)
        for declared_axis, numbers in zip(
            self.axes, zip(starts, ends, strides, strict=True), strict=True
        ):
            axis = normalize_axis(self.kind, declared_axis, Input.rank, "axes: axis")
            sizes[axis] = UNKNOWN if is_listed else self.strided_length(Input, axis, numbers)
        return self.decreased(Input, sizes)

    def strided_length(self, Input: TensorType, axis: int, numbers: tuple[int | None, ...]) -> Size:
        """Return the number of indices taken along an axis; unknown if its size or a bound is."""
        start, end, stride = numbers
        size = Input.shape[axis]
        if start is None or end is None or stride is None or not isinstance(size, int):
            return UNKNOWN
        try:
            return len(stride_range(size, start, end, stride))
        except ValueError as error:
            raise ShapeError(f"{self.kind}: {error}: axis {axis} of Input {Input}") from None

    def numpy(
        self,
        Input: Array,
        StartsTensor: Array | None,
        EndsTensor: Array | None,
        StridesTensor: Array | None,
        StartsTensorList: list[Array] | None,
        EndsTensorList: list[Array] | None,
        StridesTensorList: list[Array] | None,
    ) -> Array:
        starts = int_values(StartsTensor, StartsTensorList, self.starts)
        ends = int_values(EndsTensor, EndsTensorList, self.ends)
        strides = int_values(StridesTensor, StridesTensorList, self.strides)
        taken = Input[
            stride_index(Input.shape, self.axes, starts, ends, strides, self.decrease_axis)
        ]
        return taken.reshape(sizes_without(taken.shape, self.decrease_axis))

    def grad(
        self,
        Input: Shape,
        StartsTensor: Array | None,
        EndsTensor: Array | None,
        StridesTensor: Array | None,
        StartsTensorList: list[Array] | None,
        EndsTensorList: list[Array] | None,
        StridesTensorList: list[Array] | None,
        d_Out: Array,
    ) -> dict[str, Array]:
        starts = int_values(StartsTensor, StartsTensorList, self.starts)
        ends = int_values(EndsTensor, EndsTensorList, self.ends)
        strides = int_values(StridesTensor, StridesTensorList, self.strides)
        d_Input = zeros_shaped(Input, d_Out)
        taken = d_Input[
            stride_index(d_Input.shape, self.axes, starts, ends, strides, self.decrease_axis)
        ]
        taken[...] = d_Out.reshape(taken.shape)
        return {"Input": d_Input}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Input = s.Input
        out, ranges = self.whole(s.Out, Input), self.ranges(Input.shape)
        indices = k.grid(*out.shape)
        pairs = zip(indices, ranges, strict=True)
        taken = [
            i if index_range is None else i * index_range.step + index_range.start
            for i, index_range in pairs
        ]
        k.store(out, indices, Input[tuple(taken)])

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_Input = s.d_Input
        own, upstream = k.grid(*d_Input.shape), self.whole(s.d_Out, d_Input)
        taken, in_range = among(k, own, self.ranges(d_Input.shape))
        k.store(d_Input, own, upstream.at(*taken, where=in_range, other=0))

    def host_only(self, types: Mapping[str, Any]) -> str:
        sizes = types["Input"].shape
        is_static = all(isinstance(sizes[axis], int) for axis in self.axes)
        return "" if is_static else "it slices an axis of symbolic size"

    def ranges(self, sizes: Shape) -> list[range | None]:
        """Return the indices taken along each axis; None for all of them."""
        numbers = self.starts, self.ends, self.strides
        ranges: list[range | None] = [None] * len(sizes)
        for axis, start, end, stride in zip(self.axes, *numbers, strict=True):
            last = axis in self.decrease_axis and (start, end) == (-1, 0)
            size = sizes[axis]
            if isinstance(size, int):
                ranges[axis] = range(size)[-1:] if last else stride_range(size, start, end, stride)
        return ranges
