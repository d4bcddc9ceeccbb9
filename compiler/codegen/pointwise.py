"""Writes the NumPy calls of one pointwise kernel: every result with `out=`, little scratch.

The bodies of the kernel's ops are traced into one expression, and its parts are written in order,
each into the first of these that is free: the memory of the output it is, the memory of an operand
that is not read again, the memory of the output being computed, scratch. An output may share memory
with an input (in place), so no part is written over an input that a later part still reads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from compiler.codegen.bind_and_run import Frame, NumpyOperand, shape_text
from compiler.codegen.trace import BY_KEY, REDUCTIONS, Expr, Term, Tracer, all_parts, ordered
from compiler.ir.opdef import Pointwise, call, listed, reduced_axes
from compiler.ir.philox import uniform_by_key
from compiler.ir.types import DType, Shape, TensorType
from compiler.plan import Place, PlannedOp, Step, Storage, Value


def emit_pointwise(frame: Frame, step: Step) -> None:
    """Write a kernel whose ops are all `Pointwise` (or one that is `Rowwise`)."""
    _Emitter(frame, trace(step), step.dying).emit()


@dataclass(frozen=True)
class Root:
    """An output of the kernel and the expression of its value."""

    value: Value
    expr: Expr


# ---- tracing -----------------------------------------------------------------------------------


def trace(step: Step) -> list[Root]:
    """The outputs of a kernel that memory holds, as expressions over its inputs.

    Of several that are written over each other only the last is ever there to see.
    """
    tracer = Tracer()
    known: dict[Value, Expr] = {}
    roots: dict[Storage, Root] = {}
    for op in step.ops:
        for value, expr in _trace_op(tracer, op, known):
            known[value] = expr
            if value.place is not Place.INNER:
                roots[value.storage] = Root(value, expr)
    return list(roots.values())


def _trace_op(
    tracer: Tracer, op: PlannedOp, known: dict[Value, Expr]
) -> Iterator[tuple[Value, Expr]]:
    defn = cast(Pointwise, op.defn)
    types = defn.types_of(op.inputs)
    views = defn.views(types)
    inputs = {
        slot: defn.slots[slot].hold([
            _computable(tracer, known.get(value) or _leaf(tracer, value, views, f"{slot}.{i}"))
            for i, value in enumerate(values)
        ])
        for slot, values in op.inputs.items()
    }  # fmt: skip
    results = defn.named(call(defn, "compute", inputs, tracer))
    aligned = defn.output_views(types)
    for slot, values in op.outputs.items():
        for value, result in zip(values, listed(results[slot]), strict=True):
            yield value, _brought(tracer, result, value.type, aligned.get(slot))


def _leaf(tracer: Tracer, value: Value, views: dict[str, Shape], place: str) -> Expr:
    """An input, in the view of its slot, or of its place in that slot."""
    view = views.get(place.partition(".")[0]) or views.get(place)
    return tracer.leaf(value, view or value.type.shape, value.type.dtype)


def _computable(tracer: Tracer, expr: Expr) -> Expr:
    """What is computed with: float32 for bfloat16, which is rounded to where it is stored only."""
    if expr.dtype is not DType.BF16:
        return expr
    made = expr.args[0] if expr.fn == "astype" else expr
    return tracer.cast(made if isinstance(made, Expr) else expr, DType.FP32)


def _brought(tracer: Tracer, result: Any, wanted: TensorType, view: Shape | None) -> Expr:
    """A body's result in its declared element type, summed over what was broadcast."""
    if not isinstance(result, Expr):
        return tracer.full(result, wanted.shape, wanted.dtype)
    axes = reduced_axes(result.shape, wanted.shape if view is None else view)
    summed = tracer.reduce("sum", result, axes, keepdims=True) if axes else result
    return tracer.cast(summed, wanted.dtype)


# ---- writing -----------------------------------------------------------------------------------


