"""`InferenceTranspiler`: a trained program with its batch norms folded into weights (seed 002).

Release 1.8.5 has dropped it. Its parts for one library of kernels are not needed here, since what
is compiled is fused anyway; what it promised of fully connected layers and never did, it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from compiler.ir.opdef.type_inference import op_text
from compiler.ir.program import OpRole
from fluid.executor import global_scope
from fluid.framework import Program
from fluid.recording.checks import check_type
from fluid.transpiler.norm_fusion import Folded, NormFusion
from fluid.transpiler.whole import whole
from runtime.device import CPUPlace, CUDAPlace, Place
from runtime.tensors.scope import Scope

__all__ = ["InferenceTranspiler", "Report"]


@dataclass(frozen=True)
class Report:
    """What became of every batch norm of a program, in order; printed, it tells people."""

    norms: tuple[Folded, ...] = ()

    @property
    def fused(self) -> list[Folded]:
        """The norms that are gone."""
        return [each for each in self.norms if each.layer]

    @property
    def refused(self) -> list[Folded]:
        """The norms that stayed, with the reason."""
        return [each for each in self.norms if each.refusal]

    def __str__(self) -> str:
        head = f"{len(self.fused)} of {len(self.norms)} batch norms folded"
        return "\n".join([head, *map(str, self.norms)])


class InferenceTranspiler:
    """Rewrites programs for inference, in place: clone before, to keep the one for training.

    After a call, `report` tells what was fused and what was not, and why.
    """

    def __init__(self) -> None:
        self.report = Report()

    def transpile(self, program: Program, place: Place, scope: Scope | None = None) -> None:
        """Set a program to inference and fold its batch norms; doing it again changes nothing.

        Values are read from `scope`, the global one by default, and those of new parameters are
        set there, on `place`; the old ones stay, so that other programs still run.

        Raises TypeError for what is no Program, CPUPlace or CUDAPlace, or Scope, in this order;
        ValueError for a program that trains; NotInitialized for parameters that the scope does not
        have. Then nothing was changed.
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
        program._take_names_back()
        fusion = NormFusion(program, scope)
        norms = fusion.run()
        _remove_unused(program)
        for name, value in fusion.made.items():
            if program.global_block().has_var(name):
                scope.var(name).get_tensor().set(value, place)
        self.report = Report(tuple(norms))


def _checked(program: Any, place: Any, scope: Any, function: str) -> Scope:
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
            op._set_attr("is_test", True)


def _remove_unused(program: Program) -> None:
    """Take out the variables that no op touches and no reader gives."""
    used = {name for _, names in program._reads for name in names}
    for block in program.blocks:
        used |= {name for op in block.ops for name in (*op.reads(), *op.writes())}
    for block in program.blocks:
        block.vars = {name: var for name, var in block.vars.items() if name in used}
    program.touch()
