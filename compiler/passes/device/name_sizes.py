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
    with different numbers may be equal at run time. Outputs of branches and loops, what these
    overwrite, and tensor arrays, are not changed.

    On a device every such size has a name; on a CPU those that kernels set, those of collectives,
    which exchange the rows of sparse gradients, and what is computed from them: other ops compute
    in NumPy.
    """

    name = "name_sizes"
    required = True

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Name the sizes of all ops on devices, of some ops on CPUs with native code."""
        return cls(everywhere=target.on_device) if target else None

    def __init__(self, everywhere: bool = True) -> None:
        self._everywhere = everywhere

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit the ops in order, so that inputs are numbered first."""
        self._count = 0
        for op in g.ops():
            outputs = [var for var in op.writes() if var.type.is_open and not var.type.is_array]
            if outputs and op.body is None:
                self._name_outputs(g, op)

    def _name_outputs(self, g: Graph, op: Op) -> None:
        inferred = infer_with_distinct_sizes(op) or {}
        makes_names = self._everywhere or op.defn.is_ordered() or op.defn.sets_output_sizes
        for slot, vars in op.outputs.items():
            types = [*listed(inferred.get(slot)), *(None for _ in vars)]
            for var, type in zip(vars, types, strict=False):
                is_alone = var.overwrites is None and g.overwriter(var) is None
                if not var.type.is_array and is_alone:
                    var.type = self._named_type(var.type, type or var.type, makes_names)

    def _named_type(
        self, declared: TensorType, inferred: TensorType, makes_names: bool
    ) -> TensorType:
        pairs = zip(declared.shape, inferred.shape, strict=True)
        return declared.with_shape([self._size(*pair, makes_names) for pair in pairs])

    def _size(self, declared: Size, inferred: Size, makes_name: bool) -> Size:
        """Return a named size; an unknown one remains so unless the op makes names."""
        if declared != UNKNOWN:
            return declared
        if inferred != UNKNOWN:
            return inferred
        if not makes_name:
            return UNKNOWN
        self._count += 1
        return Dim.named(f"?{self._count}")
