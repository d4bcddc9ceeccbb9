"""Products for which a library of the GPU's vendor was measured to be faster are given to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from compiler.ir.analysis.liveness import kernels
from compiler.ir.analysis.placement import LIBRARY, TRITON
from compiler.ir.dims import Size
from compiler.ir.graph import Graph, Op
from compiler.ir.libraries import ChooseLibrary, LibraryChoice, MatrixProduct, SplitWork
from compiler.ir.types import HALVES
from compiler.options import Options
from compiler.passes.base import Context, Fact, OpTarget, Pass


class CallLibraries(Pass):
    """dx, dw = mul_grad(x, w, dy) @triton  =  dw = mul_grad(…) @library; dx = mul_grad(…) @triton.

    An output that is a product of two matrices in half precision becomes an op of its own. What the
    kernel of the product also did is then done by others, which counts: the epilogue, and sums of
    the columns of a factor. Times are those that were measured on the GPU.
    """

    name = "call_libraries"
    invalidates = frozenset({Fact.ORDERED, Fact.STORED})

    def __init__(self, choose: ChooseLibrary | None = None, gpu: str = "", tiles: str = "") -> None:
        self._choose = choose
        self._gpu = gpu
        self._tiles = tiles

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Run for a GPU that is known, unless `options.libraries` is False."""
        is_wanted = options.libraries and options.gpu and cls.name not in options.disable
        if not is_wanted or target is None or target.libraries is None:
            return None
        return cls(target.libraries, options.gpu, options.tiles)

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit the first op of each kernel, whose epilogue the others are."""
        for op, *epilogue in kernels(g):
            choices = {
                slot: (product, choice)
                for slot, product in _products(op).items()
                if (choice := self._choice(g, op, slot, product, epilogue)) is not None
            }
            chosen = {
                slot: product for slot, (product, choice) in choices.items() if choice.is_faster
            }
            for _, choice in choices.values():
                note = ctx.note_applied if choice.is_faster else ctx.note_missed
                note(self.name, op, choice.reason)
            if chosen:
                _split(g, op, list(chosen))
        g.reorder(g.ops())

    def _choice(
        self, g: Graph, op: Op, slot: str, product: MatrixProduct, epilogue: Sequence[Op]
    ) -> LibraryChoice | None:
        split = _epilogue_work(g, op, slot, epilogue)
        if op.outputs.get(product.sums):
            split = replace(
                split, summed=_nbytes(op, product.right[0]), launches=split.launches + 2
            )
        return self._choose and self._choose(product, split, self._gpu, self._tiles)


def _products(op: Op) -> dict[str, MatrixProduct]:
    """Return the outputs of an op that a library may compute."""
    values = [*op.reads(), *op.writes()]
    is_plain = op.target == TRITON and op.part is None
    is_plain = is_plain and all(v.type.dtype in HALVES and not v.type.is_open for v in values)
    if not is_plain:
        return {}
    types = {slot: [var.type for var in vars] for slot, vars in op.inputs.items()}
    products = op.defn.matrix_products(types)
    return {slot: product for slot, product in products.items() if op.outputs.get(slot)}


def _epilogue_work(g: Graph, op: Op, slot: str, epilogue: Sequence[Op]) -> SplitWork:
    """Return what an epilogue has to do alone: read a result, which is stored for it."""
    if not epilogue or slot != op.defn.epilogue_output(op.target):
        return SplitWork()
    result, members = op[slot], {*epilogue}
    is_stored = result in g.results or not members.issuperset(g.readers(result))
    return SplitWork(_nbytes(op, slot) * (1 if is_stored else 2), launches=1)


def _nbytes(op: Op, slot: str) -> Size:
    return op[slot].type.nbytes


def _split(g: Graph, op: Op, slots: Sequence[str]) -> None:
    """Replace an op by one for each of some outputs, for the library, and one for the others."""
    rest = {slot: vars for slot, vars in op.outputs.items() if slot not in slots}
    kernel = None if op.defn.epilogue_output(op.target) in slots else op.kernel
    g.remove(op)
    for slot in slots:
        outputs = {slot: op.outputs[slot]}
        made = g.op(op.kind, op.inputs, outputs, op.attrs, op.source, place=op.position)
        made.target = LIBRARY
    if rest:
        made = g.op(op.kind, op.inputs, rest, op.attrs, op.source, place=op.position)
        made.target, made.kernel = op.target, kernel
