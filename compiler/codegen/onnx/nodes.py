"""The ONNX graph that is being written: nodes, constants, names of values and symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeAlias, cast

import numpy as np

from compiler.errors import CompileError
from compiler.ir.dims import Dim, Quotient, Size
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.types import Array, DType, Shape

__all__ = ["Nodes", "Unsupported", "declared", "element_type", "onnx", "tensor"]


class Unsupported(CompileError):
    """An op, or a use of it, that has no counterpart in ONNX; the text says what."""


def onnx() -> Any:
    """The package `onnx`. Raises ImportError if it is not installed."""
    return import_module("onnx")


OpsWriter: TypeAlias = "Callable[[Nodes, Graph], None]"
"""Writes the ops of a graph to nodes."""


class Nodes:
    """An ONNX graph or the body of a loop or branch, whose nodes see those of the `outer` ones.

    A value of the compiler's graph becomes a value of the same label; in a body, one with the
    body's number in front, because names of ONNX must differ from those outside.
    """

    def __init__(
        self, graph: Graph, outer: Nodes | None = None, write_ops: OpsWriter | None = None
    ) -> None:
        self.graph, self.outer = graph, outer
        self._write_ops = write_ops
        self.root: Nodes = outer.root if outer else self
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._names: dict[Var, str] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._sizes: dict[Size, str] = {}
        self._symbols: dict[str, tuple[str, int, Size]] = {}
        self._temporaries = 0
        self._bodies = 0
        if outer:
            self.root._bodies += 1
        self.prefix = f"body{self.root._bodies}." if outer else ""

    # ---- values ----

    def bind(self, var: Var, name: str | None = None) -> str:
        """Name a value, and learn the symbolic sizes that its shape has; returns the name."""
        self._names[var] = name or self.prefix + var.label
        for axis, size in enumerate(var.type.shape or ()):
            for symbol in _solvable(size):
                self._symbols.setdefault(symbol, (self._names[var], axis, size))
        return self._names[var]

    @contextmanager
    def renamed(self, names: Mapping[Var, str]) -> Generator[None]:
        """Within the block, values have other names: those of results with their shapes."""
        before, self._names = self._names, {**self._names, **names}
        try:
            yield
        finally:
            self._names = {**self._names, **{var: before[var] for var in names}}

    def has(self, var: Var) -> bool:
        """Whether a value is bound in this graph."""
        return var in self._names

    def sees(self, var: Var) -> bool:
        """Whether a value is bound here or outside."""
        return self.has(var) or (self.outer is not None and self.outer.sees(var))

    def name(self, var: Var) -> str:
        """The name of a value that is bound here or outside."""
        here: Nodes | None = self
        while here is not None:
            if var in here._names:
                return here._names[var]
            here = here.outer
        raise Unsupported(f"it reads {var.label!r}, a result that the export lacks")

    def input(self, op: Op, slot: str) -> str:
        """The name of the value in an input slot."""
        return self.name(op.inputs[slot][0])

    def optional(self, op: Op, slot: str) -> str:
        """The name of the value in an optional slot; an empty text if there is none."""
        return self.input(op, slot) if op.inputs.get(slot) else ""

    def output(self, op: Op, slot: str) -> str:
        """The name of the result in an output slot."""
        return self.bind(op.outputs[slot][0])

    # ---- nodes ----

    def add(
        self, kind: str, inputs: Iterable[str], output: str | None = None, **attributes: Any
    ) -> str:
        """Add a node with one result and return its name; a temporary one unless `output` is it."""
        result = output or self.temporary(kind)
        self.add_all(kind, inputs, [result], **attributes)
        return result

    def add_all(
        self, kind: str, inputs: Iterable[str], outputs: Sequence[str], **attributes: Any
    ) -> None:
        """Add a node with named results."""
        names = [*inputs]
        while names and not names[-1]:
            names.pop()
        self.nodes.append(onnx().helper.make_node(kind, names, [*outputs], **attributes))

    def temporary(self, hint: str) -> str:
        """A name for a result that the compiler's graph does not have."""
        self.root._temporaries += 1
        return f"{self.prefix}{hint.lower()}.{self.root._temporaries}"

    def constant(self, value: Array | Sequence[int] | int | float, dtype: Any = np.int64) -> str:
        """A constant; numbers and lists are arrays of `dtype`."""
        array = value if isinstance(value, np.ndarray) else np.array(value, dtype)
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._constants:
            self._constants[key] = name = f"{self.prefix}constant.{len(self._constants)}"
            self.initializers.append(tensor(array, name))
        return self._constants[key]

    def scalar(self, value: float, dtype: DType) -> str:
        """A constant of rank 0."""
        return self.constant(np.array(value, dtype.numpy))

    def cast(self, name: str, dtype: DType, output: str | None = None) -> str:
        """A value converted to another element type."""
        return self.add("Cast", [name], output, to=element_type(dtype))

    def write_ops(self) -> None:
        """Write the ops of this graph or body."""
        assert self.root._write_ops is not None
        self.root._write_ops(self, self.graph)

    # ---- sizes ----

    def shape(self, shape: Shape) -> str:
        """A one-dimensional int64 value with these sizes, computed where they are symbolic."""
        if all(isinstance(size, int) for size in shape):
            return self.constant([cast(int, size) for size in shape])
        parts = [self.size(size) for size in shape]
        return parts[0] if len(parts) == 1 else self.add("Concat", parts, axis=0)

    def target(self, shape: Shape) -> str:
        """What `Reshape` takes for this shape: one symbolic size is inferred, as -1."""
        symbolic = [size for size in shape if not isinstance(size, int)]
        if len(symbolic) == 1:
            return self.constant([size if isinstance(size, int) else -1 for size in shape])
        return self.shape(shape)

    def size(self, size: Size) -> str:
        """An int64 [1] with a size. Raises Unsupported for a name that no value has as its size."""
        if isinstance(size, int):
            return self.constant([size])
        if size not in self._sizes:
            self._sizes[size] = self._computed(size)
        return self._sizes[size]

    def _computed(self, size: Dim) -> str:
        total = ""
        for monomial, factor in size.terms:
            term = self.constant([factor])
            for atom in monomial:
                term = self.add("Mul", [term, self._atom(atom)])
            total = self.add("Add", [total, term]) if total else term
        return total

    def _atom(self, atom: str | Quotient) -> str:
        if isinstance(atom, str):
            return self._symbol(atom)
        return self.add("Div", [self.size(atom.numerator), self.size(atom.denominator)])

    def _symbol(self, symbol: str) -> str:
        """The value of a name: from a value whose shape has it, as size = factor · name + rest."""
        here: Nodes | None = self
        while here is not None and symbol not in here._symbols:
            here = here.outer
        if here is None:
            known = "depends on data" if symbol.startswith("?") else "is that of no value"
            raise Unsupported(f"its shape has a size {symbol!r}, which {known}")
        name, axis, size = here._symbols[symbol]
        value = self.add("Shape", [name], start=axis, end=axis + 1)
        factor, rest = _linear(size, symbol)
        if rest:
            value = self.add("Sub", [value, self.constant([rest])])
        return self.add("Div", [value, self.constant([factor])]) if factor != 1 else value

    # ---- declarations ----

    def body(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """The graph of this body as an attribute, with its declared inputs and outputs."""
        full_name = f"{self.prefix}{name}"
        return onnx().helper.make_graph(
            self.nodes, full_name, [*inputs], [*outputs], self.initializers
        )

    def info(self, var: Var) -> Any:
        """The declaration of an input or output of the model, with symbolic sizes by name."""
        if var.type.is_array:
            return declared_sequence(self.name(var), var.type.dtype)
        sizes = [size if isinstance(size, int) else str(size) for size in var.type.shape]
        return declared(self.name(var), var.type.dtype, sizes)

    def open_info(self, var: Var, name: str) -> Any:
        """The declaration of a value of a body: its type and rank, without sizes."""
        if var.type.is_array:
            return declared_sequence(name, var.type.dtype)
        return declared(name, var.type.dtype, [None] * len(var.type.shape))


def declared(name: str, dtype: DType, sizes: Sequence[int | str | None]) -> Any:
    """The declaration of a tensor; a size is a number, a name, or open."""
    return onnx().helper.make_tensor_value_info(name, element_type(dtype), [*sizes])


def declared_sequence(name: str, dtype: DType) -> Any:
    """The declaration of a sequence of tensors."""
    helper = onnx().helper
    item = helper.make_tensor_type_proto(element_type(dtype), None)
    return helper.make_value_info(name, helper.make_sequence_type_proto(item))


def element_type(dtype: DType) -> int:
    """The number of an element type in ONNX."""
    proto = onnx().TensorProto
    if dtype is DType.BF16:
        return int(proto.BFLOAT16)
    return int(onnx().helper.np_dtype_to_tensor_dtype(dtype.numpy))


def tensor(array: Array, name: str) -> Any:
    """An array as a tensor of ONNX."""
    helper = onnx().helper
    if array.dtype == DType.BF16.numpy:
        data, kind = array.view(np.uint16).tobytes(), onnx().TensorProto.BFLOAT16
        return helper.make_tensor(name, kind, array.shape, data, raw=True)
    return onnx().numpy_helper.from_array(np.asarray(array, order="C"), name)


def _solvable(size: Size) -> list[str]:
    """The names that a size determines by itself: N of N, or of 2·N + 1."""
    if isinstance(size, int):
        return []
    named = [monomial for monomial, _ in size.terms if monomial]
    atoms = named[0] if len(named) == 1 else ()
    return [atom for atom in atoms if isinstance(atom, str) and len(atoms) == 1 and atom != "?"]


def _linear(size: Size, symbol: str) -> tuple[int, int]:
    """The factor and the rest of size = factor · symbol + rest."""
    terms: Mapping[Any, int] = dict(cast(Dim, size).terms)
    return next(f for m, f in terms.items() if m), terms.get((), 0)
