"""Folding of batch norms into the preceding layers: new parameters, fewer ops.

The new parameters are called `<old>_fuse_bn`. Nothing is changed before all values are known, and
values are stored in the scope when all ops are rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from itertools import count

import numpy as np

from compiler.ir.conversion.reused_names import slots_renamed
from compiler.ir.opdef.type_inference import op_text
from compiler.ir.types import Array
from compiler.passes.norm_folding import VECTORS, WEIGHTS, factor_and_shift
from compiler.support.dataclass import dataclass
from fluid.framework import Operator, Program
from fluid.transpiler.flow import DELETE, inner_blocks, reads
from fluid.transpiler.norm_matches import Match, match_norm, norms
from fluid.transpiler.units import called_names, is_temporary
from runtime.device import Place
from runtime.errors import NotInitialized
from runtime.tensors.scope import Scope

__all__ = ["Folded", "NormFusion", "fold_batch_norms"]

SUFFIX = "_fuse_bn"


@dataclass(frozen=True)
class Folded:
    """The outcome for one batch norm: folded into `layer`, or not, with `refusal` as the reason.

    `norm` has its names, `layer` the layer's type and weights, `source` the user's line.
    """

    norm: str
    source: str
    layer: str = ""
    refusal: str = ""

    def __str__(self) -> str:
        outcome = f"folded into {self.layer}" if self.layer else f"not folded: {self.refusal}"
        return f"{self.norm}  {self.source}\n  {outcome}"


@dataclass
class NormFusion:
    """One fusion of all norms of a program; `made` has the values of its new parameters."""

    program: Program
    scope: Scope
    made: dict[str, Array] = field(default_factory=dict[str, Array])

    def run(self) -> list[Folded]:
        """Fold all foldable norms, in order, so that of two consecutive norms the first is folded
        first.
        """
        results: list[Folded] = []
        folded: list[str] = []
        for block, norm in norms(self.program):
            match = match_norm(self.program, block, norm)
            described = f"{norm.type}({norm.inputs['X'][0]}) -> {norm.outputs['Y'][0]}", norm.source
            if isinstance(match, str):
                results.append(Folded(*described, refusal=match))
                continue
            results.append(Folded(*described, layer=f"{match.layer.type} with {match.weight}"))
            folded += match.state
            self._fold(match)
        _tell_owners(self.program, set(folded), list(self.made))
        return results

    # ---- numbers

    def _fold(self, match: Match) -> None:
        """Fold one norm: first compute the values, which may be missing, then rewrite the ops."""
        norm = match.norm
        scale, bias, mean, variance = (self._value(norm.inputs[slot][0], match) for slot in VECTORS)
        epsilon = float(norm.attrs.get("epsilon", 1e-5))
        factor, shift = factor_and_shift(scale, bias, mean, variance, epsilon)
        added = sum((self._channels(name, match, len(factor)) for name in match.added), 0.0)
        weight = self._value(match.weight, match)
        scaled = match.traits.scaled(weight, factor)
        self._rewrite(match, scaled, added * factor + shift)

    def _value(self, name: str, match: Match) -> Array:
        """The value of a parameter.

        Raises NotInitialized if the scope does not have it, ValueError if its shape there differs
        from the program's.
        """
        if name in self.made:
            return self.made[name]
        variable = self.scope.find_var(name)
        tensor = None if variable is None else variable.get_tensor()
        if tensor is None or not tensor.is_initialized():
            raise NotInitialized(
                f"{name!r} is not initialised in this scope: a batch norm cannot be folded",
                op=op_text(match.norm),
                source=match.norm.source,
                hint="run the startup program or load the parameters first, in the same scope",
            )
        value, var = np.asarray(tensor), match.block.lookup(name)
        if var is None or value.shape != var.dims:
            raise ValueError(
                f"{name!r} is {list(value.shape)} in this scope, but the program declares "
                f"{list(var.dims or ()) if var else 'none'} ({match.layer.source})"
            )
        return value

    def _channels(self, name: str, match: Match, channels: int) -> Array:
        """A bias as one number for each channel."""
        value = self._value(name, match).astype(np.float64).reshape(-1)
        return np.broadcast_to(value, (channels,))

    # ---- ops

    def _rewrite(self, match: Match, weight: Array, shift: Array) -> None:
        """Set new weights in the layer, and replace the norm by an add of the remaining shift.

        An existing bias add is reused, and readers of the norm read its sum; but a result that is
        fetched, or that no op reads, keeps the norm's name.
        """
        layer = match.layer
        layer.inputs[WEIGHTS[layer.type]] = [self._parameter(match.weight, weight)]
        layer.inputs |= {"Bias": []} if "Bias" in layer.inputs else {}
        bias = match.bias
        old = match.norm.inputs["Bias"][0] if bias is None else bias.inputs["Y"][0]
        new = self._parameter(old, shift)
        _undelete(match)
        if bias is not None and self._may_go(match):
            bias.inputs["Y"] = [new]
            bias.attrs["axis"] = match.axis
            match.block.remove_op(match.norm.idx)
            self._rename(match, bias.writes()[0])
        else:
            self._replace_by_add(match, new)

    def _replace_by_add(self, match: Match, bias: str) -> None:
        """Replace the norm by an add with the same output name."""
        block, norm = match.block, match.norm
        slots = {"X": match.layer.writes(), "Y": [bias]}
        at = norm.idx
        add = block.insert_op(
            at, "elementwise_add", slots, {"Out": [match.result]}, {"axis": match.axis}
        )
        add.source = norm.source
        for op in (norm, match.bias):
            if op is not None:
                block.remove_op(op.idx)

    def _may_go(self, match: Match) -> bool:
        """Whether a result is only read by ops, and only written by the norm, so that it can be
        removed.
        """
        name = match.result
        ops = [op for block in self.program.blocks for op in block.ops if op.type != DELETE]
        readers = [op for op in ops if name in op.reads() and op is not match.norm]
        alone = all(name not in op.writes() or any(op is o for o in match.ops) for op in ops)
        if not is_temporary(match.block, name) or name in called_names(self.program):
            return False
        return alone and bool(readers) and all(op.type != "fetch" for op in readers)

    def _rename(self, match: Match, name: str) -> None:
        """Redirect readers of the norm's result to the preceding sum."""
        names = {match.result: name}
        if match.result == name:
            return
        for op in _all_inside(self.program, match.block.ops):
            op.inputs = slots_renamed(op.inputs, names)
        renamed = {old: names.get(new, new) for old, new in self.program.current_name_table.items()}
        self.program.current_name_table = renamed | names

    def _parameter(self, old: str, value: Array) -> str:
        """Create a parameter with this value and the dtype of an old one; returns its name."""
        block = self.program.global_block()
        like = next(var for var in self.program.list_vars() if var.name == old)
        names_in_program = {var.name for var in self.program.list_vars()}
        names = (f"{old}{SUFFIX}{f'_{again}' if again else ''}" for again in count())
        name = next(name for name in names if name not in names_in_program)
        param = block.create_parameter(name=name, shape=value.shape, dtype=like.dtype)
        param.stop_gradient = like.stop_gradient
        self.made[name] = value.astype(like.element.numpy)
        return name


