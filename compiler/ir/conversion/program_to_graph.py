"""Program → Graph: the main block, with the blocks it owns as bodies of their ops.

Sizes a program leaves open (-1) get names here: the caller says the shapes of the feeds, as
numbers or as named `Dim`s, and every op infers the rest. What a run leaves behind in persistable
variables is what the last version of each holds.

Three ops of a graph own a body, and all that a program has of the kind becomes one of them. `if`
runs it where its condition holds, `loop` as long as it does, and both may keep values of each run;
`unwind` runs its body for each run kept, the last one first. So `while` is a loop, its gradient and
that of a conditional block an unwinding. What a body sees of the graph around it are its feeds,
what it leaves there its results; a value that it changes is both, in one storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.errors import CompileError
from compiler.ir.conversion.block_owners import check_owners
from compiler.ir.conversion.body_walk import BlockScan, Handlers
from compiler.ir.conversion.control_flow import conditional, repeat
from compiler.ir.conversion.control_flow_grad import unwind_conditional, unwind_loop
from compiler.ir.conversion.overwritten_values import with_earlier_values
from compiler.ir.conversion.recurrent import recurrent, recurrent_gradient
from compiler.ir.conversion.reused_names import with_own_names
from compiler.ir.graph import Graph
from compiler.ir.opdef.type_inference import op_text
from compiler.ir.program import OpDesc, Program
from compiler.ir.types import Shape, TensorType

_EDGES = ("feed", "fetch")


def _named_print(scan: BlockScan, op: OpDesc) -> None:
    """`print`, told what the program calls its operand: a graph knows versions of names."""
    attrs = {**op.attrs, "In_name": op.inputs["In"][0]}
    scan.add(OpDesc("print_named", op.inputs, op.outputs, attrs, op.source))


def _deleted(scan: BlockScan, op: OpDesc) -> None:
    """`delete_var`: no op behind it finds a value any more.

    When memory is free again is for passes to say, who know the order that ops are run in; what is
    fetched is kept.
    """
    for name in op.reads():
        if scan.is_state(name):
            raise CompileError(
                f"{name!r} outlives a run, so no run can delete it",
                op=op_text(op),
                source=op.source,
                hint="erase it from the scope: scope.erase([name])",
            )
        scan.read(name, op)
        scan.deleted[name] = op


def _fetched(scan: BlockScan, op: OpDesc) -> None:
    """`fetch_barrier`, which names what was received before it and writes nothing."""
    attrs = {name: op.attrs[name] for name in ("trainer_id", "endpoints") if name in op.attrs}
    scan.add(OpDesc("fetched", {}, {}, attrs, op.source))


def _on_file(scan: BlockScan, op: OpDesc) -> None:
    """CompileError for an op on a file: what is compiled never touches one."""
    raise CompileError(
        f"{op.type} is on the file {op.attrs.get('file_path', '')!r:.200}, which no compiled "
        "program reads or writes",
        op=op_text(op),
        source=op.source,
        hint="fluid.Executor runs such ops of the main block on one device",
    )


_OWNERS: Handlers = {
    "conditional_block": conditional,
    "conditional_block_infer": conditional,
    "conditional_block_grad": unwind_conditional,
    "recurrent": recurrent,
    "recurrent_grad": recurrent_gradient,
    "while": repeat,
    "while_grad": unwind_loop,
}
_HANDLERS: Handlers = {
    "coalesce_tensor": BlockScan.coalesce,
    "delete_var": _deleted,
    "fetch_barrier": _fetched,
    "print": _named_print,
    **dict.fromkeys(("load", "load_combine", "save", "save_combine"), _on_file),
    **_OWNERS,
}


def to_graph(
    program: Program,
    feed: Mapping[str, Shape | TensorType],
    fetch: Sequence[str],
    name: str = "main",
) -> Graph:
    """The main block as a graph: `feed` maps names to shapes, or to types where the element
    type is another than the declared one; `fetch` names what to return.

    The LoD of a feed `x` is fed as `x@LOD0`, `x@LOD1`, …, offsets of the shape `(count + 1,)`; that
    of a result is returned behind it in the same way. A sparse result is returned dense. Raises
    CompileError for an unknown op, a variable nobody writes or feeds, an unknown fetch, and
    whatever types do not go together, with the op and the user's line.
    """
    check_owners(program, _OWNERS)
    block = with_earlier_values(with_own_names(program)).blocks[0]
    scan = BlockScan(block, Graph(name), handlers=_HANDLERS)
    for var, shape in feed.items():
        scan.feed(var, shape)
    for op in block.ops:
        if op.type not in _EDGES:
            scan.add(op)
    scan.shared.renew_results(scan, fetch)
    scan.graph.results = [var for fetched in fetch for var in scan.result(fetched)]
    return scan.graph
