"""Data-flow matching of batch norms that may be folded into the preceding layer.

A match is a layer, an optional bias add, and the norm. Their positions in the block do not matter,
but no other op may use the values between them; for a norm that cannot be folded, the reason is
reported (docs/reference_behaviour.md, "Batch-norm folding").
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.ir.opdef.type_inference import op_text
from compiler.passes.norm_folding import NORMS, VECTORS, WEIGHTS, Layer, is_frozen, norm_axis
from compiler.support.dataclass import dataclass
from fluid.framework import Block, Operator, Program
from fluid.transpiler.flow import DELETE, inner_blocks, reads, writes
from fluid.transpiler.units import called_names, is_temporary

__all__ = ["Match", "along", "match_norm", "norms"]

_SLOTS = frozenset({"Input", "Filter", "Bias", "X", "Y"})
_KEPT_OUTPUTS = {"MeanOut": "Mean", "VarianceOut": "Variance"}


@dataclass(frozen=True)
class Match:
    """A layer, its optional bias add, and the following norm, in one block.

    `rank` is the rank of the layer's output, `axis` its channel axis.
    """

    block: Block
    layer: Operator
    bias: Operator | None
    norm: Operator
    rank: int
    axis: int

    @property
    def traits(self) -> Layer:
        """The layer's properties for folding."""
        weight = self.block.lookup(self.weight)
        dims = weight.dims if weight is not None else None
        return Layer(self.layer.type, self.layer.attrs, dims or ())

    @property
    def weight(self) -> str:
        """The name of the layer's weights."""
        return self.layer.inputs[WEIGHTS[self.layer.type]][0]

    @property
    def ops(self) -> list[Operator]:
        """Its ops, in order."""
        return [op for op in (self.layer, self.bias, self.norm) if op is not None]

    @property
    def between(self) -> list[str]:
        """The intermediate values between its ops."""
        return [op.writes()[0] for op in self.ops[:-1]]

    @property
    def result(self) -> str:
        """The name of the norm's output."""
        return self.norm.outputs["Y"][0]

    @property
    def added(self) -> list[str]:
        """The names of the per-channel operands added before the norm."""
        own = self.layer.inputs.get("Bias", [])
        return own + (self.bias.inputs["Y"] if self.bias is not None else [])

    @property
    def state(self) -> list[str]:
        """The names of all folded parameters."""
        return [self.weight, *self.added, *(self.norm.inputs[slot][0] for slot in VECTORS)]


def match_norm(program: Program, block: Block, norm: Operator) -> Match | str:
    """The match that ends in a norm, or the reason why it cannot be folded."""
    if not is_frozen(norm.attrs):
        return "it normalises with the statistics of the batch (training)"
    below = _writer(program, block, norm, norm.inputs["X"][0])
    bias = below if below is not None and below.type == "elementwise_add" else None
    layer = _writer(program, block, bias, bias.inputs["X"][0]) if bias is not None else below
    if layer is None or layer.type not in WEIGHTS:
        return f"its input comes from {_origin(layer)}, and not from a convolution or a product"
    out = block.lookup(layer.writes()[0])
    rank = len(out.dims or ()) if out is not None else 0
    match = Match(block, layer, bias, norm, rank, norm_axis(norm.attrs, rank))
    return next(filter(None, _refusals(program, match)), match)


def _origin(op: Operator | None) -> str:
    return "no op of its block" if op is None else op.type


def _writer(program: Program, block: Block, reader: Operator, name: str) -> Operator | None:
    """The last op before another one that writes a name; None if there is none."""
    end = next(at for at, op in enumerate(block.ops) if op is reader)
    return next((op for op in reversed(block.ops[:end]) if name in writes(program, op)), None)


def _refusals(program: Program, match: Match) -> Iterator[str]:
    """Every reason not to fold; empty strings are no reason."""
    if match.rank < 2:
        yield f"the shape of {match.between[0]!r} is not known"
    yield match.traits.refusal()
    yield _more_inside(match.layer)
    if match.traits.channel_axis(match.rank) != match.axis:
        yield (
            f"its channels are axis {match.axis} of {match.rank}, but the weights of "
            f"{match.layer.type} scale axis {match.traits.channel_axis(match.rank)}"
        )
    yield _bias_refusal(match)
    yield from (_changing(program, name) for name in match.state)
    yield from (_touched(program, match, name) for name in match.between)
    yield from (_wanted(program, match.norm, *output) for output in match.norm.outputs.items())


