"""Reverse mode: walk the ops of a block backwards and ask each for its gradient (fluid_spec A.4).

A gradient is called `x@GRAD`. Where several ops give parts of it, the parts are called
`x@GRAD@RENAME@block0@k` and a `sum` stands right before the first op that reads the whole, or at
the end. An op takes part if a gradient of something it writes has come up: what does not lead to
the loss, or only to variables that stop gradients, is never written down. New ops are collected
first and go to the block at once, so that a failure leaves the block as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from compiler.errors import CompileError
from compiler.ir.infer import bind, infer_op
from compiler.ir.opdef import GradOp, find, has
from compiler.ir.program import EMPTY, GRAD, Block, OpDesc, OpRole

PART = "@RENAME@"
"""What follows a gradient's name in the name of a part of it."""

OnAppend: TypeAlias = Callable[[Block, OpDesc, Mapping[str, str]], None]
"""Called after each gradient op is appended, with the variable of every gradient's name."""


def append_backward(
    block: Block,
    loss: str,
    no_grad: Collection[str] = (),
    on_append: OnAppend | None = None,
) -> dict[str, str]:
    """Append the ops that compute the gradients of `loss`; returns their names by variable.

    Variables that stop gradients, those of `no_grad` and those that are not floating point get
    none. Raises CompileError where the loss is not computed or has not exactly one element.
    """
    writer = _writer(block, loss)
    _check_loss(block, loss, writer)
    tape = _Tape(block, no_grad)
    for op in _seeds(block, loss, None, tape.grad(loss), OpRole.BACKWARD | OpRole.LOSS):
        tape.append(op)
    tape.walk(block.ops)
    writer.attrs["op_role"] = int(OpRole.FORWARD | OpRole.LOSS)
    return tape.write(on_append)


def append_gradients(
    block: Block,
    targets: Mapping[str, str | None],
    inputs: Sequence[str],
    no_grad: Collection[str] = (),
) -> dict[str, str]:
    """Append the ops that compute gradients of `targets` with respect to `inputs`.

    `targets` maps each to the variable that holds its gradient, or None for ones. Returns the
    names of gradients by variable; an input that no target depends on is not among them.
    """
    tape = _Tape(block, no_grad, _depending(block.ops, inputs))
    for target, given in targets.items():
        for op in _seeds(block, target, given, tape.grad(target)):
            tape.append(op)
    tape.walk(block.ops)
    return tape.write(None)


def note_parameters(block: Block, gradients: Iterable[tuple[str, str]]) -> None:
    """Write each (parameter, gradient) into `op_role_var` of the op that completes the gradient."""
    writers = {name: op for op in block.ops for name in op.writes()}
    for param, gradient in gradients:
        attrs = writers[gradient].attrs
        attrs["op_role_var"] = [param, gradient, *attrs.get("op_role_var", [])]
    block.owner.touch()


@dataclass(frozen=True)
class _Place:
    """Where a name stands among an op's outputs."""

    op: OpDesc
    slot: str
    index: int