class _Emitter:
    """Writes the parts of a kernel's expressions, keeping book of who is read how often yet."""

    def __init__(self, frame: Frame, roots: list[Root], dying: frozenset[Value]) -> None:
        self.frame = frame
        self.roots = ordered_roots(roots)
        self.outputs = {root.value.storage for root in roots}
        self.dying = {value.storage for value in dying} - self.outputs
        self.left: Counter[Expr] = Counter()
        self.at: dict[Expr, NumpyOperand] = {}
        self.pool: list[NumpyOperand] = []
        self.scratch: set[str] = set()
        self.late: list[tuple[NumpyOperand, Expr]] = []
        self.leaves: dict[Storage, list[Expr]] = {}
        self.root_uses: Counter[Expr] = Counter()
        self.guarded: set[Expr] = set()
        self.done: set[Expr] = set()
        self.readers: dict[Expr, list[Expr]] = {}

    def emit(self) -> None:
        """Write every root; copies that would have come too early are written last."""
        for part in all_parts(root.expr for root in self.roots):
            self.left.update(part.parts())
            for arg in dict.fromkeys(part.parts()):
                self.readers.setdefault(arg, []).append(part)
            if part.is_leaf:
                self.leaves.setdefault(_storage(part), []).append(part)
        self.left.update(root.expr for root in self.roots)
        for root in self.roots:
            self._save_leaf(root)
        for root in self.roots:
            self._emit_root(root)
        for out, expr in self.late:
            self._copy(out, expr)

    def _save_leaf(self, root: Root) -> None:
        """An input that is an output as it stands is saved if another output takes its memory."""
        if root.expr.is_leaf and root.expr not in self.at:
            storage = self._leaf(root.expr).storage
            if storage in self.outputs and storage != root.value.storage:
                saved = self.frame.scratch(root.expr.shape, root.expr.dtype)
                self._copy(saved, root.expr)
                self.at[root.expr] = saved

    def _emit_root(self, root: Root) -> None:
        out, parts = self.frame.operand(root.value), ordered(root.expr)
        self.root_uses = Counter(arg for part in parts for arg in part.parts())
        choices = (part.args[:2] for part in parts if part.fn == "where")
        self.guarded = {arg for args in choices for arg in args if isinstance(arg, Expr)}
        for part in parts:
            if not part.is_leaf and part not in self.done:
                self._emit_part(part, root, out)
        if self._holds(root.expr, out):
            self.left[root.expr] -= 1
        else:
            self._copy_when_safe(out, root)

    def _copy_when_safe(self, out: NumpyOperand, root: Root) -> None:
        """Copy now, or last; until then the value is one that is still read."""
        if self._read_later(root.value.storage):
            self.late.append((out, root.expr))
            return
        self._copy(out, root.expr)
        self.left[root.expr] -= 1
        self._release(root.expr)

    def _emit_part(self, part: Expr, root: Root, out: NumpyOperand) -> None:
        """Write one call into the best place there is for it."""
        place = self._choose(part, root, out)
        target = place.view(part.shape)
        for line in self._lines(part, target):
            self.frame.line(line)
        self.at[part] = place
        self.done.add(part)
        for arg in part.parts():
            self.left[arg] -= 1
        for arg in dict.fromkeys(part.parts()):
            self._release(arg)

    def _lines(self, part: Expr, target: str) -> list[str]:
        """NumPy for one part, which goes to `target`."""
        if part.fn == BY_KEY:
            function = self.frame.function(uniform_by_key)
            given = f"{self._leaf(part.parts()[0])}, {part.extra}, {shape_text(part.shape)}"
            return [f"np.copyto({target}, {function}({given}))"]
        return _statements(part, [self._text(arg) for arg in part.args], target)

    def _choose(self, part: Expr, root: Root, out: NumpyOperand) -> NumpyOperand:
        mine = self._output_of(part)
        if mine is not None and self._may_write(mine, part):
            return self.frame.operand(mine.value)
        for arg in part.parts():
            if self._reusable(arg, part):
                self.scratch.add(self._place_of(arg).name)
                return self._place_of(arg)
        ahead = self._output_ahead(part)
        if ahead is not None and self._may_write(ahead, part):
            return self.frame.operand(ahead.value)
        alone = self.left[part] == self.root_uses[part] and part not in self.guarded
        fits = out.type == TensorType(part.dtype, part.shape)
        if fits and alone and self._may_write(root, part):
            return out
        return self._take_scratch(part)

    def _output_of(self, part: Expr) -> Root | None:
        """The output that is this part, if its memory has the size of it."""
        same = (root for root in self.roots if root.expr is part)
        return next((r for r in same if r.value.type.numel == _numel(part)), None)

    def _output_ahead(self, part: Expr) -> Root | None:
        """The output that is made of this part in the next call, elementwise and of it alone."""
        readers = self.readers.get(part, [])
        if len(readers) != 1 or self.left[part] != 1 or not _elementwise(readers[0]):
            return None
        wanted = (part.shape, part.dtype)
        made = self._output_of(readers[0])
        same = made is not None and (made.value.type.shape, made.value.type.dtype) == wanted
        return made if same and (readers[0].shape, readers[0].dtype) == wanted else None

    def _may_write(self, root: Root, part: Expr) -> bool:
        """True where nothing in the output's memory is read after this part is written."""
        own = Counter(part.parts()) if _elementwise(part) else Counter[Expr]()
        held = (expr for expr, place in self.at.items() if place.storage == root.value.storage)
        occupied = any(self.left[expr] > own[expr] for expr in held)
        return not occupied and not self._read_later(root.value.storage, own, part.shape)

    def _read_later(
        self, storage: Storage, own: Counter[Expr] | None = None, shape: Shape | None = None
    ) -> bool:
        """True where an input in this memory is read by others than a part that reads it `own`."""
        mine = own or Counter[Expr]()
        return any(
            self.left[leaf] > (mine[leaf] if leaf.shape == shape else 0)
            for leaf in self.leaves.get(storage, [])
            if leaf not in self.at
        )

    def _reusable(self, arg: Expr, part: Expr) -> bool:
        """True where an operand's memory is free once this part has read it."""
        same = arg.shape == part.shape and arg.dtype is part.dtype
        last = self.left[arg] == sum(each is arg for each in part.parts())
        if not (same and last and _elementwise(part)) or _output_like(self.roots, arg):
            return False
        if arg.is_leaf and arg not in self.at:
            place = self._leaf(arg)
            whole = place.type.shape == arg.shape
            own = Counter({arg: self.left[arg]})
            free = place.storage in self.dying and place.storage[0] is Place.BUFFER
            return whole and free and not self._read_later(place.storage, own, arg.shape)
        return self.at[arg].name in self.scratch

    def _take_scratch(self, part: Expr) -> NumpyOperand:
        wanted = TensorType(part.dtype, part.shape)
        for place in self.pool:
            if place.type == wanted:
                self.pool.remove(place)
                return place
        place = self.frame.scratch(part.shape, part.dtype)
        self.scratch.add(place.name)
        return place

    def _release(self, expr: Expr) -> None:
        """Give scratch back when its last reader has run and no later part took it over."""
        if expr.is_leaf and expr not in self.at:
            self._give_up(expr)
            return
        if expr.is_leaf or self.left[expr] or expr not in self.at:
            return
        place = self.at.pop(expr)
        taken = any(other.name == place.name for other in self.at.values())
        if place.name in self.scratch and not taken and place not in self.pool:
            self.pool.append(place)

    def _give_up(self, leaf: Expr) -> None:
        """The memory of an input that nobody reads any more is scratch from now on."""
        place = self._leaf(leaf)
        free = place.storage in self.dying and place.storage[0] is Place.BUFFER
        taken = any(other.storage == place.storage for other in self.at.values())
        if free and not taken and not self._read_later(place.storage) and place not in self.pool:
            self.scratch.add(place.name)
            self.pool.append(place)

    def _holds(self, expr: Expr, out: NumpyOperand) -> bool:
        """True where an output's value is in its memory already."""
        place = self._place_of(expr)
        return place.storage == out.storage and place.type.numel == out.type.numel

    def _copy(self, out: NumpyOperand, expr: Expr) -> None:
        """Bring a value to where it belongs; NumPy spreads what is smaller."""
        same_size = out.type.numel == _numel(expr)
        target = out.view(expr.shape) if same_size else out.name
        self.frame.line(f"np.copyto({target}, {self._text(expr)})")

    def _place_of(self, expr: Expr) -> NumpyOperand:
        return self.at[expr] if expr in self.at else self._leaf(expr)

    def _leaf(self, leaf: Expr) -> NumpyOperand:
        return self.frame.operand(cast(Value, leaf.extra))

    def _text(self, term: Term) -> str:
        """A term as Python: a number, or the name of an array in the term's shape."""
        if not isinstance(term, Expr):
            return repr(term) if math.isfinite(term) else f"np.float32('{term}')"
        return self._place_of(term).view(term.shape)


