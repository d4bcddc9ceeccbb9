"""Which values travel between ranks together: runs of collectives, cut into buckets.

Every rank must cut alike, so nothing counts here that may differ from rank to rank: the sizes of
gradients, which are those of parameters, do not; batches and the speed of a machine do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from compiler.ir.dims import evaluate
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.program import OpRole
from compiler.ir.types import TOKEN, DType

LATENCY = 2e-4
"""Seconds that an all-reduce of few bytes takes: Gloo between processes of one machine."""

BANDWIDTH = 1e9
"""Bytes a second that an all-reduce moves: Gloo between processes of one machine, 1 to 16 MB."""

OVERHEAD = 3e-4
"""Seconds that the backward pass loses to an all-reduce that runs beside it."""

SECONDS_A_BYTE = 32 / 2e10
"""Seconds of the backward pass for each byte of a gradient: 32 rows, 20 G operations a second."""

SMALLEST, LARGEST = 1 << 18, 1 << 22
"""Bytes of a bucket where the cost model chooses: less is latency, more starts too late."""


MOST = 64
"""Buckets that the cost model weighs at most, where the sizes of gradients ask for no more."""


PIECES = 128
"""Into how many pieces of neighbours gradients are joined at most before the model weighs them."""


ROOTS = {"c_allreduce_sum": "", "c_reduce_sum": "root_id", "c_broadcast": "root"}
"""Collectives that may be joined, and the attribute that has their root."""


@dataclass(frozen=True)
class Route:
    """What collectives have in common that may be joined; `root` is 0 for all-reduces."""

    kind: str
    ring: int
    root: int
    dtype: DType


@dataclass(eq=False)
class Run:
    """Collectives of one route, none of which waits for another."""

    route: Route
    ops: list[Op] = field(default_factory=list[Op])


def runs(g: Graph) -> list[Run]:
    """The collectives that may be joined, in order.

    A run ends before the first op that waits for one of its results and must keep its place among
    the collectives.
    """
    found: list[Run] = []
    open_runs: dict[Route, Run] = {}
    waits: dict[Op, frozenset[Run]] = {}
    for op in g.ops():
        waits[op] = frozenset[Run]().union(*(waits[each] for each in _makers(g, op)))
        if not op.defn.is_ordered():
            continue
        open_runs = {key: run for key, run in open_runs.items() if run not in waits[op]}
        if may_join(op):
            route = _route(op)
            if route not in open_runs:
                found.append(open_runs.setdefault(route, Run(route)))
            open_runs[route].ops.append(op)
            waits[op] |= {open_runs[route]}
    return found


def _route(op: Op) -> Route:
    attributes = op.defn.attributes
    root = attributes.get(ROOTS[op.kind], 0)
    return Route(op.kind, attributes["ring_id"], root, op["X"].type.dtype)


def _makers(g: Graph, op: Op) -> list[Op]:
    """The ops an op waits for because of data."""
    tokens = {g.producer(var) for var in op.reads() if var.type == TOKEN}
    data = {g.producer(var) for var in op.reads() if var.type != TOKEN}
    return [each for each in g.predecessors(op) if each in data or each not in tokens]


def may_join(op: Op) -> bool:
    """Whether a collective may travel with others of its route.

    Its value is dense and of a known size, and it need not be done at once. What is summed is a
    temporary; what is broadcast comes from an update, which an optimizer's owner alone computes.
    """
    if op.kind not in ROOTS or op.defn.attributes["use_calc_stream"]:
        return False
    vars: list[Var] = [op["X"], op["Out"]]
    sized = all(isinstance(var.type.numel, int) and not var.type.is_array for var in vars)
    if op.kind == "c_broadcast":
        return sized and bool(op.attrs.get("op_role", 0) & OpRole.OPTIMIZE)
    return sized and all(var.role == "temp" and var.overwrites is None for var in vars)


def computed_in_order(g: Graph, run: Run) -> list[Op]:
    """Collectives in the order in which what they move is computed; what is fed comes first.

    Broadcasts stay as they are: only their root computes what they move.
    """
    if run.route.kind == "c_broadcast":
        return run.ops
    index = {op: i for i, op in enumerate(g.ops())}
    makers = {op: g.producer(op["X"]) for op in run.ops}
    return sorted(run.ops, key=lambda op: -1 if (made := makers[op]) is None else index[made])


def value_bytes(op: Op) -> int:
    """The bytes that a collective of a known size moves."""
    return evaluate(op["X"].type.nbytes, {})


def cut(sizes: Sequence[int], bucket_bytes: int | None) -> list[int]:
    """How many gradients each bucket has; `sizes` are their bytes in the order they are computed.

    With `bucket_bytes` a bucket is full when one more gradient would make it larger than that.
    Without, the cost model chooses: no bucket is small where that can be; then the last all-reduce
    is done as early as can be, where each starts once its gradients are there and the one before
    it is done, and costs the backward pass a little.

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
    """How many values each bucket has where it is filled up to a limit of bytes."""
    counts, held = list[int](), 0
    for size in sizes:
        if counts and held + size <= limit:
            counts[-1] += 1
            held += size
        else:
            counts.append(1)
            held = size
    return counts


@dataclass(frozen=True)
class _Choice:
    """Buckets up to some gradient: how many are small, when the last one is summed, how many there
    are, how many gradients the last one has, and the choice without it.
    """

    small: int = 0
    end: float = 0.0
    count: int = 0
    held: int = 0
    before: _Choice | None = None

    @property
    def cost(self) -> tuple[int, float]:
        """What is to be least."""
        return self.small, self.end + self.count * OVERHEAD

    def then(self, held: int, nbytes: int, ready: float) -> _Choice:
        """With another bucket, which waits for its gradients and for the bucket before it."""
        end = max(self.end, ready) + LATENCY + nbytes / BANDWIDTH
        return _Choice(self.small + (nbytes < SMALLEST), end, self.count + 1, held, self)


def _cheapest(sizes: Sequence[int]) -> list[int]:
    """Dynamic programming over the ends of buckets; for each, the best choice of each count."""
    ends = [0, *accumulate(sizes)]
    found = [[_Choice()]]
    for stop in range(1, len(ends)):
        ready = ends[stop] * SECONDS_A_BYTE
        choices = [
            choice.then(stop - start, ends[stop] - ends[start], ready)
            for start in _starts(sizes, stop)
            for choice in found[start]
        ]
        found.append(_worth_keeping(choices))
    counts, choice = list[int](), min(found[-1], key=lambda each: each.cost)
    while choice.before is not None:
        counts.append(choice.held)
        choice = choice.before
    return counts[::-1]


def _worth_keeping(choices: Sequence[_Choice]) -> list[_Choice]:
    """Those than which none with as few buckets is better, up to `MOST` buckets."""
    kept: list[_Choice] = []
    for choice in sorted(choices, key=lambda each: (each.count, each.small, each.end)):
        is_better = not kept or (choice.small, choice.end) < (kept[-1].small, kept[-1].end)
        if is_better and (choice.count <= MOST or not kept):
            kept.append(choice)
    return kept


def _starts(sizes: Sequence[int], stop: int) -> list[int]:
    """Where a bucket that ends before `stop` may begin.

    It is too large only where a gradient that is large by itself takes small ones along.
    """
    found, held, largest = list[int](), 0, 0
    for start in range(stop - 1, -1, -1):
        held, largest = held + sizes[start], max(largest, sizes[start])
        if held > LARGEST and held - largest >= SMALLEST:
            break
        found.append(start)
    return found
