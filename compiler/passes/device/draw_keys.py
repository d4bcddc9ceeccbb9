"""Counter-based RNG: device ops draw random numbers from keys, and dropout needs no mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.types import DType, TensorType
from compiler.options import Options
from compiler.passes.base import Context, Fact, OpTarget, Pass, role_of

KEY = "Key"
"""The input slot of ops that can draw from a key."""

DROPOUT, BY_KEY, GRADIENT = "dropout", "dropout_by_key", "dropout_grad"

SEEDS = 2**32

APART = 2
"""Stride of the keys in their tensor, see `random_keys`."""


class DrawKeys(Pass):
    """y = uniform_random()  =  keys = random_keys(); y = uniform_random(keys[i]).

    The keys of a step are one small tensor, filled by the host: with the seeds of ops that have
    one, and with new numbers in every step for those without. A dropout becomes `dropout_by_key`,
    which is pointwise. If only its gradient reads the mask, the gradient recomputes it from the
    key, and no mask is stored:

        y, m = dropout(x); …; dx = dropout_grad(m, dy)
        =  y = dropout_by_key(x, keys[i]); …; dx = dropout_by_key(dy, keys[i])

    Random numbers differ from those drawn from the seed directly; their distribution is the same.
    On CPUs, where NumPy can draw too, `unseeded_dropouts` are the only ops that draw from keys: the
    numbers of a seed are the same with native code and with NumPy.
    """

    name = "draw_keys"
    required = True
    preserves = False
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def __init__(self, supports: Callable[[Op], str], unseeded_dropouts: bool = False) -> None:
        self._supports = supports
        self._unseeded_dropouts = unseeded_dropouts

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Draw what the target supports; on a CPU, unseeded dropouts only."""
        return None if target is None else cls(target.supports, not target.on_device)

    def run(self, g: Graph, ctx: Context) -> None:
        """Find the random ops of the device, create the keys, and assign one to each."""
        drawing = [op for op in g.ops() if self._is_wanted(op) and self._can_draw_by_key(op)]
        without_seed = [op for op in drawing if not _has_computed_seed(op)]
        for op in (op for op in drawing if _has_computed_seed(op)):
            self._assign_key(g, op, op["Seed"], 0, ctx)
        if not without_seed:
            return
        keys = g.fresh("random_keys", TensorType(DType.INT64, (APART * len(without_seed),)))
        seeds = {"seeds": [_seed(op) for op in without_seed]}
        first = g.op("random_keys", {}, {"Out": [keys]}, seeds)
        g.reorder([first, *(op for op in g.ops() if op is not first)])
        for place, op in enumerate(without_seed):
            self._assign_key(g, op, keys, APART * place, ctx)

    def _is_wanted(self, op: Op) -> bool:
        """Whether an op may draw other numbers than NumPy's generator."""
        is_unseeded = op.kind == DROPOUT and not _has_computed_seed(op) and _seed(op) < 0
        return is_unseeded or not self._unseeded_dropouts

    def _can_draw_by_key(self, op: Op) -> bool:
        """Whether an op can draw on the device if it has a key."""
        if op.kind == DROPOUT:
            slots = {"X": op.inputs["X"]}, {"Out": op.outputs["Out"]}
            return not self._supports(
                Op(BY_KEY, *slots, _attributes_by_key(op, 0), op.source, None)
            )
        waits = KEY in op.defn.slots and not op.inputs.get(KEY)
        return waits and op.defn.is_random and not self._supports(op)

    def _assign_key(self, g: Graph, op: Op, keys: Var, place: int, ctx: Context) -> None:
        if op.kind == DROPOUT:
            self._replace_dropout(g, op, keys, place, ctx)
            return
        inputs = {**op.inputs, KEY: [keys]}
        g.replace(op, op.kind, inputs, op.outputs, {**op.attrs, "place": place})

    def _replace_dropout(self, g: Graph, op: Op, keys: Var, place: int, ctx: Context) -> None:
        """Replace a dropout, and its gradients too unless the mask is needed, by ones that draw by
        key.
        """
        mask = next(iter(op.outputs.get("Mask", ())), None)
        readers = g.readers(mask) if mask is not None else []
        attrs = _attributes_by_key(op, place)
        why = _obstacle(g, op, mask, readers) if mask is not None else ""
        if why:
            ctx.note_missed(self.name, op, why)
        outputs = op.outputs if why else {"Out": op.outputs["Out"]}
        for reader in [] if why else readers:
            gradient_inputs = {"X": reader.inputs["Out@GRAD"], KEY: [keys]}
            g.replace(
                reader,
                BY_KEY,
                gradient_inputs,
                {"Out": reader.outputs["X@GRAD"]},
                attrs | role_of(reader),
            )
        inputs = {"X": op.inputs["X"], KEY: [keys]}
        g.replace(op, BY_KEY, inputs, outputs, attrs | role_of(op))


def _has_computed_seed(op: Op) -> bool:
    """Whether a dropout has a seed that the program computes."""
    return op.kind == DROPOUT and bool(op.inputs.get("Seed"))


def _seed(op: Op) -> int:
    """Return the seed of an op; -1 for new numbers in every step."""
    attributes = op.defn.attributes
    seed = int(attributes.get("seed", 0))
    return seed % SEEDS if attributes.get("fix_seed", seed != 0) else -1


def _attributes_by_key(op: Op, place: int) -> dict[str, Any]:
    """Return the attributes of a dropout by key."""
    names = ("dropout_prob", "is_test", "dropout_implementation")
    return {name: op.defn.attributes[name] for name in names} | {"place": place}


def _obstacle(g: Graph, op: Op, mask: Var, readers: Sequence[Op]) -> str:
    """Return why the mask must be stored; empty if only the gradient needs it."""
    if mask in g.results or mask.role != "temp" or g.overwriter(mask) is not None:
        return f"its mask {mask.label!r} is fetched, persistable or overwritten"
    other = next((reader for reader in readers if reader.kind != GRADIENT), None)
    if other is not None:
        return f"its mask {mask.label!r} is read by {other.kind}"
    same = all(_attributes_by_key(reader, 0) == _attributes_by_key(op, 0) for reader in readers)
    return "" if same else f"a gradient that reads {mask.label!r} has other attributes"
