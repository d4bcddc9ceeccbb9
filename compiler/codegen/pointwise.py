"""Lowers a pointwise kernel to NumPy calls: every result with `out=`, little scratch.

The bodies of the kernel's ops are traced into one expression, and its parts are computed in order,
each into the first of these that is free: the memory of the output it is, the memory of an operand
that is not read again, the memory of the output being computed, scratch. An output may share memory
with an input (in place), so no part is written over an input that a later part still reads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

from compiler.codegen.module_writer import ModuleWriter, NumpyOperand, shape_text
from compiler.codegen.trace import BY_KEY, REDUCTIONS, Expr, Term, Tracer, all_parts, ordered
from compiler.ir.opdef import Pointwise, call, listed, reduced_axes
from compiler.ir.philox import uniform_by_key
from compiler.ir.types import DType, Shape, TensorType
from compiler.plan import PlannedOp, PlannedValue, Step, Storage, StorageKind
from compiler.support.dataclass import dataclass


def emit_pointwise(writer: ModuleWriter, step: Step) -> None:
    """Write a kernel whose ops are all `Pointwise` (or one that is `Rowwise`)."""
    _Emitter(writer, trace(step), step.dying).emit()


@dataclass(frozen=True)
class Root:
    """An output of the kernel and the expression that computes it."""

    value: PlannedValue
    expr: Expr


# ---- tracing -----------------------------------------------------------------------------------


def trace(step: Step) -> list[Root]:
    """Trace the outputs of a kernel that are stored in memory, as expressions over its inputs.

    Of several outputs in the same storage only the last is observable, so only that is kept.
    """
    tracer = Tracer()
    exprs: dict[PlannedValue, Expr] = {}
    roots: dict[Storage, Root] = {}
    for op in step.ops:
        for value, expr in _trace_op(tracer, op, exprs):
            exprs[value] = expr
            if value.place is not StorageKind.INNER:
                roots[value.storage] = Root(value, expr)
    return list(roots.values())


def _trace_op(
    tracer: Tracer, op: PlannedOp, known: dict[PlannedValue, Expr]
) -> Iterator[tuple[PlannedValue, Expr]]:
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
            yield value, _converted(tracer, result, value.type, aligned.get(slot))


def _leaf(tracer: Tracer, value: PlannedValue, views: dict[str, Shape], location: str) -> Expr:
    """Create the leaf of an input, in the view of its slot or of its position in that slot."""
    view = views.get(location.partition(".")[0]) or views.get(location)
    return tracer.leaf(value, view or value.type.shape, value.type.dtype)


def _computable(tracer: Tracer, expr: Expr) -> Expr:
    """The expression to compute with: float32 for bfloat16, which is rounded only when stored."""
    if expr.dtype is not DType.BF16:
        return expr
    source = expr.args[0] if expr.fn == "astype" else expr
    return tracer.cast(source if isinstance(source, Expr) else expr, DType.FP32)


def _converted(tracer: Tracer, result: Any, wanted: TensorType, view: Shape | None) -> Expr:
    """Convert a body's result to its declared element type; sum over broadcast axes."""
    if not isinstance(result, Expr):
        return tracer.full(result, wanted.shape, wanted.dtype)
    axes = reduced_axes(result.shape, wanted.shape if view is None else view)
    summed = tracer.reduce("sum", result, axes, keepdims=True) if axes else result
    return tracer.cast(summed, wanted.dtype)


# ---- writing -----------------------------------------------------------------------------------


