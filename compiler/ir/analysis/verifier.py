"""Graph invariants that hold between passes, and a checker for each fact that a pass may claim.

A violation raises VerifyError with the name of the rule, the op as text and the user's line, so
that a pass that breaks a graph is caught immediately, not by a wrong result much later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import networkx as nx

from compiler.errors import CompileError, VerifyError
from compiler.ir.analysis.liveness import kernels, spread_reads
from compiler.ir.analysis.structural_equality import elements, structure
from compiler.ir.conversion.block_walk import CAPTURED, RUNS, WRITTEN
from compiler.ir.dims import Size
from compiler.ir.graph import Changes, Graph, Op, Var
from compiler.ir.opdef import Pointwise, Rowwise, broadcast, check_attributes, listed
from compiler.ir.opdef.global_reductions import Whole
from compiler.ir.opdef.type_inference import check_slots
from compiler.ir.program import OpDesc
from compiler.ir.text.printer import show_op
from compiler.ir.types import DType, Shape, TensorType


def verify(g: Graph, changed: Changes | None = None) -> None:
    """Check the invariants of a graph, including the bodies of its ops.

    Raises VerifyError for the first violation: vars, producers, slots, storage, order, types,
    results, bodies; each is described at its checker. If the graph was valid before, pass what
    edits have `changed`: what they cannot have broken is not checked again, except for bodies.
    """
    ops = g.ops()
    if changed is None:
        checked, vars, moved = ops, g.vars(), ops
    else:
        checked = [op for op in ops if op in changed.ops or op.body is not None]
        vars = list(changed.vars)
        moved = ops if changed.is_reordered else _that_may_be_late(g, checked)
    for op in checked:
        _check_vars(g, op)
    for var in vars:
        _check_producer(g, var)
        _check_storage(g, var)
    for op in checked:
        _check_slots(op)
    _check_order(g, ops, moved)
    for op in checked:
        _check_types(op)
        _check_body(op)
    _check_results(g)


def broken(rule: str, what: str, op: Op | None = None, hint: str = "") -> VerifyError:
    """Build the error for a violated rule, with the op as text and the user's line."""
    text, source = (show_op(op), op.source) if op is not None else ("", "")
    return VerifyError(f"{rule}: {what}", op=text, source=source, hint=hint)


def _check_vars(g: Graph, op: Op) -> None:
    """Check that the vars of an op belong to its graph, and that none is written twice."""
    written = op.writes()
    for var in op.reads() + written:
        if g.find(var.name, var.version) is not var:
            raise broken("vars", f"{var.label!r} is not a var of graph {g.name!r}", op)
    if len(set(written)) < len(written):
        label, count = Counter(var.label for var in written).most_common(1)[0]
        raise broken("producers", f"{label!r} is written by one op {count} times", op)


def _check_producer(g: Graph, var: Var) -> None:
    """Check that a var has at most one producer: a feed none, a used temporary one."""
    producers = [op for op in g.nx.predecessors(var) if isinstance(op, Op)]
    is_external = var.role != "temp" and var.overwrites is None
    if var.role == "feed" and producers:
        raise broken("producers", f"feed {var.label!r} is written", producers[0])
    if len(producers) > 1:
        raise broken("producers", f"{var.label!r} has {len(producers)} producers", producers[1])
    readers = g.readers(var)
    in_chain = var.overwrites is not None or g.overwriter(var) is not None
    if (readers or in_chain) and not (is_external or producers):
        reader = readers[0] if readers else None
        raise broken("producers", f"{var.label!r} is needed, but nothing writes it", reader)


def _check_slots(op: Op) -> None:
    """Check that slots and attributes are those that the op declares."""
    inputs = {slot: [var.label for var in vars] for slot, vars in op.inputs.items()}
    outputs = {slot: [var.label for var in vars] for slot, vars in op.outputs.items()}
    try:
        check_slots(OpDesc(op.kind, inputs, outputs))
        check_attributes(op.kind, op.attrs)
    except CompileError as error:
        raise broken("slots", error.message, op, error.hint) from error


