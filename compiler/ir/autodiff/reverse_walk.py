"""Reverse walk over the ops of a block and of the blocks they own.

Ops are collected first and added to their blocks at once, so that an error leaves the program
unchanged. The gradient of a variable ends at the op that overwrites it, except for a tensor array,
which is written item by item. The gradient of an owned block is built by its own tape, nested in
that of the enclosing block; its gradient names are always `x@GRAD`, whatever the outer ones are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from compiler.errors import CompileError
from compiler.ir.autodiff.double_grad import has_gradient
from compiler.ir.autodiff.grad_ops import BlockOwner, Inside, block_owner, gradient_ops
from compiler.ir.autodiff.gradient_sums import PartialGradients, as_backward
from compiler.ir.autodiff.loop_counters import LoopCounters
from compiler.ir.opdef import OpDef, find
from compiler.ir.opdef.type_inference import bind, infer_op
from compiler.ir.program import (
    EMPTY,
    GRAD,
    MAIN_BLOCK,
    NO_BLOCK,
    Block,
    BlockRef,
    OpDesc,
    OpRole,
    VarDesc,
)

SUB_BLOCK = "sub_block"
PASS = "grad/"
"""The prefix of names of gradients that an earlier pass has used, once for each pass."""

OnAppend: TypeAlias = Callable[[Block, OpDesc, Mapping[str, str]], None]
"""A callback after each appended gradient op; the mapping is gradient name to variable."""


class Tape:
    """The gradients of a block, computed in reverse order of its ops.

    `depending` are the variables that depend on the inputs of the derivative; None for all.
    """

    def __init__(
        self, block: Block, no_grad: Collection[str] = (), depending: Collection[str] | None = None
    ) -> None:
        self.block = self.target = block
        self.gradients = PartialGradients(block)
        self.no_grad = frozenset(no_grad)
        self.depending = depending
        self.inner: dict[OpDesc, InnerTape] = {}
        self.overwritten: set[str] = set()
        self.counters = LoopCounters()
        self.order = block.owner.gradient_passes + (block.idx == MAIN_BLOCK)

    # ---- names

    def grad(self, variable: str) -> str:
        """Return the name of a variable's gradient: a new one if an earlier pass has used it.

        The second pass over a program calls it `grad/grad/x@GRAD`, the third
        `grad/grad/grad/x@GRAD`.
        """
        if variable not in self.gradients.names:
            name = variable + GRAD
            if self.order > 1 and self.block.lookup(name) is not None:
                name = PASS * self.order + name
            self.gradients.set_gradient_name(variable, self._unused(name))
        return self.gradients.names[variable]

    def initial_gradient(self, target: str) -> str:
        """Return the name of the gradient that the walk starts from."""
        self.gradients.set_gradient_name(target, self._unused(target + GRAD))
        return self.gradients.names[target]

    def _unused(self, gradient: str) -> str:
        name, count = gradient, 0
        while self.block.lookup(name) is not None:
            name, count = f"{gradient}_{count}", count + 1
        return name

    def requires_grad(self, variable: str) -> bool:
        """Return whether a variable requires a gradient."""
        desc = self.block.lookup(variable)
        if desc is None or desc.stop_gradient or not desc.element.is_float:
            return False
        depends = self.depending is None or variable in self.depending
        return depends and variable not in self.no_grad

    # ---- the reverse walk

    def walk(self, ops: Sequence[OpDesc]) -> None:
        """Append the gradient ops of ops in reverse order, and sum gradients that no op reads."""
        self.overwritten = _overwritten_names(ops)
        for op in reversed(ops):
            if any(self.gradients.reaches(name) for name in _computed_names(self.block, op)):
                self._differentiate(op)
            if hasattr(find(op.type), "undo"):
                self.undo_increment(op)
        for name in list(self.gradients.parts):
            self.gradients.accumulate(name)

    def _differentiate(self, op: OpDesc) -> None:
        self._check_has_gradient(op)
        owner = block_owner(op)
        ops = self._gradient_ops(op) if owner is None else [self._block_gradient(op, owner)]
        added = [gradient_op for gradient_op in ops if self.add(gradient_op)]
        self.counters.read.update(op.reads())
        over = [name for name in op.writes() if name in self.overwritten]
        for name in over:
            if not self._keeps_previous(op, name, bool(ops)):
                self.gradients.end(name, added)

    def _gradient_ops(self, op: OpDesc) -> list[OpDesc]:
        """Return the gradient ops of an op without block; none if `updates_if` disables them."""
        asked = op.inputs.get(find(op.type).updates_if, ())
        descs = [self.block.lookup(name) for name in asked]
        if any(desc is None or desc.stop_gradient for desc in descs):
            return []
        return gradient_ops(op, self.grad)

    def _check_has_gradient(self, op: OpDesc) -> None:
        """Raise CompileError if the gradient of a gradient op is needed that has none."""
        if has_gradient(op):
            return
        slots = find(op.type).slots
        values = [
            n for slot, names in op.inputs.items() if not slots[slot].shape_only for n in names
        ]
        if self._depend_on_leaves(values):
            what, order = "does not support double grad", "second"
            if op.type.endswith("_grad_grad"):
                what, order = "has no gradient", "third"
            raise CompileError(
                f"{op.type} {what}, and a requested {order}-order gradient "
                f"depends on it through {', '.join(values)}",
                source=op.source,
                hint="double grad is supported for products, convolutions, sums, reshapes and "
                "rectifiers; mark a variable with stop_gradient to exclude this path",
            )

    def _depend_on_leaves(self, names: Sequence[str]) -> bool:
        """Return whether any of the names depends on a leaf variable that requires a gradient."""
        writers = {name: op for op in self.block.ops for name in op.writes()}
        waiting, seen = list(names), set[str]()
        while waiting:
            name = waiting.pop()
            if name in seen or not self.requires_grad(name):
                continue
            seen.add(name)
            if name not in writers:
                return True
            waiting += writers[name].reads()
        return False

    def _keeps_previous(self, op: OpDesc, name: str, differentiable: bool) -> bool:
        """Return whether an op keeps part of a variable's previous value when it writes it."""
        cls = find(op.type)
        if not differentiable:
            return name in op.reads()
        if SUB_BLOCK in op.attrs:
            return _may_not_run(op) or self.gradients.is_array(self.grad(name))
        previous = (slot.of for slot in cls.inputs().values() if slot.companion == "previous")
        return any(name in op.outputs.get(slot, ()) for slot in previous)

    def undo_increment(self, op: OpDesc) -> None:
        """Handle an op that increments a counter in place: earlier ops read the value before it.

        If the counter requires a gradient, it is decremented in place, as in the reference;
        otherwise earlier values get separate variables on demand.
        """
        (name,) = op.outputs["Out"]
        desc = self.block.lookup(name)
        if desc is None or desc.persistable or name not in op.reads():
            return
        undo: OpDesc = cast(Any, find(op.type)(op.attrs)).undo(op)
        if desc.stop_gradient or name not in self.counters.read:
            self.counters.wait(name, undo)
        else:
            self.gradients.append(as_backward(undo))

    def add(self, op: OpDesc) -> bool:
        """Append a gradient op, unless it has no incoming gradient or no requested output."""
        read = dict.fromkeys(name for name in op.reads() if name in self.gradients.variables)
        if read and not any(self.gradients.has(name) for name in read):
            return False
        op.outputs = {slot: self._required_outputs(names) for slot, names in op.outputs.items()}
        if not op.writes():
            return False
        for name in read:
            if self.gradients.has(name):
                self.gradients.accumulate(name)
            else:
                self._supply_missing(op, name)
        for undo in self.counters.before(op):
            self.gradients.append(as_backward(undo))
        op.attrs = {**op.attrs, "op_role_var": []}
        self.gradients.append(as_backward(op))
        return True

    def _required_outputs(self, names: Sequence[str]) -> list[str]:
        """Replace unneeded gradients in outputs by `EMPTY`; empty list if none is needed."""
        unwanted = {
            n
            for n in names
            if n in self.gradients.variables and not self.requires_grad(self.gradients.variables[n])
        }
        replaced = [EMPTY if name in unwanted else name for name in names]
        return replaced if set(replaced) - {EMPTY} else []

    def _supply_missing(self, op: OpDesc, name: str) -> None:
        """Omit a gradient input that has no contribution, or fill it with zeros.

        An array of gradients is empty by itself.
        """
        if self.gradients.is_array(name):
            return
        slots = find(op.type).slots
        for slot, names in op.inputs.items():
            if slots[slot].optional and names == [name] and op not in self.inner:
                op.inputs[slot] = []
        if name in op.reads():
            zeros = {"X": [self.gradients.variables[name]]}, {"Out": [name]}
            role = {"op_role": int(OpRole.BACKWARD)}
            self.gradients.append(OpDesc("fill_zeros_like", *zeros, role, op.source))

    # ---- blocks that ops own

    def _block_gradient(self, op: OpDesc, owner: BlockOwner) -> OpDesc:
        """Return the op that owns the gradient of an op's block; builds the nested tape."""
        block = self.block.owner.blocks[int(op.attrs[SUB_BLOCK])]
        carried = [name for name in owner.carried(op) if not self.gradients.reaches(name)]
        idle = [name for name in carried if not self.requires_grad(name)]
        arriving = [name for name in op.writes() if self.gradients.reaches(name)]
        arriving = list(dict.fromkeys([*arriving, *owner.arriving(op)]))
        inner = self._inner_tape(block, arriving, idle, carried)
        inner.remove_zero_propagation(idle)
        passed = [
            n
            for n in arriving
            if n in self.overwritten and self.requires_grad(n) and not inner.gradients.writes_for(n)
        ]
        inner.zero_gradients(passed, op.source)
        local_gradients = frozenset(
            name for name in inner.gradients.names if inner.gradients.writes_for(name)
        )
        written = frozenset(name for name in op.writes() if self.gradients.reaches(name))
        gradient_op = owner.block_grad(
            op, Inside(inner.asked(), written, local_gradients, passed, self.grad)
        )
        gradient_op.source = op.source
        self.inner[gradient_op] = inner
        return gradient_op

    def _inner_tape(
        self, block: Block, arriving: list[str], idle: Sequence[str], carried: Sequence[str]
    ) -> InnerTape:
        """Build the gradient of a block; adds gradients carried on to `arriving`."""
        while True:
            inner = InnerTape(self, block, [*arriving, *idle])
            inner.walk(block.ops)
            names = {*arriving, *idle}
            more = [
                name for name in carried if name not in names and inner.gradients.writes_for(name)
            ]
            if not more:
                return inner
            arriving += more

    # ---- adding the ops to the program

    def write(self, on_append: OnAppend | None) -> dict[str, str]:
        """Add the ops to the program; returns the computed gradients by variable."""
        self.block.owner.gradient_passes = self.order
        self._create_blocks()
        self._append_ops(on_append)
        written = {name for op in self.gradients.ops for name in op.writes()}
        return {
            variable: name for variable, name in self.gradients.names.items() if name in written
        }

    def _create_blocks(self) -> None:
        """Create the gradient blocks, each nested block right after its parent."""
        for op in self.gradients.ops:
            inner = self.inner.get(op)
            if inner is not None:
                inner.target = self.block.owner.add_block(self.target.idx)
                inner.target.forward_block_idx = inner.block.idx
                op.attrs[SUB_BLOCK] = BlockRef(inner.target.idx)
                inner._create_blocks()

    def _append_ops(self, on_append: OnAppend | None) -> None:
        for op in self.gradients.ops:
            if op in self.inner:
                self.inner[op]._append_ops(on_append)
            undeclared = [name for name in op.writes() if self.target.lookup(name) is None]
            for name in undeclared:
                self._declare(name)
            appended = self.target.add_op(op.type, op.inputs, op.outputs, op.attrs, op.source)
            if _may_be_sparse(op) or any(
                name not in self.gradients.variables for name in undeclared
            ):
                infer_op(self.view(), appended)
            if on_append is not None:
                on_append(self.target, appended, self.gradients.variables)

    def view(self) -> Block:
        """Return the block in which the types of all operands are found."""
        return self.block

    def declared(self) -> dict[str, VarDesc]:
        """Return the variables of enclosing gradient blocks: none."""
        return {}

    def _declare(self, name: str) -> None:
        """Declare a gradient or a partial one like its variable, a counter as it is."""
        like = self.block.lookup(self.gradients.variables.get(name, name))
        if like is None:
            self.target.add_var(name)
            return
        fields: dict[str, Any] = {"kind": like.kind, "lod_level": like.lod_level}
        self.target.add_var(name, shape=like.dims, dtype=like.element, **fields)


