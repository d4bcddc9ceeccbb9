"""Triton kernel builder: implements the protocol `KernelBuilder` for `triton` bodies.

One body may write several kernels, one behind the other: each call of `lanes` begins another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from compiler.codegen.bind_and_run import NumpyOperand
from compiler.codegen.reference_calls import ShapeOf
from compiler.codegen.trace import Expr, Term
from compiler.codegen.triton.bind_and_run import TritonFrame
from compiler.codegen.triton.emit import Written, emit
from compiler.codegen.triton.epilogues import Tail
from compiler.codegen.triton.host_code import HostWork
from compiler.codegen.triton.kernel_ir import KernelBody, Ref, Tiles, as_tuple
from compiler.codegen.triton.products import emit_tiles, parts_of
from compiler.codegen.triton.random import keys_from
from compiler.codegen.triton.tiling.split_reductions import split
from compiler.errors import CompileError
from compiler.ir.dims import Size
from compiler.ir.opdef.slots import Share
from compiler.ir.types import DType, Shape, TensorType
from compiler.plan import PlannedOp, Value

Factors: TypeAlias = Callable[..., "tuple[Expr, Expr]"]
"""The factors of products, for indices in the stack, a row, a column, and two turns."""

Finish: TypeAlias = Callable[..., None]
"""Stores a sum of products, given indices in the stack, a row and a column."""


class DeviceOperand:
    """A value of the device while an op's body runs; its elements are those of the kernel begun.

    It is placed where it is first used: by then the step knows its size.
    """

    def __init__(
        self, kernels: TritonKernelBuilder, place: Callable[[], NumpyOperand], type: TensorType
    ) -> None:
        self.kernels = kernels
        self._place = place
        self.type = type

    @property
    def operand(self) -> NumpyOperand:
        """The value by its name."""
        return self._place()

    @property
    def shape(self) -> Shape:
        """The shape it is seen in."""
        return self.type.shape

    def __str__(self) -> str:
        return self.operand.name

    def reshaped(self, shape: Sequence[Size]) -> DeviceOperand:
        """The same elements in another shape."""
        return DeviceOperand(self.kernels, self._place, self.type.with_shape(shape))

    def __getitem__(self, indices: Any) -> Expr:
        return self.at(*as_tuple(indices))

    def at(self, *indices: Term, where: Term | None = None, other: float = 0) -> Expr:
        """The element at these indices; `other` where `where` is false, and nothing is read."""
        return self.ref().at(*indices, where=where, other=other)

    def ref(self) -> Ref:
        """The operand in the kernel that was begun last."""
        return Ref(self.kernels.current, self.operand, self.shape)


class TritonKernelBuilder(HostWork):
    """Writes the kernels of one op into a step."""

    def __init__(
        self, frame: TritonFrame, op: PlannedOp, comment: Sequence[str],
        launch: Callable[[Written], None], name: str = "", tail: Tail | None = None,
    ) -> None:  # fmt: skip
        super().__init__(frame)
        self._op = op
        self._comment = comment
        self._launch = launch
        self._name = name or op.kind
        self._tail = tail
        self._current: KernelBody | None = None
        self._wide: dict[str, tuple[NumpyOperand, NumpyOperand]] = {}

    @property
    def in_order(self) -> bool:
        """True where sums are to be made in the same order in every run."""
        return self._frame.in_order

    # ---- operands ----

    def operands(self) -> dict[str, Any]:
        """What stands in each slot of the op."""
        slots = {**self._op.inputs, **self._op.outputs}
        return {slot: self._held(slot, values) for slot, values in slots.items()}

    def _held(self, slot: str, values: Sequence[Value]) -> Any:
        declared = self._op.defn.slots[slot]
        if declared.on_host:
            return declared.hold([self._frame.operand(v) for v in values])
        made = [ShapeOf(v) if declared.shape_only else self._operand(v) for v in values]
        return declared.hold(made)

    def _operand(self, value: Value) -> DeviceOperand:
        return DeviceOperand(self, partial(self._frame.operand, value), value.type)

    def settle(self) -> None:
        """Give every value of the op its place."""
        for slot, values in {**self._op.inputs, **self._op.outputs}.items():
            if not self._op.defn.slots[slot].shape_only:
                for value in values:
                    self._frame.operand(value)

    def scratch(self, shape: Sequence[Size], dtype: DType) -> DeviceOperand:
        """Working memory of the device during this op; contents undefined."""
        return self._made(self._room(shape, dtype))

    def _room(self, shape: Sequence[Size], dtype: DType) -> NumpyOperand:
        return self._frame.scratch(shape, dtype, on_device=True)

    def to_device(
        self, value: Any, shape: Sequence[Size], dtype: DType = DType.INT64
    ) -> DeviceOperand:
        """An array of the host, copied to the device."""
        return self._made(self._sent(value, shape, dtype))

    def _made(self, operand: NumpyOperand) -> DeviceOperand:
        return DeviceOperand(self, lambda: operand, operand.type)

    def aliased(self, a: DeviceOperand, b: DeviceOperand) -> bool:
        """True where both are one memory, so that copying would be idle."""
        return self._frame.aliased(a.operand, b.operand)

    def is_view_of(self, part: DeviceOperand, whole: DeviceOperand, share: Share) -> bool:
        """True where a part has the very memory that it has in the whole."""
        return self._frame.is_view_of(part.operand, whole.operand, share)

    def key(self, keys: DeviceOperand, place: int) -> Expr:
        """The key at a place of a tensor of keys."""
        return self.current.key(keys_from(keys.operand, place))

    # ---- kernels ----

    @property
    def current(self) -> KernelBody:
        """The kernel begun last."""
        if self._current is None:
            raise CompileError(f"{self._op.kind}: its body reads before it begins a kernel")
        return self._current

    def grid(self, *shape: Size) -> tuple[Expr, ...]:
        """Begin a kernel with a lane for each element of a shape; gives the lane's indices."""
        self.flush()
        self._current = KernelBody(self._name, shape)
        return self._current.indices

    def tiles(
        self, stack: Sequence[Size], rows: Size, columns: Size, inner: Size
    ) -> tuple[tuple[Expr, ...], Expr, Expr, Expr, Expr]:
        """Begin a kernel with a lane for each element of a stack of matrices, which are products.

        Gives the indices in the stack, row and column, and the turn of the sum as the left and the
        right factor see it. `contract` makes the sum.
        """
        made = self._begin_tiles(stack, (rows, columns, inner), 1)
        *places, i, j = made.indices
        return tuple(places), i, j, *made.turns

    def _begin_tiles(
        self, stack: Sequence[Size], sides: tuple[Size, Size, Size], parts: int
    ) -> Tiles:
        self.flush()
        made = Tiles(self._name, stack, sides, parts, self._frame.precision)
        self._current = made
        return made

    def contraction(
        self, stack: Sequence[Size], sides: tuple[Size, Size, Size], factors: Factors, store: Finish
    ) -> None:
        """Kernels for a stack of products, of rows, columns and turns `sides`.

        `factors` gives the left and the right one for indices in the stack, row, column and turn
        as each sees it; `store` is given the indices and the sum. Where a sum is cut into parts,
        they are joined in the second kernel.
        """
        rows, columns, inner = sides
        parts = parts_of(stack, rows, columns, inner)
        made = self._begin_tiles(stack, sides, parts)
        *places, i, j = made.indices[parts > 1 :]
        total = made.contract(*factors(tuple(places), i, j, *made.turns))
        if parts == 1:
            store(tuple(places), i, j, total)
            return
        held = self.scratch((parts, *stack, rows, columns), total.dtype)
        self.store(held, made.indices, total)
        *places, i, j = indices = self.grid(*stack, rows, columns)
        part = self.loop(parts)
        store(tuple(places), i, j, self.sum(held[(part, *indices)], part))

    def line(self, text: str) -> None:
        """Write one line of the step, behind the kernels before it."""
        self.flush()
        self._frame.line(text)

    def finish(self) -> None:
        """Write the kernel begun last, and round what was added up."""
        self.flush()
        for out, made in self._wide.values():
            self._copied(made, out)

    def flush(self) -> None:
        """Write the kernel begun last, if there is one."""
        begun = self._current
        if begun is not None and begun.stores:
            names, comment = self._frame.names, self._comment
            if isinstance(begun, Tiles):
                self._launch(emit_tiles(begun, names, comment))
            else:
                for lanes in split(begun, self._room):
                    self._launch(emit(lanes, names, comment))
        self._current = None

    def matmul(
        self, out: DeviceOperand, a: DeviceOperand, b: DeviceOperand, *,
        transposed: tuple[bool, bool] = (False, False), scale: float = 1.0,
    ) -> None:  # fmt: skip
        """Add a kernel for out = scale * a @ b over stacks of matrices, optionally transposed.

        A stack of `out` is the broadcast of those of `a` and `b`.
        """
        *stack, rows, columns = out.shape
        inner = a.shape[-2] if transposed[0] else a.shape[-1]

        def factors(
            places: tuple[Expr, ...], i: Expr, j: Expr, left: Expr, right: Expr
        ) -> tuple[Expr, Expr]:
            x = a[(*_within(a, places), *((left, i) if transposed[0] else (i, left)))]
            y = b[(*_within(b, places), *((j, right) if transposed[1] else (right, j)))]
            return x, y

        def store(places: tuple[Expr, ...], i: Expr, j: Expr, total: Expr) -> None:
            self.store(out, (*places, i, j), total if scale == 1.0 else total * scale)

        self.contraction(stack, (rows, columns, inner), factors, store)

    def store(
        self, out: DeviceOperand, indices: Sequence[Term], value: Term, where: Term | None = None
    ) -> None:
        """Write an element in every lane (and turn) where `where` holds."""
        if self._tail is not None and self._tail.takes(out.operand.name):
            self._tail.store(self.current, out.shape, indices, value, where)
        else:
            self.current.store(out.ref(), indices, value, where)

    def add(
        self, out: DeviceOperand, indices: Sequence[Term], value: Term, where: Term | None = None
    ) -> None:
        """Add to an element, to which other lanes may add as well, in any order.

        Sums of bfloat16 are kept in float32 beside, since devices add up no such numbers.
        """
        held = self._sums(out) if out.type.dtype is DType.BF16 else out
        self.current.add(held.ref(), indices, value, where)

    def _sums(self, out: DeviceOperand) -> DeviceOperand:
        """What adds up in place of an output: it begins as the output is, and becomes it."""
        if out.operand.name not in self._wide:
            made = self._room(out.operand.type.shape, DType.FP32)
            self._wide[out.operand.name] = out.operand, made
            self._copied(out.operand, made)
        return self._made(self._wide[out.operand.name][1]).reshaped(out.shape)

    def _copied(self, source: NumpyOperand, target: NumpyOperand) -> None:
        """A kernel of its own that copies all elements, before the one begun last."""
        lanes = KernelBody(self._name, (source.type.numel,))
        read = Ref(lanes, source, lanes.shape).at(*lanes.indices)
        lanes.store(Ref(lanes, target, lanes.shape), lanes.indices, read)
        self._launch(emit(lanes, self._frame.names, self._comment))

    def __getattr__(self, name: str) -> Any:
        """Loops, reductions, arithmetic of indices, and NumPy's functions by their names."""
        return getattr(self.current, name)


def _within(factor: DeviceOperand, places: Sequence[Expr]) -> list[Term]:
    """The indices of a matrix in a factor's own stack, which may be shorter, or have but one."""
    own = factor.shape[:-2]
    return [
        0 if size == 1 else place
        for size, place in zip(own, places[len(places) - len(own) :], strict=True)
    ]
