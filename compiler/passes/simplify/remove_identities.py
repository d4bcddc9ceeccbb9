"""Removes ops that return their input unchanged."""

from __future__ import annotations

from compiler.ir.analysis.memory_writes import shared
from compiler.ir.graph import Graph, Op, Var
from compiler.passes.base import Context, Fact, Pass
from compiler.passes.norm_folding import NORMS, is_frozen
from compiler.passes.simplify.value_replacement import merge, replacement_obstacle

_ALWAYS = frozenset({"assign", "cast", "sum", "concat", "c_sync_calc_stream", "c_sync_comm_stream"})
"""Ops that return their input (of a list, the only item) if its type does not change."""

_BY_SHAPE = frozenset(
    "expand expand_as slice reshape reshape2 flatten flatten2 squeeze squeeze2 unsqueeze unsqueeze2"
    " flatten_contiguous_range".split()
)
"""Ops that return their input if no size changes and all sizes are known."""

_STATISTICS = ("Mean", "Variance")
"""Inputs that a batch norm with fixed statistics returns as `MeanOut` and `VarianceOut`."""


class RemoveIdentities(Pass):
    """y = x  =  the readers of y read x.

    Copies, a scale by 1, a cast or a reshape to the same type, a sum of one value, a transpose by
    the identity, gradients of a sum without broadcasting. So are the running statistics of a batch
    norm that does not update them; after this pass it writes no state.
    """

    name = "remove_identities"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit statistics first, from the last writer, so that a chain of them is removed
        entirely.
        """
        for op in reversed(g.ops()):
            frozen = op.kind in NORMS and is_frozen(op.defn.attributes)
            if frozen and "MeanOut" in op.outputs and "VarianceOut" in op.outputs:
                _bypass_statistics(g, op)
        for op in g.ops():
            original = _forwarded_input(op)
            if original is not None and (why := merge(g, op, op["Out"], original)):
                ctx.note_missed(self.name, op, why)
            elif original is None:
                _share(g, op)


def _share(g: Graph, op: Op) -> None:
    """Redirect readers of an output that equals an input, by the op's sharing rule; others
    remain.
    """
    same = {
        output: source
        for source, output, share in shared(op)
        if share.size is None and source in op.reads() and [output] in op.outputs.values()
        and output not in g.results and not replacement_obstacle(g, output, source)
    }  # fmt: skip
    if not same:
        return
    others = {slot: vars for slot, vars in op.outputs.items() if same.keys().isdisjoint(vars)}
    if others:
        g.replace(op, op.kind, op.inputs, others, op.attrs)
    else:
        g.remove(op)
    for output, source in same.items():
        g.replace_uses(output, source)
        if others:
            g.drop(output)


def _forwarded_input(op: Op) -> Var | None:
    """Return the var whose value an op returns unchanged; None if there is none."""
    inputs = op.inputs.get("X") or op.inputs.get("Input", [])
    if len(op.inputs) != 1 or len(inputs) != 1:
        return None
    return inputs[0] if _is_identity(op, inputs[0]) else None


def _is_identity(op: Op, given: Var) -> bool:
    attributes = op.defn.attributes
    if op.kind == "scale":
        return attributes["scale"] == 1.0 and not attributes["bias"]
    if op.kind in ("transpose", "transpose2"):
        return attributes["axis"] == list(range(given.type.rank))
    if op.kind in _BY_SHAPE:
        return given.type == op["Out"].type and not given.type.is_open
    return op.kind in _ALWAYS and given.type == op["Out"].type


def _bypass_statistics(g: Graph, norm: Op) -> None:
    """Redirect readers of statistics to the batch norm's inputs, unless the outputs are needed."""
    pairs = {slot: (norm[slot], norm.outputs[slot + "Out"]) for slot in _STATISTICS}
    if any(
        why for source, results in pairs.values() for why in _statistics_users(g, source, results)
    ):
        return
    outputs = {s: vars for s, vars in norm.outputs.items() if s.removesuffix("Out") not in pairs}
    g.replace(norm, norm.kind, norm.inputs, outputs, norm.attrs)
    for source, results in pairs.values():
        g.replace_uses(results[0], source)
        g.drop(results[0])


def _statistics_users(g: Graph, given: Var, made: list[Var]) -> list[Var]:
    """Return the vars that require the returned statistics as a separate var."""
    others = [made[0]] if made[0] in g.results or made[0].overwrites is not given else []
    return others + [var for var in [g.overwriter(made[0])] if var is not None]
