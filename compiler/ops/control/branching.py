"""Selection between two branches and merging, by whole value or by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, writes, writes_lod
from compiler.ir.program import OpDesc
from compiler.ir.types import Array, TensorType
from compiler.ops.control.rank_table import OFFSETS
from compiler.ops.sequence.lod_entries import behind, picked


class SelectInput(OpDef, op="select_input"):
    """Out = X[Mask]; the other inputs may be unset. Reference: select_input_op.cc."""

    uses_offsets = False
    no_kernel_reason = "the host executes control flow"

    X = reads(many=True)
    X_lod = reads_lod("X", optional=True)
    Mask = reads(no_grad=True)
    Out = writes()
    Out_lod = writes_lod("Out")

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        X = s.all("X")
        if _differ(X):
            listed = ", ".join(map(str, X))
            raise ShapeError(
                f"{self.kind}: the branches have {listed}, which differ in rank or dtype"
            )
        sizes = zip(*(tensor_type.shape for tensor_type in X), strict=True)
        shape = tuple(n[0] if all(size == n[0] for size in n) else UNKNOWN for n in sizes)
        return {"Out": X[0].with_shape(shape), "Out_lod": [OFFSETS] if s.all("X_lod") else []}

    def declared_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the first branch's type if the branches differ, as in the reference."""
        return {"Out": types["X"][0]} if _differ(types["X"]) else self.infer_types(types)

    def numpy(self, X: list[Any], X_lod: list[Array] | None, Mask: Array) -> dict[str, Any]:
        branch = int(Mask.item())
        return {"Out": X[branch], "Out_lod": [X_lod[branch]] if X_lod else []}

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        inputs = {"X": [grad(op.outputs["Out"][0])], "Mask": op.inputs["Mask"]}
        return [OpDesc("select_output", inputs, {"Out": list(map(grad, op.inputs["X"]))}, op.attrs)]


def _differ(branches: Sequence[TensorType]) -> bool:
    """Return whether types differ in rank or dtype."""
    return len({(branch.rank, branch.dtype) for branch in branches}) > 1