class _Tape:
    """Gradient ops that are not in the block yet, and who writes which gradient so far."""

    def __init__(
        self, block: Block, no_grad: Collection[str], depending: Collection[str] | None = None
    ) -> None:
        self.block = block
        self.no_grad = frozenset(no_grad)
        self.depending = depending
        self.ops: list[OpDesc] = []
        self.names: dict[str, str] = {}
        self.variables: dict[str, str] = {}
        self.places: dict[str, list[_Place]] = {}
        self.parts: Counter[str] = Counter()

    def grad(self, variable: str) -> str:
        """The name of a variable's gradient: another one where an earlier pass has taken it."""
        if variable not in self.names:
            name, count = variable + GRAD, 0
            while self.block.lookup(name) is not None:
                name, count = f"{variable}{GRAD}_{count}", count + 1
            self.names[variable] = name
            self.variables[name] = variable
        return self.names[variable]

    def wants(self, variable: str) -> bool:
        """True where a variable has a gradient at all."""
        desc = self.block.lookup(variable)
        if desc is None or desc.stop_gradient or not desc.element.is_float:
            return False
        depends = self.depending is None or variable in self.depending
        return depends and variable not in self.no_grad

    def walk(self, ops: Sequence[OpDesc]) -> None:
        """Write down the gradients of ops, the last first, and add up what nobody read."""
        renewed = _renewed(ops)
        for op in reversed(ops):
            if any(self.names.get(name) in self.places for name in op.writes()):
                made = gradient_ops(op, self.grad)
                kept = [each for each in made if self.add(each)]
                if made:
                    self._forget([name for name in op.writes() if name in renewed], kept)
        for name in list(self.places):
            self._add_up(name)

    def add(self, op: OpDesc) -> bool:
        """Append a gradient op, unless nothing comes in or nobody wants what goes out."""
        read = dict.fromkeys(name for name in op.reads() if name in self.variables)
        if read and not any(name in self.places for name in read):
            return False
        op.outputs = {slot: self._wanted(names) for slot, names in op.outputs.items()}
        if not op.writes():
            return False
        for name in read:
            if name in self.places:
                self._add_up(name)
            else:
                self._do_without(op, name)
        op.attrs = {**op.attrs, "op_role": int(OpRole.BACKWARD), "op_role_var": []}
        self.append(op)
        return True

    def append(self, op: OpDesc) -> None:
        """Append an op as it is and remember which gradients it writes."""
        self.ops.append(op)
        read = op.reads()
        self.places |= {name: [] for name in op.writes() if name in read}
        for slot, names in op.outputs.items():
            for index, name in enumerate(names):
                if name in self.variables:
                    self.places.setdefault(name, []).append(_Place(op, slot, index))

    def _wanted(self, names: Sequence[str]) -> list[str]:
        """Names to write; `EMPTY` keeps the place of one that nobody wants among others."""
        unwanted = {n for n in names if n in self.variables and not self.wants(self.variables[n])}
        kept = [EMPTY if name in unwanted else name for name in names]
        return kept if set(kept) - {EMPTY} else []

    def _add_up(self, name: str) -> None:
        """Where a gradient came in parts, rename them and append their sum."""
        places = self.places[name]
        if len(places) < 2:
            return
        parts = [self._part(name, place) for place in places]
        attrs = {"use_mkldnn": False, "op_role": int(OpRole.BACKWARD)}
        self.places[name] = []
        self.append(OpDesc("sum", {"X": parts}, {"Out": [name]}, attrs, places[0].op.source))

    def _part(self, name: str, place: _Place) -> str:
        part = f"{name}{PART}block{self.block.idx}@{self.parts[name]}"
        self.parts[name] += 1
        self.variables[part] = self.variables[name]
        place.op.outputs[place.slot][place.index] = part
        return part

    def _do_without(self, op: OpDesc, name: str) -> None:
        """Nothing flows into a gradient that an op reads: leave it out, or give it zeros."""
        slots = find(op.type).slots
        for slot, names in op.inputs.items():
            if slots[slot].optional and names == [name]:
                op.inputs[slot] = []
        if name in op.reads():
            zeros = {"X": [self.variables[name]]}, {"Out": [name]}
            role = {"op_role": int(OpRole.BACKWARD)}
            self.append(OpDesc("fill_zeros_like", *zeros, role, op.source))

    def _forget(self, names: Sequence[str], made: Sequence[OpDesc]) -> None:
        """What an op wrote over did not exist before it: only its own gradient ops still count."""
        for gradient in (self.names[name] for name in names if name in self.names):
            places = self.places.get(gradient, [])
            own = [place for place in places if any(place.op is each for each in made)]
            if places and not own:
                self._add_up(gradient)
            self.places.pop(gradient, None)
            if own:
                self.places[gradient] = own

    def write(self, on_append: OnAppend | None) -> dict[str, str]:
        """Put the ops into the block; returns the gradients there are, by variable."""
        for op in self.ops:
            undeclared = [name for name in op.writes() if self.block.lookup(name) is None]
            for name in undeclared:
                self._declare(name)
            appended = self.block.add_op(op.type, op.inputs, op.outputs, op.attrs, op.source)
            if any(name not in self.variables for name in undeclared):
                infer_op(self.block, appended)
            if on_append is not None:
                on_append(self.block, appended, self.variables)
        written = {name for op in self.ops for name in op.writes()}
        return {variable: name for variable, name in self.names.items() if name in written}

    def _declare(self, name: str) -> None:
        """A gradient, whole or part, is declared like its variable."""
        like = self.block.lookup(self.variables.get(name, EMPTY))
        if like is None:
            self.block.add_var(name)
            return
        fields: dict[str, Any] = {"kind": like.kind, "lod_level": like.lod_level}
        self.block.add_var(name, shape=like.dims, dtype=like.element, **fields)