_OUTER = {"conditional_block": "Input", "while": "X", "recurrent": "parameters"}
"""The slot in which an op with a block lists the block's captured variables."""


def _tell_owners(program: Program, folded: set[str], made: list[str]) -> None:
    """Replace old parameters by new ones in ops with blocks, innermost first."""
    ops = [op for block in reversed(program.blocks) for op in block.ops]
    for op in (op for op in ops if op.type in _OUTER and inner_blocks(program, op)):
        inside = [inner_op for block in inner_blocks(program, op) for inner_op in block.ops]
        read = {name for inner_op in inside for name in reads(program, inner_op)}
        gone = folded - read
        for slots in (op.inputs, op.outputs):
            slots.update({s: [n for n in names if n not in gone] for s, names in slots.items()})
        new = [name for name in made if name in read]
        op.inputs[_OUTER[op.type]] = [*op.inputs.get(_OUTER[op.type], ()), *new]


def _all_inside(program: Program, ops: list[Operator]) -> Iterator[Operator]:
    """Ops and those in the blocks that they own."""
    for op in ops:
        yield op
        for block in inner_blocks(program, op):
            yield from _all_inside(program, block.ops)


def _undelete(match: Match) -> None:
    """Remove the values between the ops of a match from `delete_var` ops."""
    for op in [op for op in match.block.ops if op.type == DELETE]:
        op.inputs = {"X": [name for name in op.reads() if name not in match.between]}
        if not op.reads():
            match.block.remove_op(op.idx)


def fold_batch_norms(program: Program, place: Place, scope: Scope) -> list[Folded]:
    """Fold the batch norms of a program that normalise with running statistics, in place.

    Values are read from a scope, and those of new parameters are set there, on `place`. Raises
    NotInitialized for parameters without a value.
    """
    program.undo_renaming()
    fusion = NormFusion(program, scope)
    norms = fusion.run()
    _remove_unused(program)
    for name, value in fusion.made.items():
        if program.global_block().has_var(name):
            scope.var(name).get_tensor().set(value, place)
    return norms


def _remove_unused(program: Program) -> None:
    """Remove the variables that no op uses and no reader yields."""
    used = {name for _, names in program.readers for name in names}
    for block in program.blocks:
        used |= {name for op in block.ops for name in (*op.reads(), *op.writes())}
    for block in program.blocks:
        block.vars = {name: var for name, var in block.vars.items() if name in used}
    program.touch()
