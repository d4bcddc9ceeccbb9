"""All-reduces of gradients in buckets, overlapped with the backward pass.

Reductions to the owner of a parameter, and broadcasts of updated parameters, are bucketed too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, TypeAlias

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef import find
from compiler.ir.types import DType
from compiler.options import Options
from compiler.passes.base import Context, Fact, OpTarget, Pass, role_of
from compiler.passes.distribute.buckets import (
    LARGEST,
    ROOTS,
    BucketKey,
    Run,
    computed_in_order,
    cut,
    filled,
    may_join,
    runs,
    value_bytes,
)
from compiler.passes.distribute.overlap import overlapped
from compiler.support.dataclass import dataclass

Slots: TypeAlias = Mapping[str, Sequence[Var]]

NARROW = {"fp16": DType.FP16, "bf16": DType.BF16}
"""Element types in which buckets may be transferred."""


BUCKET_OPS = {
    "c_allreduce_sum": "all_reduce_bucket",
    "c_reduce_sum": "reduce_bucket",
    "c_broadcast": "broadcast_bucket",
}
"""The synchronous bucketed op, by the op that transfers a single value."""


class BucketAllReduces(Pass):
    """a' = sum of a, b' = sum of b over the ranks  =  both in one flat bucket, one all-reduce.

    The all-reduce of a bucket starts as soon as its last gradient is computed, and is waited for
    just before its first reader; without `overlap` it is synchronous. Buckets contain gradients of
    one ring and element type, at most `bucket_bytes`, or as many as the cost model chooses; with
    `compress` they are cast to half precision for the transfer, which changes numbers. All
    collectives are chained anew, a bucket in the position of its last gradient, so their order is
    the same on every rank.

    If each parameter has an owner (`c_reduce_sum`, then `c_broadcast` of the update), a bucket has
    the gradients, or the parameters, of one owner; it is transferred synchronously.
    """

    name = "bucket_all_reduces"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def __init__(
        self, bucket_bytes: int | None = None, overlap: bool = True, compress: str | None = None
    ) -> None:
        self.bucket_bytes = bucket_bytes
        self.overlap = overlap
        self.wire = NARROW.get(compress or "")
        self.preserves = compress is None

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Return the pass with the bucket size, overlap and compression of the options."""
        if cls.name in options.disable:
            return None
        return cls(options.bucket_bytes, options.overlap, options.compress)

    def run(self, g: Graph, ctx: Context) -> None:
        """Split runs of all-reduces into buckets, insert those, and schedule the communication."""
        for op in g.ops():
            if op.kind == "c_allreduce_sum" and not may_join(op):
                ctx.note_missed(self.name, op, "it is persistable, synchronous, or of unknown size")
        buckets = {bucket.at: bucket for run in runs(g) for bucket in self._buckets(g, run)}
        members = {op for bucket in buckets.values() for op in bucket.ops}
        order = [op for op in g.ops() if op.defn.is_ordered() and op.outputs.get("After")]
        g.remove(*members)
        last: Var | None = None
        for op in order if buckets else []:
            if op in buckets:
                last = _Writer(g, buckets[op], self.overlap).write(last)
            elif op not in members:
                last = _chained(g, op, last)
        if buckets:
            _schedule_communication(g)

    def _buckets(self, g: Graph, run: Run) -> Iterator[_Bucket]:
        """Yield the buckets of a run, in the order in which their gradients are computed.

        A bucket that ends with the n-th gradient takes the position of the n-th all-reduce.
        """
        ready, start, route = computed_in_order(g, run), 0, run.route
        is_narrowed = route.kind != "c_broadcast" and route.dtype in (DType.FP32, DType.FP64)
        wire = self.wire if is_narrowed else None
        for count in self._counts(route, [value_bytes(op) for op in ready]):
            stop = start + count
            yield _Bucket(route, ready[start:stop], run.ops[stop - 1], wire)
            start = stop

    def _counts(self, route: BucketKey, sizes: Sequence[int]) -> list[int]:
        """Return how many values each bucket has; rooted collectives do not overlap with
        anything.
        """
        if route.kind == "c_allreduce_sum":
            return cut(sizes, self.bucket_bytes)
        return filled(sizes, self.bucket_bytes or LARGEST)