class SelectOutput(OpDef, op="select_output"):
    """Out[Mask] = X, the other output is zeros. Reference: select_output_op.cc."""

    no_kernel_reason = "the host executes control flow"

    X = reads()
    Mask = reads(no_grad=True)
    Out = writes(many=True)

    def infer(self, s: Slots[TensorType]) -> dict[str, list[TensorType]]:
        return {"Out": [s.X, s.X]}

    def declared_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return no types: gradients have the types of their variables, which may differ."""
        return {"Out": [None, None]}

    def numpy(self, X: Any, Mask: Array) -> dict[str, list[Any]]:
        zeros: Any = [] if hasattr(X, "append") else np.zeros_like(X)
        return {"Out": [zeros, X] if Mask.item() else [X, zeros]}

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        inputs = {"X": list(map(grad, op.outputs["Out"])), "Mask": op.inputs["Mask"]}
        return [OpDesc("select_input", inputs, {"Out": [grad(op.inputs["X"][0])]}, op.attrs)]


class SplitLodTensor(OpDef, op="split_lod_tensor"):
    """OutTrue and OutFalse = the entries of X where Mask is true, and where it is false.

    Entries are sequences at `level` of X's LoD, or rows. Reference: split_lod_tensor_op.cc.
    """

    no_kernel_reason = "the number of rows per branch is data-dependent"

    lod_source = ""

    X = reads()
    X_lod = reads_lod("X", optional=True)
    Mask = reads(no_grad=True)
    OutTrue = writes(optional=True)
    OutTrue_lod = writes_lod("OutTrue")
    OutFalse = writes(optional=True)
    OutFalse_lod = writes_lod("OutFalse")
    level = attr(0)

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        part = s.X.with_shape((UNKNOWN, *s.X.shape[1:]))
        levels = [OFFSETS] * len(s.all("X_lod")[self.level :])
        return {
            "OutTrue": part,
            "OutTrue_lod": levels,
            "OutFalse": part,
            "OutFalse_lod": levels,
        }

    def numpy(self, X: Array, X_lod: list[Array] | None, Mask: Array) -> dict[str, Any]:
        levels = (X_lod or [])[self.level :]
        OutTrue_lod, true_rows = picked(levels, np.flatnonzero(Mask))
        OutFalse_lod, false_rows = picked(levels, np.flatnonzero(~Mask))
        return {
            "OutTrue": X[true_rows],
            "OutTrue_lod": OutTrue_lod,
            "OutFalse": X[false_rows],
            "OutFalse_lod": OutFalse_lod,
        }

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        (X,), parts = op.inputs["X"], (op.outputs["OutTrue"], op.outputs["OutFalse"])
        in_true, in_false = ([grad(name) for name in names] for names in parts)
        inputs = {"X": [X], "Mask": op.inputs["Mask"], "InTrue": in_true, "InFalse": in_false}
        return [OpDesc("merge_lod_tensor", inputs, {"Out": [grad(X)]}, op.attrs)]


class MergeLodTensorInfer(OpDef, op="merge_lod_tensor_infer"):
    """`merge_lod_tensor` for inference programs."""

    no_kernel_reason = "the number of rows per branch is data-dependent"

    lod_source = ""

    X = reads(shape_only=True, no_grad=True)
    X_lod = reads_lod("X", optional=True)
    Mask = reads(no_grad=True)
    InTrue = reads()
    InTrue_lod = reads_lod("InTrue", optional=True)
    InFalse = reads()
    InFalse_lod = reads_lod("InFalse", optional=True)
    Out = writes()
    Out_lod = writes_lod("Out")
    level = attr(0)

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        InTrue_lod = s.all("InTrue_lod")
        rows = UNKNOWN if InTrue_lod else s.Mask.shape[0]
        inner = [OFFSETS] * len(InTrue_lod)
        Out_lod = [*s.all("X_lod")[: self.level], *inner]
        return {"Out": s.InTrue.with_shape((rows, *s.InTrue.shape[1:])), "Out_lod": Out_lod}

    def numpy(
        self,
        X_lod: list[Array] | None,
        Mask: Array,
        InTrue: Array,
        InTrue_lod: list[Array] | None,
        InFalse: Array,
        InFalse_lod: list[Array] | None,
    ) -> dict[str, Any]:
        require_entries(Mask, InTrue_lod[0][1:] if InTrue_lod else InTrue, "InTrue", True)
        require_entries(Mask, InFalse_lod[0][1:] if InFalse_lod else InFalse, "InFalse", False)
        both = behind(InTrue_lod or [], InFalse_lod or [])
        levels, rows = picked(both, merging_order(Mask.reshape(-1)))
        Out_lod = [*(X_lod or [])[: self.level], *levels]
        return {"Out": np.concatenate([InTrue, InFalse])[rows], "Out_lod": Out_lod}


class MergeLodTensor(MergeLodTensorInfer, op="merge_lod_tensor"):
    """Out = the entries of InTrue and InFalse interleaved in the order of Mask.

    X provides the LoD levels outside of `level`. Reference: merge_lod_tensor_op.cc.
    """

    no_kernel_reason = "the number of rows per branch is data-dependent"

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        inputs = {"X": [grad(op.outputs["Out"][0])], "Mask": op.inputs["Mask"]}
        outputs = {
            "OutTrue": [grad(name) for name in op.inputs["InTrue"]],
            "OutFalse": [grad(name) for name in op.inputs["InFalse"]],
        }
        return [OpDesc("split_lod_tensor", inputs, outputs, op.attrs)]


def require_entries(mask: Array, entries: Array, slot: str, kind: bool) -> None:
    """Raise ValueError unless a branch has as many entries as the mask selects for it."""
    wanted = int(np.count_nonzero(mask == kind))
    if len(entries) != wanted:
        raise ValueError(
            f"{slot} has {len(entries)} entries, but Mask is {kind} for {wanted} of {mask.size}"
        )


def merging_order(mask: Any) -> Array:
    """Return the index of each entry in the concatenation of all true entries and all false ones.

    >>> merging_order(np.array([False, True, False])).tolist()
    [1, 0, 2]
    """
    order = np.zeros(len(mask), np.int64)
    order[mask] = np.arange(mask.sum())
    order[~mask] = np.arange(mask.sum(), len(mask))
    return order
