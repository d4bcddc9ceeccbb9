"""Gradients of control flow: the gradient block runs once per forward iteration, in reverse order.

Between iterations, the gradient of a variable that the forward block updates is carried: in as the
gradient of the value after the iteration, out as that of the value before it. The gradient of a
variable that it only reads is summed over all iterations. The values that a forward iteration saved
are inputs of the matching gradient iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.errors import CompileError
from compiler.ir.conversion.block_owners import outer_writes
from compiler.ir.conversion.block_walk import MAX_WIDENINGS, RUNS, BlockWalk
from compiler.ir.conversion.carried_lod import OWN
from compiler.ir.conversion.companions import LOD
from compiler.ir.graph import Var
from compiler.ir.program import EMPTY, GRAD, OpDesc

AROUND = "@AROUND"
"""The suffix, inside the body, of the outer variable of the same name."""
TOTAL = "@TOTAL"
"""The suffix, inside the body, of the sum of a gradient over the iterations so far."""
NEXT = "@NEXT"
"""The suffix of the value of a gradient that the next iteration reads."""


def conditional_gradient(walk: BlockWalk, op: OpDesc) -> None:
    """Convert `conditional_block_grad`: run the gradient block if the forward block ran."""
    inside = [name + GRAD for name in op.inputs.get("Out", [])]
    links = _incoming(inside, op.inputs.get("Out" + GRAD, []))
    variables = _requested(op.inputs.get("Input", []), op.outputs.get("Input" + GRAD, []))
    _convert(walk, op, op.inputs["Scope"][0], links, variables)


def loop_gradient(walk: BlockWalk, op: OpDesc) -> None:
    """Convert `while_grad`: run the gradient block for every iteration in reverse."""
    links = _incoming(op.attrs.get("original_output_grad", []), op.inputs.get("Out" + GRAD, []))
    variables = _requested(op.inputs.get("X", []), op.outputs.get("X" + GRAD, []))
    _convert(walk, op, op.inputs["StepScopes"][0], links, variables)


def _incoming(inside: Sequence[str], outside: Sequence[str]) -> dict[str, str]:
    """Map the incoming gradients from their names inside to their names outside."""
    return {mine: theirs for mine, theirs in zip(inside, outside, strict=False) if theirs != EMPTY}


def _requested(variables: Sequence[str], gradients: Sequence[str]) -> dict[str, str]:
    """Map variables to the outer names of their requested gradients."""
    return {x: g for x, g in zip(variables, gradients, strict=False) if g != EMPTY}


def _convert(
    walk: BlockWalk, op: OpDesc, runs: str, links: Mapping[str, str], wanted: Mapping[str, str]
) -> None:
    links = {mine: theirs for mine, theirs in links.items() if walk.has_value(theirs)}
    changed = {x: g for x, g in wanted.items() if x in op.inputs.get("Out", [])}
    read = {x: g for x, g in wanted.items() if x not in changed}
    for x, g in changed.items():
        source = walk.read(links[x + GRAD], op) if x + GRAD in links else zeros_like(walk, x, op)
        walk.copied(g, source, source.type)
    for x, g in read.items():
        walk.current.define(g, zeros_like(walk, x, op, g))
    for mine, theirs in links.items():
        if mine.removesuffix(GRAD) not in changed:
            source = walk.read(theirs, op)
            walk.copied(mine + NEXT, source, source.type)
    for _ in range(MAX_WIDENINGS):
        inner, left = _convert_body(walk, op, runs, links, changed, read)
        if not walk.widen(inner, left):
            walk.put("unwind", op, {RUNS: [walk.read(runs, op)]}, inner, left)
            for x, g in wanted.items():
                _share_lod(walk, x, g, op)
            return
    raise CompileError(f"the sizes in the block of {op.type} do not converge", source=op.source)


def _share_lod(walk: BlockWalk, variable: str, gradient: str, op: OpDesc) -> None:
    """Give a gradient the LoD of its variable, unless the forward block changes that LoD."""
    levels = walk.companions.lod_of(walk.read(variable, op))
    if not any(level.name.endswith(OWN) for level in levels):
        walk.companions.lods[walk.current[gradient]] = levels


def _convert_body(
    walk: BlockWalk, op: OpDesc, runs: str, links: Mapping[str, str],
    changed: Mapping[str, str], read: Mapping[str, str],
) -> tuple[BlockWalk, dict[str, str]]:  # fmt: skip
    """Convert the gradient block; returns the walk, and result names inside to names outside."""
    inner = inner_gradient(walk, op, runs)
    for x, g in changed.items():
        inner.current.capture(x + GRAD, walk.read(g, op))
    for x, g in read.items():
        inner.current.capture(x + GRAD + TOTAL, walk.read(g, op))
    once = [mine for mine in links if mine not in inner.current]
    for mine in once:
        inner.current.capture(mine, walk.read(mine + NEXT, op))
    others = other_updates(walk, inner)
    walk.capture_updated(op, others, inner)
    counted = _capture_counters(walk, inner, op)
    for inner_op in inner.block.ops:
        inner.add(inner_op)
    for x in read:
        add_to_total(inner, x, op)
    for name in counted:
        inner.copied(name + AROUND, inner.current[name], inner.current[name].type)
    left = _zero_overwritten(inner, once, op) | {name + AROUND: name for name in counted}
    left |= {x + GRAD: g for x, g in changed.items()}
    left |= {x + GRAD + TOTAL: g for x, g in read.items()}
    left |= {name: name for name in others if name in inner.current}
    return inner, {m: t for m, t in left.items() if inner.current[m].role != "feed"}


def _capture_counters(walk: BlockWalk, inner: BlockWalk, op: OpDesc) -> list[str]:
    """List outer variables that both the forward and the gradient block update: loop counters.

    Each iteration starts with the saved value; the last value is written to the outer variable.
    """
    written = dict.fromkeys(name for inner_op in inner.block.ops for name in inner_op.writes())
    names = [
        n
        for n in written
        if n in inner.current and n not in inner.current.captured and walk.has_value(n)
    ]
    for name in names:
        inner.current.capture(name + AROUND, walk.writable(name, op))
    return names


def _zero_overwritten(inner: BlockWalk, once: Sequence[str], op: OpDesc) -> dict[str, str]:
    """Zero the gradients of values that every forward iteration overwrites, for the next iteration.

    An array is overwritten only where an element was taken from its accumulator.
    """
    for mine in once:
        if not inner.current[mine].type.is_array:
            inner.current.define(mine, zeros_like(inner, mine, op, mine))
    return {mine: mine + NEXT for mine in once}


def inner_gradient(walk: BlockWalk, op: OpDesc, runs: str) -> BlockWalk:
    """Start the walk over a gradient block, with the saved values of an iteration as feeds."""
    if runs not in walk.runs:
        raise CompileError(f"{op.type} reads iterations that no op saved", source=op.source)
    forward, saved = walk.runs[runs]
    inner = walk.inner(walk.body_of(op), is_gradient=True)
    inner.runs = dict(forward.runs)
    for value in saved:
        var = inner.current.define(value.name, inner.graph.feed(value.name, value.var.type))
        # Values that share a LoD each have a copy of it among the feeds.
        inner.companions.lods[var] = [
            inner.graph.feed(f"{value.name}{LOD}{number}", level.type)
            for number, level in enumerate(value.levels)
        ]
    return inner


def other_updates(walk: BlockWalk, inner: BlockWalk) -> list[str]:
    """List the outer variables other than gradients that a gradient block updates."""
    names = outer_writes(inner.block)
    return [n for n in names if GRAD not in n and n not in inner.current and walk.has_value(n)]


def zeros_like(walk: BlockWalk, variable: str, op: OpDesc, name: str = "") -> Var:
    """Add a var of zeros with the shape of a variable; an empty array for a tensor array."""
    like = walk.companions.densified(walk.read(variable, op))
    zeros = walk.graph.another(name or variable + GRAD + TOTAL, like.type)
    kind = "empty_array" if like.type.is_array else "fill_zeros_like"
    walk.graph.op(kind, {"X": [like]}, {"Out": [zeros]}, {}, op.source, last=True)
    walk.companions.lods[zeros] = walk.companions.lod_of(like)
    return zeros


def add_to_total(inner: BlockWalk, variable: str, op: OpDesc) -> None:
    """Add the gradient of an iteration to the sum over the iterations, if there is one."""
    gradient = inner.current.get(variable + GRAD)
    if gradient is not None and gradient.role != "feed":
        total = variable + GRAD + TOTAL
        inner.accumulate(total, [inner.current[total], gradient], op)