def _check_storage(g: Graph, var: Var) -> None:
    """Check that an overwriting var is the next version of its name and has the same type.

    The earlier version is state, or a temporary that an op with a body writes conditionally.
    """
    earlier = var.overwrites
    if earlier is None:
        return
    writer = g.producer(var)
    what = f"{var.label!r} overwrites {earlier.label!r}"
    if g.find(earlier.name, earlier.version) is not earlier:
        raise broken("storage", f"{what}, which is not a var of graph {g.name!r}", writer)
    if g.overwriter(earlier) is not var:
        raise broken("storage", f"{what}, but is not the next version of that name", writer)
    if earlier.role == "feed" or var.role != earlier.role:
        raise broken("storage", f"{what}: a {var.role} over a {earlier.role}", writer)
    if not _compatible(var.type, earlier.type):
        raise broken("storage", f"{what}, a {earlier.type}, with a {var.type}", writer)
    if var.role == "temp" and (writer is None or writer.body is None):
        raise broken("storage", f"{what}, a temporary, without a condition", writer)
    if earlier in g.results:
        raise broken("storage", f"{what}, which the graph returns", writer)


def _that_may_be_late(g: Graph, changed: Iterable[Op]) -> list[Op]:
    """Return ops that changed, and those whose dependencies thereby changed."""
    result: dict[Op, None] = {}
    for op in changed:
        written = op.writes()
        overwriters = (g.overwriter(var) for var in (*op.reads(), *written))
        writers = (g.producer(var) for var in overwriters if var is not None)
        readers = (reader for var in written for reader in g.readers(var))
        result |= dict.fromkeys((op, *readers, *(writer for writer in writers if writer)))
    return list(result)


def _check_order(g: Graph, ops: Sequence[Op], checked: Sequence[Op]) -> None:
    """Check that ops come after the producers and overwritten-value readers they depend on."""
    place = {op: index for index, op in enumerate(ops)} if checked else {}
    for op in checked:
        late = [before for before in _dependencies(g, op) if place[before] >= place[op]]
        if late:
            raise broken("order", _order_violation(g, op, late[0]), op)


def _dependencies(g: Graph, op: Op) -> list[Op]:
    """List `Graph.predecessors` of an op, and the op itself if it reads its own output."""
    own = [] if set(op.writes()).isdisjoint(op.reads()) else [op]
    return own + g.predecessors(op)


def _order_violation(g: Graph, op: Op, late: Op) -> str:
    """Describe the violation where `op` depends on `late`, which comes after it."""
    cycle = _cycle(g, op)
    if cycle:
        return f"ops depend on each other in a cycle: {' → '.join(member.kind for member in cycle)}"
    read = next((var.label for var in op.reads() if var in late.writes()), None)
    if read is not None:
        return f"{read!r} is read before it is written"
    needed = late.reads() + late.writes()
    over = next(var.label for var in op.writes() if var.overwrites in needed)
    return f"{over!r} overwrites what {show_op(late)} after it needs"


def _cycle(g: Graph, op: Op) -> list[Op]:
    """Return a dependency cycle among ops that an op depends on mutually; else `[]`."""
    waits: nx.DiGraph[Op] = nx.DiGraph()
    waits.add_edges_from((before, after) for after in g.ops() for before in _dependencies(g, after))
    part = next(part for part in nx.strongly_connected_components(waits) if op in part)
    if len(part) == 1 and not waits.has_edge(op, op):
        return []
    walk = [op]
    while walk[-1] not in walk[:-1]:
        walk.append(
            next(predecessor for predecessor in waits.predecessors(walk[-1]) if predecessor in part)
        )
    return walk[walk.index(walk[-1]) :][::-1]


def _check_types(op: Op) -> None:
    """Check that outputs are declared with the types that the op infers from its inputs."""
    if op.body is not None:
        return
    _check_offsets(op)
    if not op.outputs:
        return
    try:
        inferred = op.defn.infer_types(op.defn.types_of(op.inputs))
    except CompileError as error:
        raise broken("types", error.message, op, error.hint) from error
    for slot, vars in op.outputs.items():
        _check_slot_types(op, vars, inferred.get(slot))


