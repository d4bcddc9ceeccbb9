"""Partition of collectives into buckets.

Every rank must compute the same partition, so it depends only on what is equal on all ranks: sizes
of gradients (which are those of parameters), but not batch sizes or machine speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import accumulate, pairwise

from compiler.ir.dims import evaluate
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.program import OpRole
from compiler.ir.types import TOKEN, DType
from compiler.support.dataclass import dataclass

LATENCY = 2e-4
"""Latency of an all-reduce in seconds: Gloo between processes of one machine."""

BANDWIDTH = 1e9
"""All-reduce bandwidth in bytes/s: Gloo between processes of one machine, 1 to 16 MB."""

OVERHEAD = 3e-4
"""Seconds that the backward pass loses to each concurrent all-reduce."""

SECONDS_A_BYTE = 32 / 2e10
"""Seconds of the backward pass per byte of a gradient: 32 rows, 20 GFLOP/s."""

SMALLEST, LARGEST = 1 << 18, 1 << 22
"""Range of bucket bytes in the cost model: smaller ones are latency-bound, larger ones start
late.
"""


MOST = 64
"""Maximum number of buckets in the cost model, unless the sizes of gradients require more."""


PIECES = 128
"""Maximum number of groups of neighbouring gradients that the cost model considers."""


ROOTS = {"c_allreduce_sum": "", "c_reduce_sum": "root_id", "c_broadcast": "root"}
"""Collectives that can be bucketed, and their root attribute."""


@dataclass(frozen=True)
class BucketKey:
    """What bucketed collectives have in common; `root` is 0 for all-reduces."""

    kind: str
    ring: int
    root: int
    dtype: DType


@dataclass(eq=False)
class Run:
    """Independent collectives of one route."""

    route: BucketKey
    ops: list[Op] = field(default_factory=list[Op])


def runs(g: Graph) -> list[Run]:
    """Return the runs of collectives that can be bucketed, in order.

    A run ends before the first op that depends on one of its results and is itself ordered with the
    collectives.
    """
    result: list[Run] = []
    open_runs: dict[BucketKey, Run] = {}
    waits: dict[Op, frozenset[Run]] = {}
    ops = g.ops()
    for op in ops if any(op.defn.is_ordered() for op in ops) else ():
        waits[op] = frozenset[Run]().union(
            *(waits[producer] for producer in _data_producers(g, op))
        )
        if not op.defn.is_ordered():
            continue
        open_runs = {key: run for key, run in open_runs.items() if run not in waits[op]}
        if may_join(op):
            route = _route(op)
            if route not in open_runs:
                result.append(open_runs.setdefault(route, Run(route)))
            open_runs[route].ops.append(op)
            waits[op] |= {open_runs[route]}
    return result


def _route(op: Op) -> BucketKey:
    attributes = op.defn.attributes
    root = attributes.get(ROOTS[op.kind], 0)
    return BucketKey(op.kind, attributes["ring_id"], root, op["X"].type.dtype)


def _data_producers(g: Graph, op: Op) -> list[Op]:
    """Return the ops that an op depends on by data."""
    tokens = {g.producer(var) for var in op.reads() if var.type == TOKEN}
    data = {g.producer(var) for var in op.reads() if var.type != TOKEN}
    return [
        predecessor
        for predecessor in g.predecessors(op)
        if predecessor in data or predecessor not in tokens
    ]


def may_join(op: Op) -> bool:
    """Whether a collective can be bucketed with others of its route.

    Its value is dense, of known size, and it need not be synchronous. A summed value is a
    temporary; a broadcast value is the output of an update, which only its owner computes.
    """
    if op.kind not in ROOTS or op.defn.attributes["use_calc_stream"]:
        return False
    vars: list[Var] = [op["X"], op["Out"]]
    sized = all(isinstance(var.type.numel, int) and not var.type.is_array for var in vars)
    if op.kind == "c_broadcast":
        return sized and bool(op.attrs.get("op_role", 0) & OpRole.OPTIMIZE)
    return sized and all(var.role == "temp" and var.overwrites is None for var in vars)


def computed_in_order(g: Graph, run: Run) -> list[Op]:
    """Return collectives in the order in which their inputs are computed; feeds first.

    Broadcasts keep their order: only the root computes their inputs.
    """
    if run.route.kind == "c_broadcast":
        return run.ops
    index = {op: i for i, op in enumerate(g.ops())}
    makers = {op: g.producer(op["X"]) for op in run.ops}
    return sorted(
        run.ops, key=lambda op: -1 if (producer := makers[op]) is None else index[producer]
    )


def value_bytes(op: Op) -> int:
    """Return the bytes that a collective of known size transfers."""
    return evaluate(op["X"].type.nbytes, {})


def cut(sizes: Sequence[int], bucket_bytes: int | None) -> list[int]:
    """Return how many gradients each bucket has; `sizes` are their bytes in the order they are
    computed.

    With `bucket_bytes`, a bucket is closed before it would exceed that size. Without, the cost
    model chooses: as few small buckets as possible, then the earliest end of the last all-reduce,
    where each starts once its gradients are computed and the previous one has ended, and delays
    the backward pass a little.

    >>> cut([100, 100, 100], 250)
    [2, 1]
    """
    if bucket_bytes is not None:
        return filled(sizes, bucket_bytes)
    together = filled(sizes, max(SMALLEST // 4, sum(sizes) // PIECES))
    starts = [0, *accumulate(together)]
    pieces = _cheapest([sum(sizes[a:b]) for a, b in pairwise(starts)])
    ends = [0, *accumulate(pieces)]
    return [starts[b] - starts[a] for a, b in pairwise(ends)]


def filled(sizes: Sequence[int], limit: int) -> list[int]:
    """Return how many values each bucket has if buckets are filled greedily up to a limit of
    bytes.
    """
    counts, total = list[int](), 0
    for size in sizes:
        if counts and total + size <= limit:
            counts[-1] += 1
            total += size
        else:
            counts.append(1)
            total = size
    return counts


@dataclass(frozen=True)
class _Choice:
    """A partition of a prefix of the gradients: number of small buckets, end time of the last one,
    number of buckets, gradients in the last one, and the partition without it.
    """

    small: int = 0
    end: float = 0.0
    count: int = 0
    held: int = 0
    before: _Choice | None = None

    @property
    def cost(self) -> tuple[int, float]:
        """The objective to minimise."""
        return self.small, self.end + self.count * OVERHEAD

    def then(self, held: int, nbytes: int, ready: float) -> _Choice:
        """Append a bucket, which starts after its gradients and the previous bucket."""
        end = max(self.end, ready) + LATENCY + nbytes / BANDWIDTH
        return _Choice(self.small + (nbytes < SMALLEST), end, self.count + 1, held, self)


def _cheapest(sizes: Sequence[int]) -> list[int]:
    """Return the cheapest partition, by dynamic programming over bucket ends and counts."""
    ends = [0, *accumulate(sizes)]
    partitions = [[_Choice()]]
    for stop in range(1, len(ends)):
        ready = ends[stop] * SECONDS_A_BYTE
        choices = [
            choice.then(stop - start, ends[stop] - ends[start], ready)
            for start in _starts(sizes, stop)
            for choice in partitions[start]
        ]
        partitions.append(_pareto_optimal(choices))
    counts, choice = list[int](), min(partitions[-1], key=lambda each: each.cost)
    while choice.before is not None:
        counts.append(choice.held)
        choice = choice.before
    return counts[::-1]


def _pareto_optimal(choices: Sequence[_Choice]) -> list[_Choice]:
    """Return the Pareto-optimal partitions by number of buckets, up to `MOST` buckets."""
    optimal: list[_Choice] = []
    for choice in sorted(choices, key=lambda each: (each.count, each.small, each.end)):
        is_better = not optimal or (choice.small, choice.end) < (optimal[-1].small, optimal[-1].end)
        if is_better and (choice.count <= MOST or not optimal):
            optimal.append(choice)
    return optimal


def _starts(sizes: Sequence[int], stop: int) -> list[int]:
    """Return the possible starts of a bucket that ends before `stop`.

    It exceeds the maximum only if a large gradient is joined by small ones.
    """
    starts, total, largest = list[int](), 0, 0
    for start in range(stop - 1, -1, -1):
        total, largest = total + sizes[start], max(largest, sizes[start])
        if total > LARGEST and total - largest >= SMALLEST:
            break
        starts.append(start)
    return starts