class InnerTape(Tape):
    """The gradient of an owned block; gradients of `arriving` variables come from outside.

    Whether outer variables require gradients is decided outside: here they all do.
    """

    def __init__(self, outer: Tape, block: Block, arriving: Iterable[str]) -> None:
        super().__init__(block)
        self.outer = outer
        for name in arriving:
            self.gradients.set_gradient_name(name, name + GRAD)
        self.arriving = frozenset(self.gradients.variables)
        self.gradients.given = set(self.arriving)

    def grad(self, variable: str) -> str:
        """Return the name of a variable's gradient in this block."""
        if variable not in self.gradients.names:
            self.gradients.set_gradient_name(variable, variable + GRAD)
        return self.gradients.names[variable]

    def requires_grad(self, variable: str) -> bool:
        """Return True unless a local variable of the block stops gradients."""
        desc = self.block.vars.get(variable)
        return desc is None or not desc.stop_gradient

    def undo_increment(self, op: OpDesc) -> None:
        """Decrement a counter in place, so that every iteration sees its forward value."""
        self.gradients.append(as_backward(cast(Any, find(op.type)(op.attrs)).undo(op)))

    def asked(self) -> list[str]:
        """List the variables whose gradient is read from outside, in order of first read."""
        names, written = dict[str, None](), set[str]()
        for op in self.gradients.ops:
            names |= {n: None for n in op.reads() if n in self.arriving and n not in written}
            written.update(op.writes())
        return [self.gradients.variables[name] for name in names]

    def zero_gradients(self, variables: Iterable[str], source: str) -> None:
        """Zero the gradients of variables that the block overwrites.

        Except for arrays: elements were already taken from their accumulator.
        """
        for variable in variables:
            gradient = self.grad(variable)
            if not self.gradients.is_array(gradient):
                names = {"X": [variable]}, {"Out": [gradient]}
                self.gradients.append(as_backward(OpDesc("fill_zeros_like", *names, source=source)))

    def remove_zero_propagation(self, idle: Iterable[str]) -> None:
        """Remove ops that only propagate gradients which are zero from outside.

        An op that also reads other values keeps its producers alive, as in the reference.
        """
        zeros = {name + GRAD for name in idle}
        handing = list[OpDesc]()
        for op in self.gradients.ops:
            if op.reads() and zeros.issuperset(op.reads()):
                handing.append(op)
                zeros.update(op.writes())
        needed = set[str]()
        for op in reversed(self.gradients.ops):
            if op not in handing or needed.intersection(op.writes()):
                needed.update(op.reads())
        self.gradients.ops = [
            o for o in self.gradients.ops if o not in handing or needed.intersection(o.writes())
        ]

    def view(self) -> Block:
        """Return a block with the gradients declared so far, nested in the forward block."""
        view = Block(self.block.owner, NO_BLOCK, self.block.idx)
        view.vars = self.declared()
        return view

    def declared(self) -> dict[str, VarDesc]:
        """Return the gradients declared in this and enclosing gradient blocks."""
        return {**self.outer.declared(), **self.target.vars}


