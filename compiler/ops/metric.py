"""How good a model is, counted beside its training."""

from __future__ import annotations

import numpy as np

from compiler.ir.dims import product
from compiler.ir.kernel import Kernel, Operand
from compiler.ir.opdef import OpDef, reads, writes
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.checks import require_dtype, require_same_shape


class Accuracy(OpDef, op="accuracy"):
    """Accuracy = Correct / Total: the share of rows whose Label is among the row's Indices.

    Out and Indices are those of `top_k`; Label is [rows, 1]. Accuracy is float32, Correct and Total
    int32, each of shape [1]. Reference: accuracy_op.h.
    """

    Out = reads(shape_only=True)
    Indices = reads()
    Label = reads()
    Accuracy = writes()
    Correct = writes()
    Total = writes()

    def infer(self, Indices: TensorType, Label: TensorType) -> dict[str, TensorType]:
        require_dtype("accuracy", "Indices", Indices, DType.INT64)
        require_dtype("accuracy", "Label", Label, DType.INT64)
        rows = Indices.with_shape((*Indices.shape[:1], 1))
        require_same_shape("accuracy", rows=rows, Label=Label)
        count = TensorType(DType.INT32, (1,))
        return {"Accuracy": TensorType(DType.FP32, (1,)), "Correct": count, "Total": count}

    def numpy(self, Indices: Array, Label: Array) -> dict[str, Array]:
        correct = np.count_nonzero((Indices == Label).any(axis=1))
        return {
            "Accuracy": np.array([correct / len(Label)], np.float32),
            "Correct": np.array([correct], np.int32),
            "Total": np.array([len(Label)], np.int32),
        }

    def lower(
        self,
        k: Kernel,
        Indices: Operand,
        Label: Operand,
        Accuracy: Operand | None,
        Correct: Operand | None,
        Total: Operand | None,
    ) -> None:
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
