"""The nodes of one kernel: each expression over all elements at once, as one value.

A kernel is written in scalars, with an index for each axis of its grid and each of its loops. A
value of ONNX has one axis for each of these, of size 1 where an expression does not depend on it:

    i, = k.grid(N)                       # axis 0
    j = k.loop(M)                        # axis 1
    k.store(Out, (i,), k.sum(X[i, j] * W[j], j))

becomes the product of X [N, M] and W [1, M], and its sum over axis 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import numpy as np

from compiler.codegen.kernel.body import KernelBody, MatmulBody, Source, Store, number_of
from compiler.codegen.onnx.nodes import Nodes, Unsupported
from compiler.codegen.onnx.pointwise import elementwise, where
from compiler.codegen.trace import Expr, Term, all_parts
from compiler.ir.dims import Size, product
from compiler.ir.types import DType, Shape, TensorType
from compiler.support.dataclass import dataclass
from compiler.support.limits import MAX_ONNX_ELEMENTS

__all__ = ["Elements", "KernelNodes"]

REDUCTIONS = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}


@dataclass(eq=False)
class Elements:
    """The elements of a value while an op's kernels are written: `written` is what they are now."""

    name: str
    type: TensorType
    written: str = ""


class KernelNodes:
    """Writes one kernel; `names` are the values of its expressions, of one axis for each index."""

    def __init__(self, nodes: Nodes, body: KernelBody) -> None:
        self.nodes, self.body = nodes, body
        self.sizes: Shape = (*body.shape, *body.loops)
        self.names: dict[Expr, str] = {}
        self.axes: dict[Expr, frozenset[int]] = {}
        self.moments: dict[Expr, tuple[str, str, str]] = {}

    @property
    def rank(self) -> int:
        """The axes of each value."""
        return len(self.sizes)

    def write(self) -> None:
        """Write the expressions of each store, then what it stores."""
        for store in self.body.stores:
            terms = (*store.indices, store.value, store.where)
            self._evaluate([term for term in terms if isinstance(term, Expr)])
            _StoreNodes(self, store).write()

    # ---- expressions ----

    def _evaluate(self, roots: Sequence[Expr]) -> None:
        for part in all_parts(roots, self._below):
            if part not in self.names:
                self.axes[part] = self._axes(part)
                self._expect_possible(self.axes[part])
                self.names[part] = self._part(part)

    def _below(self, part: Expr) -> list[Expr]:
        """What an expression needs: its operands, and where its loop ends."""
        loops = [part] if part.fn == "loop" else []
        ends = [end for loop in loops if (end := self.body.ends.get(number_of(loop))) is not None]
        return [*part.parts(), *ends]

    def _axes(self, part: Expr) -> frozenset[int]:
        """The axes that an expression depends on."""
        if part.fn == "index":
            return frozenset({number_of(part)})
        if part.fn == "loop":
            return frozenset({self.axis(part)})
        axes = frozenset[int]().union(*(self.axes[arg] for arg in part.parts()))
        if part.fn == "reduce":
            loop = cast(Expr, part.args[1])
            end = self.body.ends.get(number_of(loop))
            return (axes | (self.axes[end] if end is not None else axes)) - {self.axis(loop)}
        if part.fn in ("dot", "column_sum"):
            rank = len(self.body.shape)
            return axes - {rank, rank + 1}
        return axes

    def axes_of(self, terms: Iterable[Term | None]) -> frozenset[int]:
        """The axes that some expressions depend on."""
        return frozenset[int]().union(*(self.axes[t] for t in terms if isinstance(t, Expr)))

    def axis(self, loop: Expr) -> int:
        """The axis of a loop."""
        return len(self.body.shape) + number_of(loop)

    def _expect_possible(self, axes: frozenset[int]) -> None:
        known = [size for axis in axes if isinstance(size := self.sizes[axis], int)]
        if (count := int(np.prod(known, dtype=object))) > MAX_ONNX_ELEMENTS:
            raise Unsupported(f"ONNX would hold {count:,d} numbers between two nodes")

    def _part(self, part: Expr) -> str:
        writer = PARTS.get(part.fn)
        if writer is not None:
            return writer(self, part)
        return elementwise(self.nodes, part, self.operand)

    def operand(self, term: Term, dtype: DType) -> str:
        """An expression or a number as a value of an element type."""
        if not isinstance(term, Expr):
            return self.nodes.scalar(term, dtype)
        name = self.names[term]
        return name if term.dtype is dtype else self.nodes.cast(name, dtype)

    def ranked(self, name: str) -> str:
        """A value of one element with all axes."""
        return self.nodes.add("Reshape", [name, self.nodes.constant([1] * self.rank)])

    def index(self, axis: int) -> str:
        """The numbers from 0 along an axis."""
        nodes, size = self.nodes, self.sizes[axis]
        shape = [-1 if each == axis else 1 for each in range(self.rank)]
        if isinstance(size, int):
            return nodes.constant(np.arange(size).reshape(shape))
        zero, one = nodes.scalar(0, DType.INT64), nodes.scalar(1, DType.INT64)
        count = nodes.add("Squeeze", [nodes.size(size)])
        return nodes.add("Reshape", [nodes.add("Range", [zero, count, one]), nodes.constant(shape)])

    def numbers(self, part: Expr) -> str:
        """The index of an axis or a loop."""
        return self.index(number_of(part) if part.fn == "index" else self.axis(part))

    def size(self, part: Expr) -> str:
        """A size."""
        return self.ranked(self.nodes.size(cast(Size, part.extra)))

    def expanded(self, name: str, own: frozenset[int], axes: frozenset[int]) -> str:
        """A value that depends on its `own` axes, repeated along all of `axes`."""
        if axes <= own:
            return name
        axes = axes | own
        shape = tuple(self.sizes[axis] if axis in axes else 1 for axis in range(self.rank))
        return self.nodes.add("Expand", [name, self.nodes.shape(shape)])

    def full(self, part: Expr) -> str:
        """A constant."""
        return self.nodes.scalar(cast(float, part.args[0]), part.dtype)

    def converted(self, part: Expr) -> str:
        """Another element type."""
        (source,) = part.parts()
        return self.nodes.cast(self.names[source], part.dtype)

    def selected(self, part: Expr) -> str:
        """`Where`."""
        condition, *sides = part.args
        names = [self.operand(side, part.dtype) for side in sides]
        return where(self.nodes, part.dtype, self.operand(condition, DType.BOOL), *names)

    # ---- indices and loads ----

    def flat(self, indices: Sequence[Term], shape: Shape) -> str:
        """The flat index in a shape of the element at some indices."""
        total = ""
        for axis, index in enumerate(indices):
            stride = product(shape[axis + 1 :])
            term = self.operand(index, DType.INT64)
            if stride != 1:
                term = self.nodes.add("Mul", [term, self.nodes.size(stride)])
            total = self.nodes.add("Add", [total, term]) if total else term
        return total or self.nodes.scalar(0, DType.INT64)

    def raveled(self, part: Expr) -> str:
        """A flat index."""
        return self.flat(part.args, cast(Shape, part.extra))

    def divided(self, part: Expr) -> str:
        """The quotient, or the remainder, of indices."""
        names = [self.operand(arg, DType.INT64) for arg in part.args]
        return self.nodes.add({"index_div": "Div", "index_mod": "Mod"}[part.fn], names)

    def loaded(self, part: Expr) -> str:
        """The elements at indices; another number where they are not loaded."""
        source = cast(Source, part.extra)
        elements = cast(Elements, source.operand)
        rank = len(source.shape)
        indices, condition = part.args[:rank], part.args[rank:]
        if not elements.written:
            raise Unsupported(f"its kernel reads {elements.name!r} before it has elements")
        if not condition and (axes := self.plain_axes(indices, source.shape)) is not None:
            return self._aligned(elements, source.shape, axes)
        nodes, place = self.nodes, self.flat(indices, source.shape)
        mask, zero = "", nodes.scalar(0, DType.INT64)
        if condition and condition[0] is not True:
            mask = self.operand(condition[0], DType.BOOL)
            place = nodes.add("Where", [mask, place, zero])
        elif loops := self.ending_loops(self.axes_of(indices)):  # beyond their ends is no element
            for loop in loops:
                place = nodes.add("Where", [self.in_range(loop), place, zero])
        elif not any(isinstance(index, Expr) for index in indices):
            place = self.ranked(place)
        flat = nodes.add("Reshape", [elements.written, nodes.constant([-1])])
        values = nodes.add("Gather", [flat, place])
        if not mask:
            return values
        return nodes.add(
            "Where", [mask, values, nodes.scalar(cast(float, condition[1]), part.dtype)]
        )

    def plain_axes(self, indices: Sequence[Term], shape: Shape) -> list[int | None] | None:
        """The axis whose numbers each index is; None in it for 0 of 1. None if one is computed."""
        axes: list[int | None] = []
        for index, size in zip(indices, shape, strict=True):
            if not isinstance(index, Expr) and index == 0 and size == 1:
                axes.append(None)
                continue
            if not isinstance(index, Expr) or index.fn not in ("index", "loop"):
                return None
            axis = number_of(index) if index.fn == "index" else self.axis(index)
            if self.sizes[axis] != size or axis in axes:
                return None
            axes.append(axis)
        return axes

    def _aligned(self, elements: Elements, shape: Shape, axes: Sequence[int | None]) -> str:
        """All elements, each axis where its index is."""
        nodes, name = self.nodes, elements.written
        if tuple(shape) != elements.type.shape:
            name = nodes.add("Reshape", [name, nodes.target(shape)])
        dropped = [place for place, axis in enumerate(axes) if axis is None]
        if dropped:
            name = nodes.add("Squeeze", [name, nodes.constant(dropped)])
        present = [axis for axis in axes if axis is not None]
        order = sorted(range(len(present)), key=present.__getitem__)
        if order != [*range(len(present))]:
            name = nodes.add("Transpose", [name], perm=order)
        absent = [axis for axis in range(self.rank) if axis not in present]
        return nodes.add("Unsqueeze", [name, nodes.constant(absent)]) if absent else name

    # ---- reductions ----

    def ending_loops(self, axes: frozenset[int]) -> list[Expr]:
        """The loops on some axes that end early."""
        loops = [part for part in self.names if part.fn == "loop" and self.axis(part) in axes]
        return [loop for loop in loops if number_of(loop) in self.body.ends]

    def in_range(self, loop: Expr) -> str:
        """Whether an iteration of a loop takes place; an empty text if all do."""
        end = self.body.ends.get(number_of(loop))
        if end is None:
            return ""
        return self.nodes.add("Less", [self.numbers(loop), self.operand(end, DType.INT64)])

    def reduced(self, part: Expr) -> str:
        """A value over all iterations of a loop."""
        value, loop = part.args[0], cast(Expr, part.args[1])
        if part.extra == "moments":
            return self._moments(part)
        dtype = part.dtype if part.dtype is not DType.BOOL else DType.INT32
        name = self.operand(value, dtype)
        name = name if isinstance(value, Expr) else self.ranked(name)
        mask = self.in_range(loop)
        if mask:
            neutral = neutral_number(cast(str, part.extra), dtype)
            name = self.nodes.add("Where", [mask, name, self.nodes.scalar(neutral, dtype)])
        else:
            own = self.axes_of([value])
            name = self.expanded(name, own, frozenset({self.axis(loop)}))
        result = self.reduce(cast(str, part.extra), name, self.axis(loop))
        return self.nodes.cast(result, part.dtype) if dtype is not part.dtype else result

    def reduce(self, fn: str, name: str, axis: int) -> str:
        """One of the reductions along an axis, which stays."""
        if fn == "sum":
            return self.nodes.add("ReduceSum", [name, self.nodes.constant([axis])], keepdims=1)
        return self.nodes.add(REDUCTIONS[fn], [name], axes=[axis], keepdims=1)

    def _moments(self, part: Expr) -> str:
        """The number of values, their mean, and the sum of squared distances from it."""
        nodes, dtype = self.nodes, part.dtype
        value, loop, *condition = part.args
        axis = self.axis(cast(Expr, loop))
        masks = [self.in_range(cast(Expr, loop)), *(self.operand(c, DType.BOOL) for c in condition)]
        names = [mask for mask in masks if mask]
        along = frozenset({axis})
        name = self.expanded(self.operand(value, dtype), self.axes_of([value]), along)
        if not names:
            size = nodes.cast(self.ranked(nodes.size(self.sizes[axis])), dtype)
            mean = nodes.add("ReduceMean", [name], axes=[axis], keepdims=1)
            distance = nodes.add("Sub", [name, mean])
            squares = self.reduce("sum", nodes.add("Mul", [distance, distance]), axis)
            self.moments[part] = size, mean, squares
            return size
        mask = names[0] if len(names) == 1 else nodes.add("And", names)
        zero = nodes.scalar(0, dtype)
        own = self.axes_of([self.body.ends.get(number_of(cast(Expr, loop))), *condition])
        own |= along if masks[0] else own
        ones = self.expanded(nodes.cast(mask, dtype), own, along)
        count = self.reduce("sum", ones, axis)
        total = self.reduce("sum", nodes.add("Where", [mask, name, zero]), axis)
        mean = nodes.add("Div", [total, count])
        distance = nodes.add("Where", [mask, nodes.add("Sub", [name, mean]), zero])
        squares = self.reduce("sum", nodes.add("Mul", [distance, distance]), axis)
        self.moments[part] = count, mean, squares
        return count

    def moment(self, part: Expr) -> str:
        """One of the moments."""
        (moments,) = part.parts()
        return self.moments[moments][cast(int, part.extra)]

    def scanned(self, part: Expr) -> str:
        """`CumSum` along the axis of a loop."""
        value, loop = part.parts()
        name = self.expanded(self.names[value], self.axes[value], frozenset({self.axis(loop)}))
        axis = self.nodes.constant(np.array(self.axis(loop), np.int64))
        return self.nodes.add("CumSum", [name, axis])

    def sorted_order(self, part: Expr) -> str:
        """The order of the values of a loop: `TopK` of all of them."""
        value, loop = part.parts()
        axis = self.axis(loop)
        name = self.expanded(self.names[value], self.axes[value], frozenset({axis}))
        names = [self.nodes.temporary("sorted"), self.nodes.temporary("order")]
        self.nodes.add_all(
            "TopK", [name, self.nodes.size(self.sizes[axis])], names, axis=axis,
            largest=int(bool(part.extra)),
        )  # fmt: skip
        return names[1]

    # ---- products ----

    def contracted(self, part: Expr) -> str:
        """`MatMul` of the factors as stacks of matrices."""
        nodes, tiles = self.nodes, cast(MatmulBody, self.body)
        a, b = part.parts()
        grid = len(tiles.shape)
        left, right = (self.axis(loop) for loop in tiles.iterations)
        row, column = grid - 2, grid - 1
        name = self.expanded(self.names[a], self.axes[a], frozenset({left}))
        mask = self.in_range(tiles.iterations[0])
        if mask:
            name = nodes.add("Where", [mask, name, nodes.scalar(0, a.dtype)])
        other = self.expanded(self.names[b], self.axes[b], frozenset({right}))
        loops = range(grid, self.rank)
        name = nodes.add("Squeeze", [name, nodes.constant(
            [column, *(axis for axis in loops if axis != left)])])  # fmt: skip
        other = nodes.add("Squeeze", [other, nodes.constant(
            [row, *(axis for axis in loops if axis != right)])])  # fmt: skip
        transposed = nodes.add("Transpose", [other], perm=[*range(grid - 2), grid - 1, grid - 2])
        factors = [name, transposed]
        if not a.dtype.is_float:
            factors = [nodes.cast(factor, part.dtype) for factor in factors]
        result = nodes.add("MatMul", factors)
        result = nodes.add("Unsqueeze", [result, nodes.constant([*loops])])
        return result if part.dtype is a.dtype else nodes.cast(result, part.dtype)

    def summed_columns(self, part: Expr) -> str:
        """The sums of the right factor over the products."""
        tiles = cast(MatmulBody, self.body)
        (factor,) = part.parts()
        return self.reduce("sum", self.names[factor], self.axis(tiles.iterations[1]))