def _renewed(ops: Sequence[OpDesc]) -> set[str]:
    """The names that an op writes after the same or an earlier one used them."""
    used, renewed = set[str](), set[str]()
    for op in ops:
        used.update(op.reads())
        renewed.update(name for name in op.writes() if name in used)
        used.update(op.writes())
    return renewed


def gradient_ops(op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
    """The ops that compute an op's gradient, asked of its class; none where it has none.

    `grad` names a variable's gradient.
    """
    definition = find(op.type)
    if definition.grad_class is not None:
        return [_gradient_op(op, definition.grad_class, grad)]
    bound = bind(op)
    if not has(bound, "grad_ops"):
        return []
    made = cast("list[OpDesc]", cast(Any, bound).grad_ops(op, grad))
    for each in made:
        each.source = op.source
    return made


def _gradient_op(op: OpDesc, cls: type[GradOp], grad: Callable[[str], str]) -> OpDesc:
    """`<op>_grad` with the slots its class declares and the attributes of the op."""
    known = op.inputs | op.outputs

    def named(slots: Iterable[str]) -> dict[str, list[str]]:
        return {slot: _slot(slot, known, grad) for slot in slots}

    return OpDesc(cls.kind, named(cls.inputs()), named(cls.outputs()), op.attrs, op.source)


def _slot(slot: str, known: Mapping[str, Sequence[str]], grad: Callable[[str], str]) -> list[str]:
    """What stands in a gradient op's slot: `X` holds what the op's does, `X@GRAD` its gradients."""
    if not slot.endswith(GRAD):
        return list(known.get(slot, ()))
    names = known.get(slot.removesuffix(GRAD), ())
    return [name if name == EMPTY else grad(name) for name in names]


def _writer(block: Block, name: str) -> OpDesc:
    writer = next((op for op in reversed(block.ops) if name in op.writes()), None)
    if writer is None:
        raise CompileError(
            f"variable {name!r} is computed by no op of its block, so it has no gradients",
            hint="pass the variable that a layer returned",
        )
    return writer


def _check_loss(block: Block, name: str, writer: OpDesc) -> None:
    """CompileError where the variable to minimise is not one number."""
    loss = block.lookup(name)
    if loss is None or loss.dims is None or any(size != 1 for size in loss.dims):
        shape = None if loss is None else loss.dims
        raise CompileError(
            f"the loss {name!r} has shape {shape}, expected (1,)",
            source=writer.source,
            hint="average it with fluid.layers.mean",
        )


def _seeds(
    block: Block,
    target: str,
    given: str | None,
    gradient: str,
    role: OpRole = OpRole.BACKWARD,
) -> list[OpDesc]:
    """Ops that give a target's gradient its value: what the caller gave, or ones."""
    var, source = block.lookup(target), _writer(block, target).source
    out = {"Out": [gradient]}
    attrs: dict[str, Any] = {"op_role": int(role)}
    if given is not None:
        return [OpDesc("assign", {"X": [given]}, out, attrs, source)]
    if var is None or var.dims is None or -1 in var.dims:
        zeros = OpDesc("fill_zeros_like", {"X": [target]}, out, attrs, source)
        return [zeros, OpDesc("scale", {"X": [gradient]}, out, {"bias": 1.0, **attrs}, source)]
    attrs |= {"shape": list(var.dims), "value": 1.0, "dtype": var.element.code}
    return [OpDesc("fill_constant", {}, out, {**attrs, "force_cpu": False}, source)]


def _depending(ops: Sequence[OpDesc], inputs: Sequence[str]) -> set[str]:
    """Every name whose value depends on one of `inputs`, and those themselves."""
    names = set(inputs)
    for op in ops:
        if names.intersection(op.reads()):
            names |= set(op.writes())
    return names
