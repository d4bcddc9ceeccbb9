"""What a lowering may ask of the code generator that calls it: text in, text out.

An op's `lower(self, k, X, Out)` gets a `SourceBuilder` and one `Operand` a slot, and writes lines
of the generated module. It never sees buffers, offsets or devices, so one op file needs only `ir`.

    def lower(self, k, X, Y, Out):
        k.line(f"np.matmul({X.view((rows, inner))}, {Y.view((inner, cols))}, out={Out})")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

from compiler.ir.dims import Size
from compiler.ir.opdef.slots import Share
from compiler.ir.types import DType, Shape, TensorType


class Operand(Protocol):
    """A value as a lowering sees it; `str(operand)` is the Python expression for its array."""

    @property
    def type(self) -> TensorType:
        """Its element type and shape; sizes may be expressions of names the module knows."""
        ...

    @property
    def shape(self) -> Shape:
        """The shape of `type`."""
        ...

    def view(self, shape: Sequence[Size]) -> str:
        """An expression for the same elements in another shape, made once a binding if it can be.

        `-1` is not allowed: every size is known as a number or an expression.
        """
        ...


class SourceBuilder(Protocol):
    """The function body being written. Names of the generated module's scope: `np` and sizes."""

    def line(self, text: str) -> None:
        """Write one line that runs in every step."""
        ...

    def scratch(self, shape: Sequence[Size], dtype: DType) -> Operand:
        """Working memory of the arena that lives during this op only; contents undefined."""
        ...

    def at_bind(self, expression: str, uses: Sequence[Operand], hint: str) -> str:
        """A name for an expression over `uses`, evaluated once a binding where all their arrays
        stay in place (arena, parameters), and in every step where one is fed anew.
        """
        ...

    def aliased(self, a: Operand, b: Operand) -> bool:
        """True where both share storage at the same offset, so that copying would be idle."""
        ...

    def is_view_of(self, part: Operand, whole: Operand, share: Share) -> bool:
        """True where a part has the very memory that it has in the whole, and needs no copy.

        `share` says which part it is; the slots it names do not count.
        """
        ...

    def function(self, body: Callable[..., Any]) -> str:
        """Carry a Python function's source into the module and give its name there.

        The function may use `np`, its arguments and the Python language only.
        """
        ...


# ---- kernels of a device -----------------------------------------------------------------------

Number: TypeAlias = Any
"""A number in a lane: an index, an element, what arithmetic and functions make of them."""


class DeviceOperand(Protocol):
    """A value in device memory as a `triton` body sees it; `X[i, j]` is one of its elements."""

    @property
    def type(self) -> TensorType:
        """Its element type and the shape it is seen in."""
        ...

    @property
    def shape(self) -> Shape:
        """The shape of `type`."""
        ...

    def reshaped(self, shape: Sequence[Size]) -> DeviceOperand:
        """The same elements in another shape."""
        ...

    def __getitem__(self, indices: Any) -> Number:
        """The element at these indices, which are inside for every lane and turn."""
        ...

    def at(self, *indices: Number, where: Number | None = None, other: float = 0) -> Number:
        """The element at these indices; `other` where `where` is false, and nothing is read."""
        ...


class HostValue(Protocol):
    """What a function gave on the host while a step runs; `value[0]` is one of several."""

    def __getitem__(self, index: int) -> HostValue: ...

    def length(self) -> HostValue:
        """How many there are."""
        ...


