"""Names for data-dependent sizes, so that generated code can refer to them."""

from __future__ import annotations

from typing import Self

from compiler.ir.analysis.data_dependent_sizes import infer_with_distinct_sizes
from compiler.ir.dims import UNKNOWN, Dim, Size
from compiler.ir.graph import Graph, Op
from compiler.ir.opdef import listed
from compiler.ir.types import TensorType
from compiler.options import Options
from compiler.passes.base import Context, OpTarget, Pass


class NameSizes(Pass):
    """y: f32[?, 4] = f(x); z: f32[?, 4] = g(y)  =  y: f32[?1, 4] = f(x); z: f32[?1, 4] = g(y).

    A size gets a number at its first occurrence; sizes inferred from it have the same number. Sizes
    with different numbers may be equal at run time. Outputs of branches and loops, and tensor
    arrays, are not changed.
    """

    name = "name_sizes"
    required = True

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Run on devices only."""
        return cls() if target and target.on_device else None

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit the ops in order, so that inputs are numbered first."""
        self._count = 0
        for op in g.ops():
            outputs = [var for var in op.writes() if var.type.is_open and not var.type.is_array]
            if outputs and op.body is None:
                self._name_outputs(op)

    def _name_outputs(self, op: Op) -> None:
        inferred = infer_with_distinct_sizes(op) or {}
        for slot, vars in op.outputs.items():
            types = [*listed(inferred.get(slot)), *(None for _ in vars)]
            for var, type in zip(vars, types, strict=False):
                if not var.type.is_array and var.overwrites is None:
                    var.type = self._named_type(var.type, type or var.type)

    def _named_type(self, declared: TensorType, inferred: TensorType) -> TensorType:
        pairs = zip(declared.shape, inferred.shape, strict=True)
        return declared.with_shape([self._size(*pair) for pair in pairs])

    def _size(self, declared: Size, inferred: Size) -> Size:
        """Return a named size."""
        if declared != UNKNOWN:
            return declared
        if inferred != UNKNOWN:
            return inferred
        self._count += 1
        return Dim.named(f"?{self._count}")
