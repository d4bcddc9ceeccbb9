"""Program → Graph: converts the main block; owned blocks become bodies of their ops.

Unknown sizes (-1) are resolved here: the caller passes the shapes of the feeds, as numbers or
symbolic `Dim`s, and every op infers its outputs. The last version of a persistable variable is its
value after the step.

A graph has three ops with a body. `if` runs it if its condition holds, `loop` while it holds, and
both may save values of each iteration; `unwind` runs its body once per saved iteration, last first.
So `while` becomes `loop`, and the gradients of `while` and conditional blocks become `unwind`.
Captured values are the body's feeds, the values it defines outside its results; a value that it
updates is both, in one storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.errors import CompileError
from compiler.ir.conversion.block_owners import check_owners
from compiler.ir.conversion.block_walk import BlockWalk, Handlers
from compiler.ir.conversion.control_flow import conditional, repeat
from compiler.ir.conversion.control_flow_grad import conditional_gradient, loop_gradient
from compiler.ir.conversion.overwritten_values import with_saved_values
from compiler.ir.conversion.recurrent import recurrent, recurrent_gradient
from compiler.ir.conversion.reused_names import with_original_names
from compiler.ir.graph import Graph
from compiler.ir.opdef.type_inference import op_text
from compiler.ir.program import OpDesc, Program
from compiler.ir.types import Shape, TensorType

_EDGES = ("feed", "fetch")


def _convert_print(walk: BlockWalk, op: OpDesc) -> None:
    """Add a `print` with the program's name of its operand, since a graph has versions of names."""
    attrs = {**op.attrs, "In_name": op.inputs["In"][0]}
    walk.add(OpDesc("print_named", op.inputs, op.outputs, attrs, op.source))


def _convert_delete_var(walk: BlockWalk, op: OpDesc) -> None:
    """Convert `delete_var`: later ops that read the variable raise an error.

    Its memory is not freed here: passes that know the schedule decide about that. A fetched value
    is kept. Raises CompileError for a persistable variable.
    """
    for name in op.reads():
        if walk.is_state(name):
            raise CompileError(
                f"{name!r} is persistable, so the program cannot delete it",
                op=op_text(op),
                source=op.source,
                hint="erase it from the scope: scope.erase([name])",
            )
        walk.read(name, op)
        walk.current.deleted[name] = op


def _convert_fetch_barrier(walk: BlockWalk, op: OpDesc) -> None:
    """Convert `fetch_barrier`, which has operands but no data."""
    attrs = {name: op.attrs[name] for name in ("trainer_id", "endpoints") if name in op.attrs}
    walk.add(OpDesc("fetched", {}, {}, attrs, op.source))


def _reject_file_op(walk: BlockWalk, op: OpDesc) -> None:
    """Raise CompileError for an op on a file: compiled programs never access files."""
    raise CompileError(
        f"{op.type} accesses the file {op.attrs.get('file_path', '')!r:.200}, which compiled "
        "programs cannot",
        op=op_text(op),
        source=op.source,
        hint="fluid.Executor runs such ops of the main block on one device",
    )


_OWNERS: Handlers = {
    "conditional_block": conditional,
    "conditional_block_infer": conditional,
    "conditional_block_grad": conditional_gradient,
    "recurrent": recurrent,
    "recurrent_grad": recurrent_gradient,
    "while": repeat,
    "while_grad": loop_gradient,
}
_HANDLERS: Handlers = {
    "coalesce_tensor": BlockWalk.coalesce,
    "delete_var": _convert_delete_var,
    "fetch_barrier": _convert_fetch_barrier,
    "print": _convert_print,
    **dict.fromkeys(("load", "load_combine", "save", "save_combine"), _reject_file_op),
    **_OWNERS,
}


def to_graph(
    program: Program,
    feed: Mapping[str, Shape | TensorType],
    fetch: Sequence[str],
    name: str = "main",
) -> Graph:
    """Convert the main block of a program to a graph.

    `feed` maps names to shapes, or to types where the element type is not the declared one; `fetch`
    names the results. The LoD of feed `x` is fed as `x@LOD0`, `x@LOD1`, …, offsets of shape `(count
    + 1,)`; that of a result is returned after it in the same way. A sparse result is returned
    dense. Raises CompileError for an unknown op, a variable that is neither written nor fed, an
    unknown fetch, and incompatible types, with the op and the user's line.
    """
    check_owners(program, _OWNERS)
    block = with_saved_values(with_original_names(program)).blocks[0]
    walk = BlockWalk(block, Graph(name), handlers=_HANDLERS)
    for var, shape in feed.items():
        walk.feed(var, shape)
    for op in block.ops:
        if op.type not in _EDGES:
            walk.add(op)
    walk.shared.refresh_results(walk, fetch)
    walk.graph.results = [var for fetched in fetch for var in walk.result(fetched)]
    return walk.graph
