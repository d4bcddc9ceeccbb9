"""`InferenceTranspiler`: folds the batch norms of a trained program into weights.

Release 1.8.5 has removed it. Its parts for one kernel library are not needed here, since compiled
code is fused anyway; the promised folding into fully connected layers is implemented.
"""

from __future__ import annotations

from compiler.ir.opdef.type_inference import op_text
from compiler.ir.program import OpRole
from compiler.support.dataclass import dataclass
from fluid.executor import global_scope
from fluid.framework import Program
from fluid.recording.checks import check_type
from fluid.transpiler.norm_fusion import Folded, fold_batch_norms
from fluid.transpiler.whole import whole
from runtime.device import CPUPlace, CUDAPlace, Place
from runtime.tensors.scope import Scope

__all__ = ["InferenceTranspiler", "FusionReport"]


@dataclass(frozen=True)
class FusionReport:
    """The outcome for every batch norm of a program, in order, with a readable `str`."""

    norms: tuple[Folded, ...] = ()

    @property
    def fused(self) -> list[Folded]:
        """The batch norms that were removed."""
        return [norm for norm in self.norms if norm.layer]

    @property
    def refused(self) -> list[Folded]:
        """The batch norms that remain, with the reason."""
        return [norm for norm in self.norms if norm.refusal]

    def __str__(self) -> str:
        head = f"{len(self.fused)} of {len(self.norms)} batch norms folded"
        return "\n".join([head, *map(str, self.norms)])


class InferenceTranspiler:
    """Rewrites programs for inference, in place: clone the program first to keep it for training.

    After a call, `report` lists what was fused and what was not, and why.
    """

    def __init__(self) -> None:
        self.report = FusionReport()

    def transpile(self, program: Program, place: Place, scope: Scope | None = None) -> None:
        """Set a program to inference mode and fold its batch norms; idempotent.

        Values are read from `scope`, by default the global one, and those of new parameters are
        set there, on `place`; the old ones remain, so that other programs still run.

        Raises TypeError for an invalid Program, CPUPlace or CUDAPlace, or Scope, in this order;
        ValueError for a training program; NotInitialized for parameters without a value in the
        scope. In these cases nothing is changed.
        """
        scope = _checked(program, place, scope, "transpile")
        with whole(program):
            _set_test_mode(program)
            self._fuse(program, place, scope)

    def fuse_batch_norm(self, program: Program, place: Place, scope: Scope | None = None) -> None:
        """Fold the batch norms that normalise with running statistics, see `transpile`."""
        scope = _checked(program, place, scope, "fuse_batch_norm")
        with whole(program):
            self._fuse(program, place, scope)

    def _fuse(self, program: Program, place: Place, scope: Scope) -> None:
        self.report = FusionReport(tuple(fold_batch_norms(program, place, scope)))


def _checked(program: Program, place: Place, scope: Scope | None, function: str) -> Scope:
    check_type(program, "program", Program, function)
    check_type(place, "place", (CPUPlace, CUDAPlace), function)
    check_type(scope, "scope", (Scope, type(None)), function)
    for op in (op for block in program.blocks for op in block.ops):
        if op.role & (OpRole.BACKWARD | OpRole.OPTIMIZE):
            raise ValueError(
                f"{function} is for inference, but the program trains: {op_text(op)} "
                f"({op.source}); give it program.clone(for_test=True)"
            )
    return global_scope() if scope is None else scope


def _set_test_mode(program: Program) -> None:
    for op in [op for block in program.blocks for op in block.ops]:
        if op.has_attr("is_test") and not op.attr("is_test"):
            op.set_attr("is_test", True)