class _StoreNodes:
    """Writes one store of a kernel: all elements, those where it stores, or at computed indices."""

    def __init__(self, kernel: KernelNodes, store: Store) -> None:
        self.kernel, self.store, self.nodes = kernel, store, kernel.nodes
        self.out = cast(Elements, store.operand)
        self.value_axes = kernel.axes_of([store.value])
        self.mask_axes = kernel.axes_of([store.where])

    def write(self) -> None:
        """Write the nodes after which the elements are those stored."""
        kernel, store = self.kernel, self.store
        value = kernel.operand(store.value, self.out.type.dtype)
        value = value if isinstance(store.value, Expr) else kernel.ranked(value)
        mask = self._mask()
        axes = kernel.plain_axes(store.indices, store.shape)
        is_plain = axes is not None and self.value_axes | self.mask_axes <= {*axes}
        if axes is None or store.atomic or not is_plain:
            self.out.written = self._scattered(value, mask)
            return
        whole = self._whole(value, self.value_axes, axes)
        if mask:
            condition = self._whole(mask, self.mask_axes, axes)
            whole = self.nodes.add("Where", [condition, whole, self._before()])
        self.out.written = whole

    def _mask(self) -> str:
        """Where it stores: its condition, in the iterations that take place; an empty text: all."""
        kernel, where = self.kernel, self.store.where
        masks = [] if where is None or where is True else [kernel.operand(where, DType.BOOL)]
        if masks and not isinstance(where, Expr):
            masks = [kernel.ranked(masks[0])]
        terms = [*self.store.indices, self.store.value, where]
        for loop in kernel.ending_loops(kernel.axes_of(terms)):
            masks.append(kernel.in_range(loop))
            self.mask_axes |= kernel.axes_of([loop, kernel.body.ends[number_of(loop)]])
        if len(masks) < 2:
            return masks[0] if masks else ""
        return self.nodes.add("And", masks) if len(masks) == 2 else self._all(masks)

    def _all(self, masks: Sequence[str]) -> str:
        result = masks[0]
        for mask in masks[1:]:
            result = self.nodes.add("And", [result, mask])
        return result

    def _before(self) -> str:
        """The elements before the store: zeros if there are none yet."""
        if self.out.written:
            return self.out.written
        zero = self.nodes.scalar(0, self.out.type.dtype)
        return self.nodes.add("Expand", [zero, self.nodes.shape(self.out.type.shape)])

    def _whole(self, name: str, own: frozenset[int], axes: Sequence[int | None]) -> str:
        """All elements in the order and shape of the result."""
        nodes, kernel = self.nodes, self.kernel
        present = [axis for axis in axes if axis is not None]
        name = kernel.expanded(name, own, frozenset(present))
        absent = [axis for axis in range(kernel.rank) if axis not in present]
        name = nodes.add("Squeeze", [name, nodes.constant(absent)]) if absent else name
        order = [sorted(present).index(axis) for axis in present]
        if order != [*range(len(order))]:
            name = nodes.add("Transpose", [name], perm=order)
        shape = self.out.type.shape
        sizes = tuple(kernel.sizes[axis] for axis in present)
        return name if sizes == shape else nodes.add("Reshape", [name, nodes.target(shape)])

    def _scattered(self, value: str, mask: str) -> str:
        """The elements after stores at computed indices."""
        kernel, nodes, store = self.kernel, self.nodes, self.store
        own = kernel.axes_of(store.indices)
        place = kernel.flat(store.indices, store.shape)
        place = place if own else kernel.ranked(place)
        every = own | self.value_axes | self.mask_axes
        if not store.atomic and not every <= own | self.mask_axes:
            raise Unsupported("its kernel stores several values to one element")
        flat = nodes.constant([-1])
        place = nodes.add("Reshape", [kernel.expanded(place, own, every), flat])
        value = nodes.add("Reshape", [kernel.expanded(value, self.value_axes, every), flat])
        if mask:
            mask = nodes.add("Reshape", [kernel.expanded(mask, self.mask_axes, every), flat])
            place, value = (nodes.add("Compress", [each, mask], axis=0) for each in (place, value))
        before = nodes.add("Reshape", [self._before(), flat])
        places = nodes.add("Unsqueeze", [place, nodes.constant([-1])])
        reduction = "add" if store.atomic else "none"
        after = nodes.add("ScatterND", [before, places, value], reduction=reduction)
        return nodes.add("Reshape", [after, nodes.target(self.out.type.shape)])


PARTS: dict[str, Callable[[KernelNodes, Expr], str]] = {
    "index": KernelNodes.numbers, "loop": KernelNodes.numbers, "size": KernelNodes.size,
    "load": KernelNodes.loaded, "full": KernelNodes.full, "astype": KernelNodes.converted,
    "where": KernelNodes.selected, "ravel": KernelNodes.raveled, "index_div": KernelNodes.divided,
    "index_mod": KernelNodes.divided, "reduce": KernelNodes.reduced, "moment": KernelNodes.moment,
    "scan": KernelNodes.scanned, "order": KernelNodes.sorted_order, "dot": KernelNodes.contracted,
    "column_sum": KernelNodes.summed_columns,
}  # fmt: skip
"""The writers of the parts of kernels that are no elementwise functions."""


def neutral_number(fn: str, dtype: DType) -> float:
    """The number that a reduction ignores."""
    if fn in ("sum", "prod"):
        return float(fn == "prod")
    if dtype.is_float:
        return -np.inf if fn == "max" else np.inf
    limits = np.iinfo(dtype.numpy)
    return int(limits.min if fn == "max" else limits.max)