class _Emitter:
    """Writes the parts of a kernel's expressions and counts how often each is still read."""

    def __init__(
        self, writer: ModuleWriter, roots: list[Root], dying: frozenset[PlannedValue]
    ) -> None:
        self.writer = writer
        self.roots = ordered_roots(roots)
        self.outputs = {root.value.storage for root in roots}
        self.dying = {value.storage for value in dying} - self.outputs
        self.remaining_uses: Counter[Expr] = Counter()
        self.locations: dict[Expr, NumpyOperand] = {}
        self.pool: list[NumpyOperand] = []
        self.scratch: set[str] = set()
        self.deferred: list[tuple[NumpyOperand, Expr]] = []
        self.leaves: dict[Storage, list[Expr]] = {}
        self.root_uses: Counter[Expr] = Counter()
        self.guarded: set[Expr] = set()
        self.done: set[Expr] = set()
        self.readers: dict[Expr, list[Expr]] = {}

    def emit(self) -> None:
        """Write every root; copies that must not happen earlier are written last."""
        for part in all_parts(root.expr for root in self.roots):
            self.remaining_uses.update(part.parts())
            for arg in dict.fromkeys(part.parts()):
                self.readers.setdefault(arg, []).append(part)
            if part.is_leaf:
                self.leaves.setdefault(_storage(part), []).append(part)
        self.remaining_uses.update(root.expr for root in self.roots)
        for root in self.roots:
            self._save_leaf(root)
        for root in self.roots:
            self._emit_root(root)
        for out, expr in self.deferred:
            self._copy(out, expr)

    def _save_leaf(self, root: Root) -> None:
        """Save an input that is an output unchanged, if another output overwrites its memory."""
        if root.expr.is_leaf and root.expr not in self.locations:
            storage = self._leaf(root.expr).storage
            if storage in self.outputs and storage != root.value.storage:
                saved = self.writer.scratch(root.expr.shape, root.expr.dtype)
                self._copy(saved, root.expr)
                self.locations[root.expr] = saved

    def _emit_root(self, root: Root) -> None:
        out, parts = self.writer.operand(root.value), ordered(root.expr)
        self.root_uses = Counter(arg for part in parts for arg in part.parts())
        choices = (part.args[:2] for part in parts if part.fn == "where")
        self.guarded = {arg for args in choices for arg in args if isinstance(arg, Expr)}
        for part in parts:
            if not part.is_leaf and part not in self.done:
                self._emit_part(part, root, out)
        if self._holds(root.expr, out):
            self.remaining_uses[root.expr] -= 1
        else:
            self._copy_when_safe(out, root)

    def _copy_when_safe(self, out: NumpyOperand, root: Root) -> None:
        """Copy now, or last if the output's memory is still read."""
        if self._read_later(root.value.storage):
            self.deferred.append((out, root.expr))
            return
        self._copy(out, root.expr)
        self.remaining_uses[root.expr] -= 1
        self._release(root.expr)

    def _emit_part(self, part: Expr, root: Root, out: NumpyOperand) -> None:
        """Write one call into the best memory available for it."""
        location = self._choose(part, root, out)
        target = location.view(part.shape)
        for line in self._lines(part, target):
            self.writer.line(line)
        self.locations[part] = location
        self.done.add(part)
        for arg in part.parts():
            self.remaining_uses[arg] -= 1
        for arg in dict.fromkeys(part.parts()):
            self._release(arg)

    def _lines(self, part: Expr, target: str) -> list[str]:
        """The NumPy code that computes one part into `target`."""
        if part.fn == BY_KEY:
            function = self.writer.function(uniform_by_key)
            arguments = f"{self._leaf(part.parts()[0])}, {part.extra}, {shape_text(part.shape)}"
            return [f"np.copyto({target}, {function}({arguments}))"]
        return _statements(part, [self._text(arg) for arg in part.args], target)

    def _choose(self, part: Expr, root: Root, out: NumpyOperand) -> NumpyOperand:
        current = self._output_of(part)
        if current is not None and self._may_write(current, part):
            return self.writer.operand(current.value)
        for arg in part.parts():
            if self._reusable(arg, part):
                self.scratch.add(self._location_of(arg).name)
                return self._location_of(arg)
        upcoming = self._next_output(part)
        if upcoming is not None and self._may_write(upcoming, part):
            return self.writer.operand(upcoming.value)
        only_reader = self.remaining_uses[part] == self.root_uses[part] and part not in self.guarded
        fits = out.type == TensorType(part.dtype, part.shape)
        if fits and only_reader and self._may_write(root, part):
            return out
        return self._take_scratch(part)

    def _output_of(self, part: Expr) -> Root | None:
        """The output that equals this part, if it has the same number of elements."""
        same = (root for root in self.roots if root.expr is part)
        return next((r for r in same if r.value.type.numel == _numel(part)), None)

    def _next_output(self, part: Expr) -> Root | None:
        """The output that the next call computes elementwise from this part alone."""
        readers = self.readers.get(part, [])
        if len(readers) != 1 or self.remaining_uses[part] != 1 or not _elementwise(readers[0]):
            return None
        wanted = (part.shape, part.dtype)
        output = self._output_of(readers[0])
        same = output is not None and (output.value.type.shape, output.value.type.dtype) == wanted
        return output if same and (readers[0].shape, readers[0].dtype) == wanted else None

    def _may_write(self, root: Root, part: Expr) -> bool:
        """True if nothing in the output's memory is read after this part is written."""
        own = Counter(part.parts()) if _elementwise(part) else Counter[Expr]()
        live = (
            expr
            for expr, location in self.locations.items()
            if location.storage == root.value.storage
        )
        occupied = any(self.remaining_uses[expr] > own[expr] for expr in live)
        return not occupied and not self._read_later(root.value.storage, own, part.shape)

    def _read_later(
        self, storage: Storage, own: Counter[Expr] | None = None, shape: Shape | None = None
    ) -> bool:
        """True if an input in this storage has readers left besides the `own` reads of a part."""
        current = own or Counter[Expr]()
        return any(
            self.remaining_uses[leaf] > (current[leaf] if leaf.shape == shape else 0)
            for leaf in self.leaves.get(storage, [])
            if leaf not in self.locations
        )

    def _reusable(self, arg: Expr, part: Expr) -> bool:
        """True if an operand's memory is free once this part has read it."""
        same = arg.shape == part.shape and arg.dtype is part.dtype
        last = self.remaining_uses[arg] == sum(operand is arg for operand in part.parts())
        if not (same and last and _elementwise(part)) or _output_like(self.roots, arg):
            return False
        if arg.is_leaf and arg not in self.locations:
            location = self._leaf(arg)
            whole = location.type.shape == arg.shape
            own = Counter({arg: self.remaining_uses[arg]})
            free = location.storage in self.dying and location.storage[0] is StorageKind.BUFFER
            return whole and free and not self._read_later(location.storage, own, arg.shape)
        return self.locations[arg].name in self.scratch

    def _take_scratch(self, part: Expr) -> NumpyOperand:
        wanted = TensorType(part.dtype, part.shape)
        for location in self.pool:
            if location.type == wanted:
                self.pool.remove(location)
                return location
        location = self.writer.scratch(part.shape, part.dtype)
        self.scratch.add(location.name)
        return location

    def _release(self, expr: Expr) -> None:
        """Return scratch to the pool after its last read, unless a later part reuses it."""
        if expr.is_leaf and expr not in self.locations:
            self._recycle_input(expr)
            return
        if expr.is_leaf or self.remaining_uses[expr] or expr not in self.locations:
            return
        location = self.locations.pop(expr)
        taken = any(other.name == location.name for other in self.locations.values())
        if location.name in self.scratch and not taken and location not in self.pool:
            self.pool.append(location)

    def _recycle_input(self, leaf: Expr) -> None:
        """Add the memory of an input that is not read again to the scratch pool."""
        location = self._leaf(leaf)
        free = location.storage in self.dying and location.storage[0] is StorageKind.BUFFER
        taken = any(other.storage == location.storage for other in self.locations.values())
        if (
            free
            and not taken
            and not self._read_later(location.storage)
            and location not in self.pool
        ):
            self.scratch.add(location.name)
            self.pool.append(location)

    def _holds(self, expr: Expr, out: NumpyOperand) -> bool:
        """True if an output's value is in its memory already."""
        location = self._location_of(expr)
        return location.storage == out.storage and location.type.numel == out.type.numel

    def _copy(self, out: NumpyOperand, expr: Expr) -> None:
        """Copy a value to its output; NumPy broadcasts smaller ones."""
        same_size = out.type.numel == _numel(expr)
        target = out.view(expr.shape) if same_size else out.name
        self.writer.line(f"np.copyto({target}, {self._text(expr)})")

    def _location_of(self, expr: Expr) -> NumpyOperand:
        return self.locations[expr] if expr in self.locations else self._leaf(expr)

    def _leaf(self, leaf: Expr) -> NumpyOperand:
        return self.writer.operand(cast(PlannedValue, leaf.extra))

    def _text(self, term: Term) -> str:
        """Format a term as Python: a number, or the name of an array in the term's shape."""
        if not isinstance(term, Expr):
            return repr(term) if math.isfinite(term) else f"np.float32('{term}')"
        return self._location_of(term).view(term.shape)