def _may_be_sparse(op: OpDesc) -> bool:
    writes_rows = any(slot.companion == "rows" for slot in find(op.type).outputs().values())
    has_variant = find(op.type).sparse_variant is not OpDef.sparse_variant
    return writes_rows or (has_variant and bool(bind(op).sparse_variant()))


def _overwritten_names(ops: Sequence[OpDesc]) -> set[str]:
    """List the names that an op writes after the same or an earlier op used them.

    A write in a conditional block counts as a use only once another op writes or reads the name.
    """
    used, overwritten = set[str](), set[str]()
    for op in ops:
        used.update(op.reads())
        overwritten.update(name for name in op.writes() if name in used)
        if not _may_not_run(op):
            used.update(op.writes())
    return overwritten


def _computed_names(block: Block, op: OpDesc) -> set[str]:
    """The names that an op writes, except those that only optimizers in its blocks update.

    A branch that trains overwrites a parameter, but a later branch does not depend on that.
    """
    if SUB_BLOCK not in op.attrs:
        return set(op.writes())
    inner = block.owner.blocks[int(op.attrs[SUB_BLOCK])]
    updated = {name for inside in inner.ops for name in inside.writes()}
    for inside in inner.ops:
        if not inside.role & OpRole.OPTIMIZE:
            updated -= _computed_names(inner, inside)
    return set(op.writes()) - updated


def _may_not_run(op: OpDesc) -> bool:
    return bool(getattr(find(op.type), "may_not_run", False))