@dataclass(frozen=True)
class _Bucket:
    """Values that are transferred together, their original ops, and their route.

    `at` is the collective whose position it takes, which may belong to another bucket.
    """

    route: BucketKey
    ops: list[Op]
    at: Op
    wire: DType | None

    @property
    def name(self) -> str:
        """Name in messages: its only gradient, or its first and its last."""
        first, last = self.ops[0]["X"].name, self.ops[-1]["X"].name
        return first if len(self.ops) == 1 else f"{first}..{last}"

    @property
    def described(self) -> str:
        """Names and types of its values, for the schedule that ranks compare."""
        members = ((op["X"].name, op["X"].type.shape) for op in self.ops)
        gradients = ", ".join(f"{name}[{', '.join(map(str, shape))}]" for name, shape in members)
        return f"{gradients} {(self.wire or self.route.dtype).numpy.name}"


class _Writer:
    """Inserts the ops of one bucket in place of a collective."""

    def __init__(self, g: Graph, bucket: _Bucket, overlap: bool) -> None:
        self.g = g
        self.bucket = bucket
        self.overlap = overlap and bucket.route.kind == "c_allreduce_sum"
        self.at = bucket.at

    def write(self, before: Var | None) -> Var:
        """Pack, transfer, unpack; return the token. A single value is not packed."""
        inputs, outs = ([op[slot] for op in self.bucket.ops] for slot in ("X", "Out"))
        alone, wire = outs[0] if len(outs) == 1 else None, self.bucket.wire
        value = inputs[0] if alone else self._packed(inputs)
        if wire is None:
            value = self._transferred(value, before, alone)
        else:
            value = self._transferred(self._cast(value, wire), before, None)
            value = self._cast(value, self.bucket.route.dtype, alone)
        if alone is None:
            shapes = {"shapes": [list(var.type.shape) for var in outs]}
            self._op("unpack_bucket", {"X": [value]}, {"Out": outs}, shapes)
        return self.at["After"]

    def _packed(self, values: list[Var]) -> Var:
        types = find("pack_bucket")(None).infer_types({"X": [value.type for value in values]})
        flat = self.g.fresh(f"{self.bucket.name}@BUCKET", types["Out"])
        self._op("pack_bucket", {"X": values}, {"Out": [flat]}, {})
        return flat

    def _cast(self, var: Var, dtype: DType, out: Var | None = None) -> Var:
        out = out or self.g.fresh(f"{var.name}.{dtype.name.lower()}", var.type.with_dtype(dtype))
        attrs = {"in_dtype": var.type.dtype.code, "out_dtype": dtype.code}
        self._op("cast", {"X": [var]}, {"Out": [out]}, attrs)
        return out

    def _transferred(self, flat: Var, before: Var | None, out: Var | None) -> Var:
        """Insert the collective; return the bucket summed over the ranks or broadcast to them."""
        route = self.bucket.route
        out = out or self.g.fresh(f"{flat.name}.moved", flat.type)
        begun = self.g.fresh(f"{flat.name}.begun", flat.type) if self.overlap else out
        attrs: dict[str, Any] = {"variable": self.bucket.name, "ring_id": route.ring}
        inputs = {"X": [flat], "Before": [] if before is None else [before]}
        outputs = {"Out": [begun], "After": [self.at["After"]]}
        kind = "start_all_reduce" if self.overlap else BUCKET_OPS[route.kind]
        root = {ROOTS[route.kind]: route.root} if ROOTS[route.kind] else {}
        self._op(kind, inputs, outputs, attrs | root | {"described": self.bucket.described})
        if self.overlap:
            self._op("wait_all_reduce", {"X": [begun]}, {"Out": [out]}, attrs)
        return out

    def _op(self, kind: str, inputs: Slots, outputs: Slots, attrs: dict[str, Any]) -> None:
        attrs = attrs | role_of(self.at)
        self.g.op(kind, inputs, outputs, attrs, self.at.source, place=self.at.position)


def _chained(g: Graph, op: Op, last: Var | None) -> Var:
    """Make a collective wait for the one that is now before it; return its token."""
    tokens = [] if last is None else [last]
    if op.inputs.get("Before", []) != tokens:
        g.remove(op)
        inputs, place = {**op.inputs, "Before": tokens}, op.position
        new_op = g.op(op.kind, inputs, op.outputs, op.attrs, op.source, op.body, place=place)
        new_op.target = op.target
    return op["After"]


def _schedule_communication(g: Graph) -> None:
    """Reorder: start communication early, wait late; readers of a bucket follow it."""
    ops = g.ops()
    number = {op: index for index, op in enumerate(ops)}
    before = [[number[predecessor] for predecessor in g.predecessors(op)] for op in ops]
    early = [op.defn.schedule_early for op in ops]
    late = [op.defn.schedule_late for op in ops]
    order = overlapped(range(len(ops)), before, early.__getitem__, late.__getitem__)
    g.reorder(ops[index] for index in order)