def _statements(part: Expr, args: list[str], out: str) -> list[str]:
    """The NumPy code for one part, given the text of its arguments and of its destination."""
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
    if part.fn == "negative" and part.dtype in _NEGATED_BY_PRODUCT:
        return [f"np.multiply({args[0]}, -1, out={out})"]
    return [f"np.{part.fn}({', '.join(args)}, out={out})"]


_NEGATED_BY_PRODUCT = frozenset({DType.FP32, DType.FP64, DType.INT32, DType.INT64})
"""Types of which `np.negative` is wrong for some views, in NumPy 2.4: those with 16 bytes from one
element to the next (64 for types of 8 bytes), if the result is not contiguous."""


def _elementwise(part: Expr) -> bool:
    """True for calls that may overwrite an operand of the same shape while reading it."""
    return part.fn not in ("where", "full", BY_KEY) and not part.fn.startswith("reduce_")


def _output_like(roots: list[Root], expr: Expr) -> bool:
    return any(root.expr is expr for root in roots)


def _numel(part: Expr) -> Any:
    return TensorType(DType.FP32, part.shape).numel


def ordered_roots(roots: list[Root]) -> list[Root]:
    """Order roots so that none overwrites an input of a later one, if such an order exists."""
    reads = [{_storage(part) for part in ordered(root.expr) if part.is_leaf} for root in roots]
    writes = [root.value.storage for root in roots]
    remaining = list(range(len(roots)))
    order: list[Root] = []
    while remaining:
        free = (i for i in remaining if all(writes[i] not in reads[j] for j in remaining if j != i))
        chosen = next(free, remaining[0])
        remaining.remove(chosen)
        order.append(roots[chosen])
    return order


def _storage(leaf: Expr) -> Storage:
    return cast(PlannedValue, leaf.extra).storage