def _statements(part: Expr, args: list[str], out: str) -> list[str]:
    """NumPy for one part, given the text of its arguments and of where it goes."""
    if part.fn == "where":
        condition, a, b = args
        first = f"np.copyto({out}, {b})"
        return [first] * (b != out) + [f"np.copyto({out}, {a}, where={condition})"]
    if part.fn == "astype":
        return [f"np.copyto({out}, {args[0]}, casting='unsafe')"]
    if part.fn == "full":
        return [f"{out}.fill({args[0]})"]
    if part.fn.startswith("reduce_"):
        fn = REDUCTIONS[part.fn.removeprefix("reduce_")]
        axes = cast("tuple[int, ...]", part.extra)
        axis = axes[0] if len(axes) == 1 else axes
        wide = ", dtype='float32'" if part.dtype is DType.FP16 else ""
        return [f"np.{fn}.reduce({args[0]}, axis={axis}{wide}, keepdims=True, out={out})"]
    return [f"np.{part.fn}({', '.join(args)}, out={out})"]


def _elementwise(part: Expr) -> bool:
    """True for calls that may write over an operand of the same shape while they read it."""
    return part.fn not in ("where", "full", BY_KEY) and not part.fn.startswith("reduce_")


def _output_like(roots: list[Root], expr: Expr) -> bool:
    return any(root.expr is expr for root in roots)


def _numel(part: Expr) -> Any:
    return TensorType(DType.FP32, part.shape).numel


def ordered_roots(roots: list[Root]) -> list[Root]:
    """Roots in an order in which, if there is one, none overwrites what a later one reads."""
    reads = [{_storage(part) for part in ordered(root.expr) if part.is_leaf} for root in roots]
    writes = [root.value.storage for root in roots]
    left = list(range(len(roots)))
    order: list[Root] = []
    while left:
        free = (i for i in left if all(writes[i] not in reads[j] for j in left if j != i))
        chosen = next(free, left[0])
        left.remove(chosen)
        order.append(roots[chosen])
    return order


def _storage(leaf: Expr) -> Storage:
    return cast(Value, leaf.extra).storage