def _check_offsets(op: Op) -> None:
    """Check that LoD levels are int64 of one axis, and belong to values that have rows."""
    for slot in (slot for slot in op.defn.inputs().values() if slot.companion == "lod"):
        levels = op.inputs.get(slot.name, [])
        for level in levels:
            if level.type.rank != 1 or level.type.dtype is not DType.INT64:
                what = f"{slot.name} is {level.type}, expected offsets, int64 of one axis"
                raise broken("types", what, op)
        for var in op.inputs.get(slot.of, []) if levels else ():
            if not var.type.shape:
                raise broken("types", f"{slot.of} has offsets, but no rows: {var.type}", op)


def _check_slot_types(op: Op, vars: Sequence[Var], inferred: Any) -> None:
    types = listed(inferred)
    if inferred is not None and len(types) != len(vars):
        raise broken("types", f"the op infers {len(types)} outputs, not {len(vars)}", op)
    for var, type in zip(vars, types, strict=False):
        if type is not None and not _compatible(var.type, type):
            raise broken("types", f"{var.label!r} is declared {var.type}, the op infers {type}", op)


def _compatible(a: TensorType, b: TensorType) -> bool:
    """Return whether two types may be equal; an unknown size is compatible with any."""
    pairs = zip(a.shape, b.shape, strict=False)
    same = a.dtype is b.dtype and a.rank == b.rank and a.is_array == b.is_array
    return same and all(_may_be_equal(*pair) for pair in pairs)


def _may_be_equal(a: Size, b: Size) -> bool:
    return a == b or not (_is_known(a) and _is_known(b))


def _is_known(size: Size) -> bool:
    return isinstance(size, int) or size.known


def _check_results(g: Graph) -> None:
    """Check that every result is a var of the graph with a value."""
    for var in g.results:
        if g.find(var.name, var.version) is not var:
            raise broken("results", f"{var.label!r} is not a var of graph {g.name!r}")
        if var.role == "temp" and g.producer(var) is None:
            raise broken("results", f"{var.label!r} is returned, but nothing writes it")
        if (after := g.overwriter(var)) is not None:
            _check_storage(g, after)


def _check_body(op: Op) -> None:
    """Check the invariants of the op's body, and its interface with the op.

    The last feeds of the body are slot `Captured`; those before are values saved by the forward op.
    Its first results are slot `Written`; the rest is saved for the gradient.
    """
    if op.body is None:
        return
    try:
        verify(op.body)
    except VerifyError as error:
        error.add_note(f"in graph {op.body.name!r}, the body of {show_op(op)}")
        raise
    captured, written = op.inputs.get(CAPTURED, []), op.outputs.get(WRITTEN, [])
    feeds, results = op.body.feeds(), op.body.results
    own = max(0, len(feeds) - len(captured)) if op.kind == "unwind" else 0
    count = len(written) if RUNS in op.outputs else len(results)
    _check_interface(op, "is fed", feeds[own:], captured)
    _check_interface(op, "returns", results[:count], written)
    if op.body.params():
        raise broken(
            "bodies", f"the body declares persistable state: {op.body.params()[0].label!r}", op
        )


def _check_interface(op: Op, verb: str, inner: Sequence[Var], outer: Sequence[Var]) -> None:
    if len(inner) != len(outer):
        raise broken("bodies", f"the body {verb} {len(inner)} vars, the op has {len(outer)}", op)
    for inside, outside in zip(inner, outer, strict=True):
        if not _compatible(inside.type, outside.type):
            raise broken("bodies", f"the body {verb} {inside!r} for {outside!r}", op)


# ---- facts ----


def fusible_shape(op: Op) -> Shape | None:
    """Return the iteration shape of a pointwise op that may share a kernel, else None.

    Two ops can be fused if these are equal. Reductions, and ops whose output is smaller than the
    broadcast inputs, need more than the same element of every operand; an operand of data-dependent
    size has no planned memory, even if the size of the result is known.
    """
    if not isinstance(op.defn, Pointwise) or isinstance(op.defn, Rowwise) or op.defn.has_effects:
        return None
    if any(var.type.is_open for var in (*op.reads(), *op.writes())):
        return None
    types = op.defn.types_of(op.inputs)
    views = op.defn.views(types)
    if not views:
        return None
    shape = broadcast(op.kind, list(views.values()))
    whole = all(var.type.shape == shape for var in op.writes())
    return shape if whole else None