class KernelBuilder(Protocol):
    """Writes the kernels of an op in scalars, as if a lane ran for each element of a shape.

        def triton(self, k, X, Out):            # each row's sum
            i, = k.grid(X.shape[0])
            j = k.loop(X.shape[1])
            k.store(Out, (i,), k.sum(X[i, j], j))

    It is also the namespace of functions: `k.exp(x)`, `k.maximum(x, 0.0)`, `k.where(c, a, b)`.
    """

    @property
    def in_order(self) -> bool:
        """True where whatever is summed up is to be summed in the same order in every run."""
        ...

    def grid(self, *shape: Size) -> tuple[Number, ...]:
        """Begin a kernel with a lane for each element of a shape; gives the lane's indices."""
        ...

    def loop(self, size: Size, until: Number | None = None) -> Number:
        """A number that every lane takes from 0 to `size` - 1; one loop stands in an expression.

        `until`, which reads and computes but reduces nothing, ends it sooner, for each lane on its
        own: it is at most `size`.
        """
        ...

    def sum(self, value: Number, over: Number) -> Number:
        """The sum over all turns of a loop; `max`, `min`, `prod` and `argmax` likewise."""
        ...

    def max(self, value: Number, over: Number) -> Number:
        """The largest over all turns of a loop."""
        ...

    def min(self, value: Number, over: Number) -> Number:
        """The smallest over all turns of a loop."""
        ...

    def prod(self, value: Number, over: Number) -> Number:
        """The product over all turns of a loop."""
        ...

    def moments(
        self, value: Number, over: Number, where: Number | None = None
    ) -> tuple[Number, Number]:
        """The mean and the (biased) variance over the turns of a loop where `where` holds.

        No digits are lost where the mean is large beside the deviation.
        """
        ...

    def cumsum(self, value: Number, over: Number) -> Number:
        """The sum over the turns of a loop up to each one; the loop is short enough to be held."""
        ...

    def argsort(self, value: Number, over: Number, descending: bool = False) -> Number:
        """The turn whose value comes in each turn's place when all are sorted, NaN the largest.

        What is equal stays in its order. The loop is short enough to be held, values have 32 bits
        or fewer.
        """
        ...

    def argmax(self, value: Number, over: Number) -> Number:
        """The first turn in which a value is the largest."""
        ...

    def where(self, condition: Number, a: Number, b: Number) -> Number:
        """`a` where the condition holds, else `b`."""
        ...

    def size(self, size: Size) -> Number:
        """A size as a number."""
        ...

    def div(self, a: Number, b: Number) -> Number:
        """The quotient of two indices, which are not negative."""
        ...

    def mod(self, a: Number, b: Number) -> Number:
        """What is left of an index."""
        ...

    def unravel(self, index: Number, shape: Sequence[Size]) -> tuple[Number, ...]:
        """The indices in a shape of the element at a flat position."""
        ...

    def ravel(self, indices: Sequence[Number], shape: Sequence[Size]) -> Number:
        """The flat position in a shape of the element at these indices."""
        ...

    def key(self, keys: DeviceOperand, place: int) -> Number:
        """The key at a place of a tensor of keys, from which random numbers are drawn."""
        ...

    def uniform(
        self, key: Number, index: Number, dtype: DType = DType.FP32, stream: int = 0
    ) -> Number:
        """The number a key has for an element of a stream, even over 0 <= number < 1.

        The same wherever it is asked for; see `compiler.ir.philox`.
        """
        ...

    def normal(
        self, key: Number, index: Number, dtype: DType = DType.FP32, stream: int = 0
    ) -> Number:
        """The same, normal with mean 0 and deviation 1."""
        ...

    def randint(self, key: Number, index: Number, span: Number, stream: int = 0) -> Number:
        """The same, a whole number that is even over 0 <= number < span."""
        ...

    def store(
        self,
        out: DeviceOperand,
        indices: Sequence[Number],
        value: Number,
        where: Number | None = None,
    ) -> None:
        """Write an element in every lane (and turn) where `where` holds."""
        ...

    def add(
        self,
        out: DeviceOperand,
        indices: Sequence[Number],
        value: Number,
        where: Number | None = None,
    ) -> None:
        """Add to an element, to which other lanes may add as well, in any order."""
        ...

    def tiles(
        self, stack: Sequence[Size], rows: Size, columns: Size, inner: Size
    ) -> tuple[tuple[Number, ...], Number, Number, Number, Number]:
        """Begin a kernel with a lane for each element of a stack of matrices, which are products.

        Gives the indices in the stack, row and column, and the turn of the sum as the left and as
        the right factor see it.
        """
        ...

    def contract(self, a: Number, b: Number) -> Number:
        """The sum over all turns of a * b in such a kernel: `a` has no column in it, `b` no row."""
        ...

    def contraction(
        self,
        stack: Sequence[Size],
        sides: tuple[Size, Size, Size],
        factors: Callable[..., tuple[Number, Number]],
        store: Callable[..., None],
    ) -> None:
        """Kernels for a stack of products, whose `sides` are rows, columns and turns.

        `factors(places, i, j, left, right)` gives what is multiplied; `store(places, i, j, total)`
        writes what becomes of the sum. A long sum with a small result is cut into parts.
        """
        ...

    def matmul(
        self,
        out: DeviceOperand,
        a: DeviceOperand,
        b: DeviceOperand,
        *,
        transposed: tuple[bool, bool] = (False, False),
        scale: float = 1.0,
    ) -> None:
        """Add a kernel for out = scale * a @ b over stacks of matrices, optionally transposed."""
        ...

    def line(self, text: str) -> None:
        """Write one line of Python that runs on the host behind the kernels written so far.

        `str(operand)` is the expression for a value's torch tensor, in its own shape.
        """
        ...

    def scratch(self, shape: Sequence[Size], dtype: DType) -> DeviceOperand:
        """Working memory of the device during this op; contents undefined."""
        ...

    def aliased(self, a: DeviceOperand, b: DeviceOperand) -> bool:
        """True where both are one memory, so that copying would be idle."""
        ...

    def is_view_of(self, part: DeviceOperand, whole: DeviceOperand, share: Share) -> bool:
        """True where a part has the very memory that it has in the whole."""
        ...

    # What the host does first: slots that are `on_host`, LoD among them, hold an `Operand`.

    def on_host(self, function: Callable[..., Any], *given: Any, hint: str = "") -> HostValue:
        """What a function of NumPy gives of arrays of the host and of plain numbers.

        It is carried into the module, and called before the kernels that follow; once a step for
        all ops that ask for the same of what is fed.
        """
        ...

    def to_device(
        self, value: Operand | HostValue, shape: Sequence[Size], dtype: DType = DType.INT64
    ) -> DeviceOperand:
        """An array of the host, copied to the device."""
        ...

    def as_size(self, value: HostValue, hint: str = "size") -> Size:
        """A whole number of the host as a size."""
        ...

    def set_size(self, size: Size, value: HostValue) -> None:
        """Say what a size of an output is that only data decides; see `OpDef.sets_output_sizes`."""
        ...

    def write_host(self, out: Operand, value: Operand | HostValue) -> None:
        """Write an output that is `on_host`."""
        ...

    def for_each(self, values: HostValue, *hints: str) -> AbstractContextManager[tuple[Size, ...]]:
        """Launch the kernels written inside for each tuple of whole numbers in a list.

        `hints` name them; as sizes they are what those kernels count with.
        """
        ...

    def __getattr__(self, name: str) -> Callable[..., Number]:
        """NumPy's elementwise functions by their names."""
        ...
