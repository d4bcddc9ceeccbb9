"""Ops that reorder or select the rows of sequences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import OpDef, Slots, reads, reads_lod, required, writes, writes_lod
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.program import OpDesc
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.sequence.offsets import (
    count_of,
    offsets_after,
    require_one_level,
    require_rank,
    reshaped,
    reversed_rows,
    run_rows,
    zeros,
)
from compiler.ops.sequence.sequence_kernels import move_rows
from compiler.ops.shared_kernels import copy, fill, gather_slices
from compiler.ops.type_checks import differ, require_dtype, require_same_count, require_same_dtype


def interleaved_rows(lods: list[Array]) -> Array:
    """The rows of concatenated tensors, interleaved sequence by sequence."""
    ends = np.cumsum([offsets[-1] for offsets in lods])
    pairs = zip(ends, lods, strict=True)
    places = np.stack([end - offsets[-1] + offsets for end, offsets in pairs])
    return run_rows(places[:, :-1].T.reshape(-1), np.diff(places).T.reshape(-1))


def joined_places(lods: list[Array], index: int) -> Array:
    """The output indices of the rows of one of the tensors."""
    before = np.sum([np.diff(offsets) for offsets in lods[:index]], axis=0, dtype=np.int64)
    starts = np.sum(lods, axis=0)[:-1] + before
    return run_rows(starts, np.diff(lods[index]))


def joined_offsets(lods: list[Array]) -> Array:
    """The offsets of the joined sequences."""
    return np.sum(lods, axis=0)


class JoinOffsets(OpDef, op="join_offsets"):
    """Out = the offsets of concatenated tensors: a level of their LoD."""

    no_kernel_reason = "LoD offsets are on the host"

    X = reads(many=True, no_grad=True)
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.all("X")
        count = sum((tensor_type.shape[0] - 1 for tensor_type in X[1:]), start=X[0].shape[0])
        return X[0].with_shape((count,))

    def numpy(self, X: list[Array]) -> Array:
        lengths = np.concatenate([np.diff(offsets) for offsets in X])
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


class SequenceConcat(OpDef, op="sequence_concat"):
    """Out = the first sequences of all tensors in X, then the second ones, and so on.

    All have one LoD level and the same number of sequences. Reference: sequence_concat_op.h.
    """

    lod_source = ""
    derives_offsets = True

    X = reads(many=True)
    X_lod = reads_lod("X")
    Out = writes()
    Out_lod = writes_lod("Out")

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        X, X_lod = s.all("X"), s.all("X_lod")
        require_same_dtype("sequence_concat", **{f"X[{i}]": type for i, type in enumerate(X)})
        first = X[0]
        for index, (type, lod) in enumerate(zip(X, X_lod, strict=True)):
            sizes = zip(type.shape[1:], first.shape[1:], strict=False)
            if type.rank != first.rank or any(differ(a, b) for a, b in sizes):
                raise ShapeError(f"sequence_concat: X[{index}] is {type}, and X[0] {first}")
            if differ(lod.shape[0], X_lod[0].shape[0]):
                raise ShapeError(
                    f"sequence_concat: X[{index}] has {count_of(lod)} sequences, and X[0] "
                    f"{count_of(X_lod[0])}, expected as many"
                )
        rows: Size = 0
        for type in X:
            rows = rows + type.shape[0]
        return {"Out": first.with_shape((rows, *first.shape[1:])), "Out_lod": X_lod[:1]}

    def numpy(self, X: list[Array], X_lod: list[Array]) -> dict[str, object]:
        Out = np.concatenate(X).take(interleaved_rows(X_lod), axis=0)
        return {"Out": Out, "Out_lod": [joined_offsets(X_lod)]}

    def grad(self, X: list[Shape], X_lod: list[Array], d_Out: Array) -> dict[str, list[Array]]:
        d_all = np.empty_like(d_Out)
        d_all[interleaved_rows(X_lod)] = d_Out
        return {"X": np.split(d_all, np.cumsum([offsets[-1] for offsets in X_lod])[:-1])}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X_lod = s.host.all("X_lod")
        for index, part in enumerate(s.all("X")):
            move_rows(
                k, part, k.to_device(k.on_host(joined_places, X_lod, index), part.shape[:1]), s.Out
            )
        for level in s.host.all("Out_lod"):
            k.write_host(level, k.on_host(joined_offsets, X_lod))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        for index, part in enumerate(s.all("d_X")):
            places = k.to_device(
                k.on_host(joined_places, s.host.all("X_lod"), index), part.shape[:1]
            )
            gather_slices(k, s.d_Out, places, part, 0)


class SequenceReverse(OpDef, op="sequence_reverse"):
    """Y = X with each sequence reversed; one LoD level. Reference: sequence_reverse_op.h."""

    X = reads()
    X_lod = reads_lod("X")
    Y = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        require_one_level("sequence_reverse", "X", s.all("X_lod"))
        require_rank("sequence_reverse", "X", s.X, 2)
        return s.X

    def numpy(self, X: Array, X_lod: list[Array]) -> Array:
        return X.take(reversed_rows(X_lod[0]), axis=0)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        rows = k.to_device(k.on_host(reversed_rows, s.host.all("X_lod")[0]), s.X.shape[:1])
        gather_slices(k, s.X, rows, s.Y, 0)

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        d_Y, d_X = grad(op.outputs["Y"][0]), grad(op.inputs["X"][0])
        return [OpDesc("sequence_reverse", {"X": [d_Y]}, {"Y": [d_X]}, {})]


def sliced_rows(offsets: Array, first: Array, lengths: Array) -> Array:
    """The rows of a slice of each sequence; ValueError if it is out of range."""
    first, lengths = first.reshape(-1), lengths.reshape(-1)
    rest = np.diff(offsets) - np.maximum(first, 0)  # their sum could overflow
    wrong = (first < 0) | (lengths < 0) | (lengths > rest)
    if wrong.any():
        i = int(wrong.argmax())
        raise ValueError(
            f"sequence_slice: sequence {i} has {offsets[i + 1] - offsets[i]} rows, which Offset "
            f"{first[i]} and Length {lengths[i]} reach beyond"
        )
    return run_rows(offsets[:-1] + first, lengths)


class SequenceSlice(OpDef, op="sequence_slice"):
    """Out = Length[i] rows of each sequence i of X, starting at its row Offset[i].

    Offset and Length are integers [count, 1]; X has one LoD level.
    Reference: sequence_slice_op.h.
    """

    lod_source = ""
    sets_output_sizes = True

    X = reads()
    X_lod = reads_lod("X")
    Offset = reads(no_grad=True, on_host=True)
    Length = reads(no_grad=True, on_host=True)
    Out = writes()
    Out_lod = writes_lod("Out")

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        X_lod = s.all("X_lod")
        require_one_level("sequence_slice", "X", X_lod)
        for slot, type in (("Offset", s.Offset), ("Length", s.Length)):
            require_dtype("sequence_slice", slot, type, DType.INT32, DType.INT64)
            if type.rank < 1 or differ(type.shape[0], count_of(X_lod[0])):
                raise ShapeError(
                    f"sequence_slice: {slot} is {type}, expected a number for each of the "
                    f"{count_of(X_lod[0])} sequences"
                )
        return {"Out": s.X.with_shape((UNKNOWN, *s.X.shape[1:])), "Out_lod": [X_lod[0]]}

    def numpy(
        self, X: Array, X_lod: list[Array], Offset: Array, Length: Array
    ) -> dict[str, object]:
        rows = sliced_rows(X_lod[0], Offset, Length)
        return {"Out": X.take(rows, axis=0), "Out_lod": [offsets_after(Length)]}

    def grad(
        self, X: Shape, X_lod: list[Array], Offset: Array, Length: Array, d_Out: Array
    ) -> dict[str, Array]:
        d_X = zeros(X, d_Out)
        d_X[sliced_rows(X_lod[0], Offset, Length)] = d_Out
        return {"X": d_X}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Out = s.Out
        rows = k.on_host(sliced_rows, s.host.all("X_lod")[0], s.host.Offset, s.host.Length)
        k.set_size(Out.shape[0], rows.length())
        gather_slices(k, s.X, k.to_device(rows, Out.shape[:1]), Out, 0)
        for level in s.host.all("Out_lod"):
            k.write_host(level, k.on_host(offsets_after, s.host.Length))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        rows = k.to_device(
            k.on_host(sliced_rows, s.host.all("X_lod")[0], s.host.Offset, s.host.Length),
            s.d_Out.shape[:1],
        )
        fill(k, s.d_X, 0.0)
        move_rows(k, s.d_Out, rows, s.d_X)


def reshaped_offsets(offsets: Array, size: int, new_size: int) -> Array:
    """Offsets after a change of row size; ValueError if a sequence does not fill its last row."""
    numbers = offsets * size
    if (numbers % new_size).any():
        raise ValueError(
            f"sequence_reshape: sequences of {np.diff(numbers).tolist()} numbers do not fill rows "
            f"of {new_size}"
        )
    return numbers // new_size


class SequenceReshape(OpDef, op="sequence_reshape"):
    """Out [.., new_dim] = X [rows, size], each sequence reshaped to rows of `new_dim`.

    One LoD level, whose offsets change with the rows. Reference: sequence_reshape_op.h.
    """

    lod_source = ""
    derives_offsets = True

    X = reads()
    X_lod = reads_lod("X")
    Out = writes()
    Out_lod = writes_lod("Out")
    new_dim = required(int)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        X = s.X
        X_lod = s.all("X_lod")
        require_one_level("sequence_reshape", "X", X_lod)
        if X.rank != 2:
            raise ShapeError(f"sequence_reshape: X is {X}, expected [rows, size]")
        if self.new_dim < 1:
            raise BadAttribute(f"sequence_reshape: 'new_dim' is {self.new_dim}, not above 0")
        rows = X.numel // self.new_dim
        return {"Out": X.with_shape((rows, self.new_dim)), "Out_lod": [X_lod[0]]}

    def numpy(self, X: Array, X_lod: list[Array]) -> dict[str, object]:
        offsets = reshaped_offsets(X_lod[0], X.shape[1], self.new_dim)
        return {"Out": X.reshape(-1, self.new_dim), "Out_lod": [offsets]}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        require_same_count("sequence_reshape_grad", **{"X": s.X, "Out@GRAD": s.d_Out})
        return {"X": s.X}

    def grad(self, X: Shape, d_Out: Array) -> dict[str, Array]:
        return {"X": reshaped(d_Out, X)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        offsets = k.on_host(reshaped_offsets, s.host.all("X_lod")[0], s.X.shape[1], self.new_dim)
        for level in s.host.all("Out_lod"):
            k.write_host(level, offsets)
        copy(k, s.X, s.Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        copy(k, s.d_Out, s.d_X)
