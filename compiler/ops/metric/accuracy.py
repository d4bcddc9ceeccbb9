"""The share of rows whose label is among the first classes of a top-k."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, Slots, reads, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.type_checks import (
    require_dtype,
    require_same_shape,
)


class Accuracy(OpDef, op="accuracy"):
    """Accuracy = Correct / Total: the fraction of rows whose Label is among the row's Indices.

    Out and Indices are those of `top_k`; Label is [rows, 1]. Accuracy is float32, Correct and Total
    int32, each of shape [1]. Reference: accuracy_op.h.
    """

    Out = reads(shape_only=True)
    Indices = reads()
    Label = reads()
    Accuracy = writes(shares_level=True)
    Correct = writes()
    Total = writes()

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Indices = s.Indices
        require_dtype("accuracy", "Indices", Indices, DType.INT64)
        require_dtype("accuracy", "Label", s.Label, DType.INT64)
        rows = Indices.with_shape((*Indices.shape[:1], 1))
        require_same_shape("accuracy", rows=rows, Label=s.Label)
        if is_less(Indices.shape[-1], 1):
            raise ShapeError(f"accuracy: Indices is {Indices}, expected one or more for each row")
        count = TensorType(DType.INT32, (1,))
        return {"Accuracy": TensorType(DType.FP32, (1,)), "Correct": count, "Total": count}

    def numpy(self, Indices: Array, Label: Array) -> dict[str, Array]:
        correct = np.count_nonzero((Indices == Label).any(axis=1))
        return {
            "Accuracy": np.array([correct / len(Label)], np.float32),
            "Correct": np.array([correct], np.int32),
            "Total": np.array([len(Label)], np.int32),
        }

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Indices, Label = s.Indices, s.Label
        Accuracy, Correct, Total = s.get("Accuracy"), s.get("Correct"), s.get("Total")
        rows, hits = product(Label.shape), k.scratch(Indices.shape, DType.BOOL)
        k.line(f"np.equal({Indices}, {Label}, out={hits})")
        best = Indices.shape[-1] == 1
        count = f"np.count_nonzero({hits if best else f'np.any({hits}, axis=1)'})"
        if Accuracy is not None:
            k.line(f"{Accuracy}.fill({count} / ({rows}))")
        if Correct is not None:
            k.line(f"{Correct}.fill({count})")
        if Total is not None:
            k.line(f"{Total}.fill({rows})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Indices = s.Indices
        hits = k.scratch(Indices.shape[:1], DType.INT32)
        (row,) = k.grid(Indices.shape[0])
        r = k.loop(Indices.shape[1])
        hit = k.equal(Indices[row, r], s.Label[row, 0])
        k.store(hits, (row,), k.max(k.astype(hit, DType.INT32), r))
        (one,) = k.grid(1)
        r = k.loop(Indices.shape[0])
        count = k.sum(hits[r], r)
        rows = k.size(s.Label.type.numel)
        if (Accuracy := s.get("Accuracy")) is not None:
            k.store(Accuracy, (one,), k.astype(count, DType.FP32) / k.astype(rows, DType.FP32))
        if (Correct := s.get("Correct")) is not None:
            k.store(Correct, (one,), count)
        if (Total := s.get("Total")) is not None:
            k.store(Total, (one,), rows)