def _more_inside(layer: Operator) -> str:
    """Why a layer op does more than the layer: other tools fuse following ops into it."""
    more = [
        name for name, value in layer.attrs.items() if name.startswith("fuse_") and value is True
    ]
    slots = [slot for slot, names in layer.inputs.items() if names and slot not in _SLOTS]
    extras = ", ".join([*more, *slots])
    return f"its layer {layer.type} has {extras}, which come before the norm" if extras else ""


def _bias_refusal(match: Match) -> str:
    """Why an added operand is not a bias: a residual, or not constant per channel."""
    if match.bias is None:
        return ""
    name = match.bias.inputs["Y"][0]
    var = match.block.lookup(name)
    if var is None or not var.persistable or var.dims is None:
        return f"what is added to {match.between[0]!r} is no bias: {name!r} is no parameter"
    sizes = along(var.dims, int(match.bias.attrs.get("axis", -1)), match.rank)
    if any(size != 1 for at, size in enumerate(sizes) if at != match.axis):
        return f"{name!r} is {list(var.dims)}, not one number for each channel"
    return ""


def along(dims: tuple[int, ...], axis: int, rank: int) -> tuple[int, ...]:
    """The shape of the smaller operand of an elementwise op, broadcast-aligned to the larger one.

    >>> along((6,), 1, 4), along((6, 1, 1), -1, 4), along((1, 6), -1, 2)
    ((1, 6, 1, 1), (1, 6, 1, 1), (1, 6))
    """
    if len(dims) >= rank:
        return dims
    start, trimmed = rank - len(dims) if axis == -1 else axis, list(dims)
    while trimmed and trimmed[-1] == 1:
        trimmed.pop()
    return (1,) * start + tuple(trimmed) + (1,) * (rank - start - len(trimmed))


# ---- who else reads or writes


def _ops(program: Program) -> Iterator[Operator]:
    return (op for block in program.blocks for op in block.ops if op.type != DELETE)


def _changing(program: Program, name: str) -> str:
    """Why a parameter may have changed since it was folded.

    An op with a block writes what the ops in it write.
    """
    var = next((var for var in program.all_vars() if var.name == name), None)
    if var is None or not var.persistable:
        return f"{name!r} is computed by the program"
    for op in _ops(program):
        if inner_blocks(program, op):
            continue
        is_frozen_norm = op.type in NORMS and is_frozen(op.attrs)
        slots = [slot for slot, names in op.outputs.items() if name in names]
        if any(not (is_frozen_norm and slot in _KEPT_OUTPUTS) for slot in slots):
            return f"{name!r} is written by {op_text(op)}"
    return ""


def _touched(program: Program, match: Match, name: str) -> str:
    """Why a value between the ops of a match is needed: another op reads or writes it.

    An in-place norm redefines the name; ops after the norm read the new value.
    """
    if not is_temporary(match.block, name):
        return f"{name!r} is no temporary of its block"
    if name in called_names(program):
        return f"{name!r} is what the op around its block hands on"
    after = match.block.ops
    if name == match.result:
        after = after[: next(at for at, op in enumerate(after) if op is match.norm)]
    others = [op for op in after if op.type != DELETE and all(op is not o for o in match.ops)]
    for op in others:
        if name in reads(program, op):
            return f"{name!r} is fetched" if op.type == "fetch" else f"{name!r} has other readers"
        if name in writes(program, op):
            return f"{name!r} is written more than once"
    return ""


def _wanted(program: Program, norm: Operator, slot: str, names: list[str]) -> str:
    """Why an output of a norm other than its result is needed."""
    same = norm.inputs.get(_KEPT_OUTPUTS.get(slot, ""), [])
    for name in names if slot != "Y" else ():
        if name not in same and any(name in op.reads() for op in _ops(program) if op is not norm):
            return f"its {slot} {name!r} is read"
    return ""


def norms(program: Program) -> list[tuple[Block, Operator]]:
    """Every norm of a program with its block, in order."""
    return [(block, op) for block in program.blocks for op in block.ops if op.type in NORMS]
