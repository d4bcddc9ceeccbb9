"""Concat and split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import OpDef, Share, Slots, Types, attr, attr_list, reads, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.opdef.layout_rules import AlongAxis
from compiler.ir.program import OpDesc
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.math.axes import (
    Sizes,
    int_values,
    normalize_axis,
    slice_index_text,
    unknown_shape,
)
from compiler.ops.shape.concat_kernels import concat_parts, split_parts
from compiler.ops.type_checks import differ, expect_few_outputs, require_same_dtype


def named_slots(types: Sequence[TensorType]) -> dict[str, TensorType]:
    """Return the tensors of slot X keyed by their names in messages."""
    return {f"X[{index}]": tensor_type for index, tensor_type in enumerate(types)}


def common_shape(op: str, types: Sequence[TensorType], apart: int | None = None) -> list[Size]:
    """Return the common shape of tensors, ignoring axis `apart`; known sizes replace unknown ones.

    Raises ShapeError if they differ.
    """
    require_same_dtype(op, **named_slots(types))
    first, sizes = types[0], list(types[0].shape)
    for index, other in enumerate(types):
        pairs = [p for a, p in enumerate(zip(sizes, other.shape, strict=False)) if a != apart]
        if other.rank != first.rank or any(differ(a, b) for a, b in pairs):
            raise ShapeError(f"{op}: X[0] is {first} and X[{index}] {other}: their shapes differ")
        sizes = [b if isinstance(b, int) else a for a, b in zip(sizes, other.shape, strict=True)]
    return sizes


def shares_along(whole: str, part: str, sizes: Sequence[Size], axis: int) -> list[Share]:
    """Return the shares of parts of these sizes, consecutive along an axis of a whole."""
    starts = list(accumulate(sizes, initial=0))
    return [Share((whole, 0), (part, i), axis, starts[i], size) for i, size in enumerate(sizes)]


def copy_part(k: SourceBuilder, part: Operand, whole: Operand, share: Share) -> None:
    """Emit a copy of a part of a whole, unless the part is a view of it."""
    if share.size is not None and not k.is_view_of(part, whole, share):
        piece = k.at_bind(f"{whole}{_slice_text(share, share.size)}", [whole], "piece")
        k.line(f"np.copyto({part}, {piece})")


def _slice_text(share: Share, size: Size) -> str:
    """Return index source text that slices out a part."""
    return slice_index_text(share.axis, f"{share.start}:{share.start + size}")


def end_offsets(shapes: Sequence[Sizes], axis: int) -> list[int]:
    """Return the end offset of each of several tensors concatenated along an axis."""
    return [sum(sizes[axis] for sizes in shapes[: i + 1]) for i in range(len(shapes))]


class Concat(AlongAxis, OpDef, op="concat"):
    """Out = the tensors of X concatenated along `axis`, or along the axis in AxisTensor.

    Reference: concat_op.cc.
    """

    is_cheap = True

    X = reads(many=True)
    AxisTensor = reads(optional=True, no_grad=True)
    Out = writes()
    axis = attr(0)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.all("X")
        if s.get("AxisTensor") is not None:
            require_same_dtype(self.kind, **named_slots(X))
            return X[0].with_shape(unknown_shape(X[0].rank))
        axis = normalize_axis(self.kind, self.axis, X[0].rank)
        sizes = common_shape(self.kind, X, axis)
        sizes[axis] = sum(
            (tensor_type.shape[axis] for tensor_type in X[1:]), start=X[0].shape[axis]
        )
        return X[0].with_shape(sizes)

    def concatenates_rows(self, ranks: Mapping[str, int]) -> bool:
        return "AxisTensor" not in ranks and self.axis in (0, -ranks["X"])

    def numpy(self, X: list[Array], AxisTensor: Array | None) -> Array:
        return np.concatenate(X, axis=int_values(AxisTensor, None, [self.axis])[0])

    def grad(
        self, X: list[Shape], AxisTensor: Array | None, d_Out: Array
    ) -> dict[str, list[Array]]:
        axis = int_values(AxisTensor, None, [self.axis])[0]
        return {"X": np.split(d_Out, end_offsets(X, axis)[:-1], axis=axis)}

    def supports_strided_rows(self, slot: str, axes: int) -> bool:
        """Return true for X and Out: tensors are copied whole or not at all."""
        return slot in ("X", "Out")

    def shares(self, types: Types) -> list[Share]:
        """Return each tensor as a view of a part of Out."""
        return self.parts("Out", types, types["Out"])

    def shares_grad(self, types: Types) -> list[Share]:
        """Return each gradient as a view of a part of Out's."""
        return self.parts("Out@GRAD", types, types["Out@GRAD"])

    def parts(self, whole: str, types: Types, outer: Sequence[TensorType]) -> list[Share]:
        """Return the parts of Out or of its gradient, if the axis is known."""
        if "AxisTensor" in types:
            return []
        axis = self.axis % outer[0].rank
        part = whole.replace("Out", "X")
        return shares_along(
            whole, part, [tensor_type.shape[axis] for tensor_type in types["X"]], axis
        )

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Out = s.Out
        X = s.all("X")
        axis = self.axis % Out.type.rank
        shares = shares_along("Out", "X", [operand.shape[axis] for operand in X], axis)
        copied = [not k.is_view_of(part, Out, share) for part, share in zip(X, shares, strict=True)]
        if all(copied):
            parts = k.at_bind(f"({', '.join(map(str, X))},)", X, "parts")
            k.line(f"np.concatenate({parts}, axis={self.axis}, out={Out})")
            return
        for part, share, needed in zip(X, shares, copied, strict=True):
            if needed:
                target = k.at_bind(f"{Out}{_slice_text(share, part.shape[axis])}", [Out], "place")
                k.line(f"np.copyto({target}, {part})")

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        d_Out = s.d_Out
        X, AxisTensor, d_X = s.all("X"), s.get("AxisTensor"), s.all("d_X")
        if AxisTensor is not None:
            shapes = ", ".join(f"({', '.join(map(str, operand.shape))},)" for operand in X)
            arguments = f"{d_Out}, [{shapes}], {AxisTensor}, [{', '.join(map(str, d_X))}]"
            k.line(f"{k.function(copy_parts)}({arguments})")
            return
        axis = self.axis % d_Out.type.rank
        shares = shares_along("Out", "X", [operand.shape[axis] for operand in X], axis)
        for part, share in zip(d_X, shares, strict=True):
            copy_part(k, part, d_Out, share)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        concat_parts(k, s.all("X"), s.Out, self.axis % s.Out.type.rank)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        split_parts(k, s.d_Out, s.all("d_X"), self.axis % s.d_Out.type.rank)