def epilogue_shape(op: Op) -> Shape | None:
    """Return the shape of the output that can feed an epilogue of pointwise ops, else None.

    The op is then the anchor of the kernel: it declares that output as its `epilogue`.
    """
    outputs = op.outputs.get(op.defn.epilogue_output(op.target), ())
    if len(outputs) != 1 or any(var.type.is_open for var in (*op.reads(), *op.writes())):
        return None
    return outputs[0].type.shape


def check_grouped(g: Graph) -> None:
    """Check GROUPED: the ops of a kernel label are adjacent, have one target, and can be fused.

    All are pointwise over one shape, or the first is an anchor whose output has that shape. The
    parts of a multi-tensor kernel are structurally equal and independent. Raises VerifyError for
    the first op that violates it.
    """
    seen: set[int | None] = {None}
    for ops in kernels(g):
        if ops[0].kernel is not None and ops[0].kernel in seen:
            raise broken("GROUPED", f"kernel {ops[0].kernel} continues after other ops", ops[0])
        seen.add(ops[0].kernel)
        if ops[0].part is not None:
            _check_parts(g, ops)
            continue
        for op in ops[1:]:
            _check_fusion(ops[0], op)
        _check_elementwise_reads(ops)


def _check_elementwise_reads(ops: Sequence[Op]) -> None:
    """Check that values within a kernel are read element by element."""
    produced = {var for op in ops for var in op.writes()} if len(ops) > 1 else set[Var]()
    for op in ops[1:]:
        spread = spread_reads(op)
        for var in (var for var in op.reads() if var in produced and var in spread):
            what = f"kernel {op.kernel} makes {var.label!r}, of which an op reads a single element"
            raise broken("GROUPED", what, op)


def _check_parts(g: Graph, ops: Sequence[Op]) -> None:
    """Check that the parts of a kernel are structurally equal and do not depend on each other."""
    parts = [list(part) for _, part in groupby(ops, key=lambda op: op.part)]
    if [part[0].part for part in parts] != list(range(len(parts))):
        raise broken("GROUPED", f"the parts of kernel {ops[0].kernel} are out of order", ops[0])
    for part in parts:
        if structure(g, part) != structure(g, parts[0]) or any(elements(op) is None for op in part):
            raise broken("GROUPED", f"kernel {ops[0].kernel} has parts that differ", part[0])
        if len(part) > 1 and any(isinstance(op.defn, Whole) for op in part):
            raise broken(
                "GROUPED",
                f"kernel {ops[0].kernel} mixes global reductions and other ops in a part",
                part[0],
            )
        for op in part:
            if any(
                predecessor.part != op.part
                for predecessor in g.predecessors(op)
                if predecessor in ops
            ):
                raise broken("GROUPED", f"a part of kernel {op.kernel} depends on another", op)


def _check_fusion(first: Op, op: Op) -> None:
    shapes = epilogue_shape(first) or fusible_shape(first), fusible_shape(op)
    if None in shapes:
        culprit = first if shapes[0] is None else op
        raise broken("GROUPED", f"kernel {op.kernel} contains an op that cannot be fused", culprit)
    if shapes[0] != shapes[1]:
        text = " and ".join(f"[{', '.join(map(str, shape or ()))}]" for shape in shapes)
        raise broken("GROUPED", f"kernel {op.kernel} computes over {text}", op)
    if first.target != op.target:
        raise broken("GROUPED", f"kernel {op.kernel} is for {first.target} and {op.target}", op)


def check_ordered(g: Graph) -> None:
    """Check ORDERED: the positions of the ops are (0,), (1,), …, as set by `Graph.reorder`.

    Raises VerifyError for the first op that violates it.
    """
    for index, op in enumerate(g.ops()):
        if op.position != (index,):
            raise broken("ORDERED", f"op {index} has position {op.position}", op)
