"""Ops that convert between packed (LoD) and padded sequences."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, required, writes, writes_lod
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.sequence.offsets import (
    count_of,
    offsets_after,
    offsets_of,
    require_one_level,
    require_rank,
    run_rows,
    zeros,
)
from compiler.ops.sequence.sequence_kernels import bounds, lod_on_device, table_of
from compiler.ops.shared_kernels import gather_slices
from compiler.ops.type_checks import (
    differ,
    require_dtype,
    require_same_dtype,
    require_same_shape,
    shown,
)
from compiler.support.free_memory import expect_memory


def padded_rows(lengths: Array, width: int) -> Array:
    """The padded row of each packed row, with sequences padded to `width` rows."""
    return run_rows(np.arange(len(lengths)) * width, lengths)


def padded_width(offsets: Array, wanted: int) -> int:
    """The requested width, or for -1 the longest length; ValueError if a sequence is longer."""
    longest = int(np.diff(offsets).max(initial=0))
    if wanted != -1 and longest > wanted:
        raise ValueError(
            f"sequence_pad: a sequence has {longest} rows, and 'padded_length' is {wanted}"
        )
    return longest if wanted == -1 else wanted


def padded_places(offsets: Array, width: int) -> Array:
    """The index of each packed row in the padded tensor, with `width` rows per sequence.

    Raises ValueError for a longer sequence.
    """
    expect_width(offsets, width)
    return padded_rows(np.diff(offsets), width)


def expect_width(offsets: Array, width: int) -> None:
    """Raise ValueError if a sequence has more rows than a padded one."""
    longest = int(np.diff(offsets).max(initial=0))
    if longest > width:
        raise ValueError(f"a sequence has {longest} rows, expected at most {width}")


def lengths_of(offsets: Array) -> Array:
    """The lengths of sequences."""
    return np.diff(offsets)


class SequencePad(OpDef, op="sequence_pad"):
    """Out [count, length, …] = the sequences of X, padded with PadValue; Length [count].

    `padded_length` -1 is the longest length. PadValue is one number, or has the shape of a
    row. X has one LoD level. Reference: sequence_pad_op.h.
    """

    lod_source = ""
    sets_output_sizes = True

    X = reads()
    X_lod = reads_lod("X")
    PadValue = reads(no_grad=True)
    Out = writes()
    Length = writes(on_host=True)
    padded_length = attr(-1)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X, PadValue = s.X, s.PadValue
        X_lod = s.all("X_lod")
        require_one_level("sequence_pad", "X", X_lod)
        require_rank("sequence_pad", "X", X, 2)
        require_same_dtype("sequence_pad", X=X, PadValue=PadValue)
        if PadValue.numel != 1 and self.misfits(PadValue.shape, X.shape[1:]):
            raise ShapeError(
                f"sequence_pad: {shown(X=X, PadValue=PadValue)} do not go together, expected one "
                "number or the shape of a row"
            )
        count = count_of(X_lod[0])
        length: Size = UNKNOWN if self.padded_length == -1 else self.padded_length
        Length = TensorType(DType.INT64, (count,))
        return {"Out": X.with_shape((count, length, *X.shape[1:])), "Length": Length}

    def misfits(self, padding: Shape, row: Shape) -> bool:
        """True if a padding value does not have the shape of a row."""
        pairs = zip(padding, row, strict=False)
        return len(padding) != len(row) or any(differ(a, b) for a, b in pairs)

    def numpy(self, X: Array, X_lod: list[Array], PadValue: Array) -> dict[str, Array]:
        lengths = lengths_of(X_lod[0])
        width = padded_width(X_lod[0], self.padded_length)
        expect_memory((len(lengths), width, *X.shape[1:]), X.itemsize)
        filled = np.empty((len(lengths) * width, *X.shape[1:]), X.dtype)
        filled[:] = PadValue.reshape(X.shape[1:]) if PadValue.size > 1 else PadValue.reshape(())
        filled[padded_rows(lengths, width)] = X
        return {"Out": filled.reshape(len(lengths), width, *X.shape[1:]), "Length": lengths}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        padded = X.with_shape((s.all("X_lod")[0].shape[0] - 1, UNKNOWN, *X.shape[1:]))
        require_same_shape("sequence_pad_grad", **{"Out@GRAD": s.d_Out, "X padded": padded})
        return {"X": X}

    def grad(self, X: Shape, X_lod: list[Array], d_Out: Array) -> dict[str, Array]:
        rows = d_Out.reshape(-1, *d_Out.shape[2:])
        return {"X": rows.take(padded_places(X_lod[0], d_Out.shape[1]), axis=0)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, PadValue, Out = s.X, s.PadValue, s.Out
        level = s.host.all("X_lod")[0]
        k.set_size(Out.shape[1], k.on_host(padded_width, level, self.padded_length))
        if (Length := s.host.get("Length")) is not None:
            k.write_host(Length, k.on_host(lengths_of, level))
        offsets, table = lod_on_device(k, level, X.shape[0]), table_of(X)
        count, width = Out.shape[:2]
        i, t, j = k.grid(count, width, table[1])
        start, end = bounds(offsets, i)
        padding = PadValue.reshaped((PadValue.type.numel,))[0 if PadValue.type.numel == 1 else j]
        value = X.reshaped(table).at(start + t, j, where=t < end - start, other=0)
        value = k.where(t < end - start, value, padding)
        k.store(Out.reshaped((count, width, table[1])), (i, t, j), value)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_Out = s.d_Out
        places = k.to_device(
            k.on_host(padded_places, s.host.all("X_lod")[0], d_Out.shape[1]), s.d_X.shape[:1]
        )
        rows = d_Out.reshaped((d_Out.shape[0] * d_Out.shape[1], *d_Out.shape[2:]))
        gather_slices(k, rows, places, s.d_X, 0)


def checked_lengths(lengths: Array, width: int) -> Array:
    """Lengths as [count]; ValueError if one is negative or exceeds the padded width."""
    flat = lengths.reshape(-1)
    wrong = (flat < 0) | (flat > width)
    if wrong.any():
        raise ValueError(
            f"sequence_unpad: Length of sequence {int(wrong.argmax())} is {flat[wrong][0]}, and X "
            f"has {width} rows for each"
        )
    return flat


def filled_places(lengths: Array, width: int) -> Array:
    """The indices of valid rows, in sequences padded to `width` rows."""
    return padded_rows(checked_lengths(lengths, width), width)


class SequenceUnpad(OpDef, op="sequence_unpad"):
    """Out = the first Length[i] rows of each X[i], concatenated, as LoD sequences.

    X is [count, length, …], Length int64 [count]; rows of X [count, length] become [1].
    Reference: sequence_unpad_op.h.
    """

    lod_source = ""
    sets_output_sizes = True

    X = reads()
    Length = reads(no_grad=True, on_host=True)
    Out = writes()
    Out_lod = writes_lod("Out")

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        X, Length = s.X, s.Length
        require_rank("sequence_unpad", "X", X, 2)
        require_dtype("sequence_unpad", "Length", Length, DType.INT64)
        if differ(X.shape[0], Length.numel):
            raise ShapeError(
                f"sequence_unpad: {shown(X=X, Length=Length)} do not go together, expected a "
                "length for each sequence"
            )
        row = X.shape[2:] or (1,)
        return {"Out": X.with_shape((UNKNOWN, *row)), "Out_lod": [offsets_of(X.shape[0])]}

    def numpy(self, X: Array, Length: Array) -> dict[str, object]:
        rows = X.reshape(X.shape[0] * X.shape[1], *(X.shape[2:] or (1,)))
        Out = rows.take(filled_places(Length, X.shape[1]), axis=0)
        return {"Out": Out, "Out_lod": [offsets_after(Length)]}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        row = X.shape[2:] or (1,)
        packed = X.with_shape((UNKNOWN, *row))
        require_same_shape("sequence_unpad_grad", **{"Out@GRAD": s.d_Out, "rows of X": packed})
        require_same_shape(
            "sequence_unpad_grad",
            Out_lod=s.all("Out_lod")[0],
            **{"one of X more": offsets_of(X.shape[0])},
        )
        return {"X": X}

    def grad(self, X: Shape, Out_lod: list[Array], d_Out: Array) -> dict[str, Array]:
        d_X = zeros(X, d_Out)
        rows = d_X.reshape(d_X.shape[0] * d_X.shape[1], *d_Out.shape[1:])
        rows[padded_places(Out_lod[0], d_X.shape[1])] = d_Out
        return {"X": d_X}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Out = s.X, s.Out
        places = k.on_host(filled_places, s.host.Length, X.shape[1])
        k.set_size(Out.shape[0], places.length())
        rows = X.reshaped((X.shape[0] * X.shape[1], *Out.shape[1:]))
        gather_slices(k, rows, k.to_device(places, Out.shape[:1]), Out, 0)
        for level in s.host.all("Out_lod"):
            k.write_host(level, k.on_host(offsets_after, s.host.Length))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_Out = s.d_Out
        Out_lod = s.host.all("Out_lod")
        (count, width), table = s.d_X.shape[:2], table_of(d_Out)
        k.on_host(expect_width, Out_lod[0], width)
        offsets = lod_on_device(k, Out_lod[0], d_Out.shape[0])
        i, t, j = k.grid(count, width, table[1])
        start, end = bounds(offsets, i)
        above = d_Out.reshaped(table).at(start + t, j, where=t < end - start, other=0)
        k.store(s.d_X.reshaped((count, width, table[1])), (i, t, j), above)


def numpy_name(code: int) -> str:
    """NumPy's name of the element type with this code.

    >>> all(numpy_name(each.code) == each.numpy.name for each in DType if each.code >= 0)
    True
    """
    names = {0: "bool", 1: "int16", 2: "int32", 3: "int64", 4: "float16", 5: "float32"}
    return {**names, 6: "float64", 20: "uint8", 21: "int8", 22: "bfloat16"}[code]


def mask_width(lengths: Array, given: Array | None, most: int) -> int:
    """The number of columns of `sequence_mask`."""
    places = most if given is None else int(given.reshape(-1)[0])
    return int(lengths.max(initial=0)) if places < 0 else places


class SequenceMask(OpDef, op="sequence_mask"):
    """Y[…, j] = 1 where j < X[…], else 0, for j < `maxlen`, in the element type `out_dtype`.

    MaxLenTensor takes precedence over `maxlen`, and a negative one means max(X).
    Reference: sequence_mask_op.h.
    """

    lod_source = ""
    sets_output_sizes = True

    X = reads(no_grad=True, on_host=True)
    MaxLenTensor = reads(optional=True, no_grad=True, on_host=True)
    Y = writes()
    maxlen = attr(-1)
    out_dtype = required(int)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        MaxLenTensor = s.get("MaxLenTensor")
        require_dtype("sequence_mask", "X", s.X, DType.INT32, DType.INT64, DType.FP32, DType.FP64)
        if MaxLenTensor is not None:
            require_dtype("sequence_mask", "MaxLenTensor", MaxLenTensor, DType.INT32, DType.INT64)
        elif self.maxlen == 0:
            raise BadAttribute("sequence_mask: 'maxlen' is 0, expected at least 1, or -1")
        unknown = MaxLenTensor is not None or self.maxlen < 0
        places: Size = UNKNOWN if unknown else self.maxlen
        return TensorType(DType.of(self.out_dtype), (*s.X.shape, places))

    def numpy(self, X: Array, MaxLenTensor: Array | None) -> Array:
        places = mask_width(X, MaxLenTensor, self.maxlen)
        expect_memory((*X.shape, places), 1 + np.dtype(numpy_name(self.out_dtype)).itemsize)
        return (np.arange(places) < X[..., None]).astype(numpy_name(self.out_dtype))

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Y = s.host.X, s.Y
        k.set_size(Y.shape[-1], k.on_host(mask_width, X, s.host.get("MaxLenTensor"), self.maxlen))
        lengths = k.to_device(X, X.shape, X.type.dtype)
        *i, j = k.grid(*Y.shape)
        k.store(Y, (*i, j), k.where(j < lengths[tuple(i)], 1, 0))