def copy_parts(d_Out: Array, shapes: list[Sizes], AxisTensor: Array, parts: list[Array]) -> None:
    """Copy the parts of a concatenated gradient, for an axis given by a tensor."""
    axis = int(AxisTensor.reshape(-1)[0])
    pieces = np.split(d_Out, end_offsets(shapes, axis)[:-1], axis=axis)
    for part, piece in zip(parts, pieces, strict=True):
        np.copyto(part, piece)


def section_sizes(size: int, num: int, sections: list[int]) -> list[int]:
    """Return the sizes of `num` equal parts, or `sections` with a -1 resolved."""
    specified = sum(section for section in sections if section >= 0)
    parts = [section if section >= 0 else size - specified for section in sections]
    parts = [size // num] * num if num else parts
    if sum(parts) != size or (parts and min(parts) < 0):
        raise ValueError(f"split: an axis of size {size} cannot be split into {parts}")
    return parts


class Split(AlongAxis, OpDef, op="split"):
    """Out = parts of X along `axis`: `num` equal ones, or one per entry of `sections`.

    One section may be -1 and takes the remainder. The axis may come from AxisTensor, the sections
    from one tensor each. Reference: split_op.cc.
    """

    is_cheap = True

    X = reads()
    AxisTensor = reads(optional=True, no_grad=True)
    SectionsTensorList = reads(optional=True, many=True, no_grad=True)
    Out = writes(many=True)
    num = attr(0)
    sections = attr_list(int)
    axis = attr(0)

    def infer(self, s: Slots[TensorType]) -> dict[str, list[TensorType]]:
        X = s.X
        SectionsTensorList = s.all("SectionsTensorList")
        count = self.num or len(self.sections)
        if count < 1 or (self.sections.count(-1) > 1 and not SectionsTensorList):
            raise BadAttribute(f"split: 'num' is {self.num} and 'sections' {self.sections}")
        expect_few_outputs(self.kind, count)
        if s.get("AxisTensor") is not None:
            return {"Out": [X.with_shape(unknown_shape(X.rank))] * count}
        axis = normalize_axis(self.kind, self.axis, X.rank)
        sizes = self.sizes(X, axis, bool(SectionsTensorList))
        return {"Out": [X.with_shape((*X.shape[:axis], n, *X.shape[axis + 1 :])) for n in sizes]}

    def sizes(self, X: TensorType, axis: int, from_tensors: bool) -> list[Size]:
        """Return the size of each part along the axis; unknown if data-dependent."""
        whole = X.shape[axis]
        if from_tensors and not self.num:
            return [size if size >= 0 else UNKNOWN for size in self.sections]
        if isinstance(whole, int):
            try:
                return list(section_sizes(whole, self.num, self.sections))
            except ValueError as error:
                raise ShapeError(f"{error}: X is {X}, axis {axis}") from None
        if self.num:
            part = whole // self.num
            return [part if part * self.num == whole else UNKNOWN] * self.num
        specified = sum(size for size in self.sections if size >= 0)
        return [size if size >= 0 else whole - specified for size in self.sections]

    def numpy(
        self, X: Array, AxisTensor: Array | None, SectionsTensorList: list[Array] | None
    ) -> dict[str, list[Array]]:
        axis = int_values(AxisTensor, None, [self.axis])[0]
        sections = int_values(None, SectionsTensorList, self.sections)
        ends = np.cumsum(section_sizes(X.shape[axis], self.num, sections))
        return {"Out": np.split(X, ends[:-1], axis=axis)}

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        inputs = {"X": [grad(name) for name in op.outputs["Out"]]}
        inputs |= {"AxisTensor": op.inputs["AxisTensor"]} if op.inputs.get("AxisTensor") else {}
        outputs = {"Out": [grad(op.inputs["X"][0])]}
        return [OpDesc("concat", inputs, outputs, {"axis": self.axis})]

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X = s.X
        axis = self.axis % X.type.rank
        sizes = self.sizes(X.type, axis, False)
        if not isinstance(X.shape[axis], int):
            total = sum(sizes[1:], start=sizes[0])
            k.line(f"{k.function(check_sections)}({X.shape[axis]}, {total})")
        for part, share in zip(s.all("Out"), shares_along("X", "Out", sizes, axis), strict=True):
            copy_part(k, part, X, share)

    def supports_strided_rows(self, slot: str, axes: int) -> bool:
        """Return true for X and Out: tensors are copied whole or not at all."""
        return slot in ("X", "Out")

    def shares(self, types: Types) -> list[Share]:
        """Return each part as a view of X, if its size is known."""
        if "AxisTensor" in types:
            return []
        axis = self.axis % types["X"][0].rank
        sizes = self.sizes(types["X"][0], axis, "SectionsTensorList" in types)
        return shares_along("X", "Out", sizes, axis)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        split_parts(k, s.X, s.all("Out"), self.axis % s.X.type.rank)


def check_sections(size: int, total: int) -> None:
    """Raise ValueError unless the parts add up to the axis size."""
    if size != total:
        raise ValueError(f"split: an axis of size {size} differs from the sum {total} of its parts")


# ---- a new axis ---------------------------------------------------------------------------------
