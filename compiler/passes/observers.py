"""Observers of a pipeline: timer, recorder for reports, and a guard against changed numbers.

Dumps are in `compiler.passes.dump`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from compiler.errors import VerifyError
from compiler.interpret import run
from compiler.ir.analysis.liveness import kernels, lives
from compiler.ir.dims import evaluate
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.program import OpRole
from compiler.ir.text.printer import lines_with_ops, show
from compiler.ir.types import TOKEN, Array, TensorType
from compiler.passes.base import Context, Pass, Remark
from compiler.record import OpNote, RemarkNote, Stage, VarNote


class Timer:
    """Milliseconds and number of ops for each pass, including verification."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, float] = {}
        self.ops: list[tuple[str, int]] = []

    def start(self, g: Graph, ctx: Context) -> None:
        """Record the initial number of ops."""
        self.ops = [("start", len(g))]

    def before(self, each: Pass, g: Graph) -> None:
        """Do nothing."""

    def after(self, each: Pass, g: Graph, ctx: Context) -> None:
        """Record time and number of ops."""
        self.milliseconds[each.name] = ctx.milliseconds[each.name]
        self.ops.append((each.name, len(g)))


class Recorder:
    """Records a `Stage` of the graph before the first and after each pass, for reports."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self._reported = [0, 0]

    def start(self, g: Graph, ctx: Context) -> None:
        """Record the initial graph."""
        self.stages = [stage(g, "start", "The initial graph, before the first pass.")]

    def before(self, each: Pass, g: Graph) -> None:
        """Do nothing."""

    def after(self, each: Pass, g: Graph, ctx: Context) -> None:
        """Record the graph after the pass, and its missed and applied optimisations."""
        spent, remarks = ctx.milliseconds[each.name], (ctx.missed, ctx.applied)
        pairs = zip(remarks, self._reported, strict=True)
        missed, applied = (tuple(map(_remark_note, made[known:])) for made, known in pairs)
        noted = stage(g, each.name, _about(each), spent)
        self.stages.append(replace(noted, missed=missed, applied=applied))
        self._reported = [*map(len, remarks)]


def _remark_note(remark: Remark) -> RemarkNote:
    return RemarkNote(remark.op, remark.source, remark.reason, remark.outputs)


def stage(g: Graph, name: str, about: str = "", spent: float = 0.0) -> Stage:
    """Return a graph as plain data; `spent` is the time of its last pass in milliseconds."""
    lines: dict[Op, list[str]] = {op: [] for op in g.ops()}
    head, tail = list[str](), list[str]()
    others = head
    for op, line in lines_with_ops(g):
        others = others if op is None else tail
        (others if op is None else lines[op]).append(line)
    return Stage(
        name=name,
        about=about,
        milliseconds=spent,
        head=tuple(head),
        ops=tuple([_op_note(op, own) for op, own in lines.items()]),
        tail=tuple(tail),
        vars={var.label: _var_note(var) for var in g.vars()},
        results=tuple([var.label for var in g.results]),
        kernels=len(kernels(g)),
        nbytes=sum((var.type.nbytes for var in lives(g) if not var.type.is_open), start=0),
    )


def _op_note(op: Op, lines: Sequence[str]) -> OpNote:
    reads, writes = (tuple([var.label for var in vars]) for vars in (op.reads(), op.writes()))
    return OpNote(op.kind, reads, writes, op.source, _role(op), op.kernel, tuple(lines))


def _role(op: Op) -> int | None:
    """Return the `op_role` of an op; else infer it from kind and slots; else None."""
    if (role := op.attrs.get("op_role")) is not None:
        return int(role)
    if "ParamOut" in op.outputs:
        return int(OpRole.OPTIMIZE)
    return int(OpRole.BACKWARD) if op.kind.endswith("_grad") else None


def _var_note(var: Var) -> VarNote:
    nbytes = None if var.type.is_open or var.type == TOKEN else var.type.nbytes
    return VarNote(var.label, str(var.type), nbytes, var.role)


def _about(each: Pass) -> str:
    """Return a pass's docstring, one line per paragraph."""
    paragraphs = (type(each).__doc__ or "").strip().split("\n\n")
    return "\n".join([" ".join(paragraph.split()) for paragraph in paragraphs])


class Guard:
    """Runs the interpreter before and after each pass and raises an error if a number changes.

    Missing `feed` and `params` are generated (params also come from the context); unknown sizes are
    3. Passes that change numbers by design, and programs with random ops, are not compared.
    """

    def __init__(
        self,
        feed: Mapping[str, Array] | None = None,
        params: Mapping[str, Array] | None = None,
        tolerance: float = 1e-4,
    ) -> None:
        self.feed = feed
        self.params = params
        self.tolerance = tolerance
        self._expected: list[Array] = []
        self._known: tuple[str, frozenset[str], list[Array]] | None = None
        self._ctx = Context()

    def start(self, g: Graph, ctx: Context) -> None:
        """Generate missing feeds and state."""
        self._ctx = ctx
        self.feed = self.feed or {var.name: made_up(var.type, i) for i, var in enumerate(g.feeds())}
        state = {**(ctx.params or {}), **(self.params or {})}
        generated = {
            v.name: made_up(v.type, i) for i, v in enumerate(g.params()) if v.name not in state
        }
        self.params = {**state, **generated}

    def before(self, each: Pass, g: Graph) -> None:
        """Compute the expected results."""
        self._expected = self._numbers(g)

    def after(self, each: Pass, g: Graph, ctx: Context) -> None:
        """Compare; raise VerifyError with the pass and the first changed result."""
        if not each.preserves or any(op.defn.is_random for op in g.ops()):
            return
        for var, old, new in zip(g.results, self._expected, self._numbers(g), strict=False):
            if not np.allclose(old, new, rtol=self.tolerance, atol=self.tolerance, equal_nan=True):
                worst = float(np.max(np.abs(np.subtract(old, new, dtype=np.float64))))
                raise VerifyError(f"pass {each.name!r} changed {var.label!r} by up to {worst:.3g}")

    def _numbers(self, g: Graph) -> list[Array]:
        """Return the results, then the updated state; those of before for an unchanged graph."""
        text, names = show(g), frozenset(self._ctx.params or ())
        if self._known is None or self._known[:2] != (text, names):
            self._known = (text, names, self._interpreted(g))
        return self._known[2]

    def _interpreted(self, g: Graph) -> list[Array]:
        params = {**(self.params or {}), **(self._ctx.params or {})}
        state = {name: np.array(array) for name, array in params.items()}
        results = run(g, self.feed or {}, state)
        return results + [state[var.name] for var in g.params() if g.overwriter(var) is not None]


def made_up(type: TensorType, seed: int, size: int = 3) -> Array:
    """Return distinct positive floats, or zeros for integers (labels, counters)."""
    shape = tuple(evaluate(dim, dict.fromkeys(type.names, size)) for dim in type.shape)
    if not type.dtype.is_float:
        return np.zeros(shape, type.dtype.numpy)
    generator = np.random.default_rng(seed)
    return generator.uniform(0.1, 1.0, shape).astype(type.dtype.numpy, copy=False)
