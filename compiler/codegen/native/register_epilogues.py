"""Epilogues in registers: what a kernel's stores compute from a result that is still in registers.

A specialised kernel computes vectors of its result. The stores of an op's body, with the pointwise
ops fused after it, are expressions of one node, the result; they are evaluated for each vector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import cast

from compiler.codegen.kernel.analysis import operand_types, store_roots
from compiler.codegen.kernel.body import KernelBody, Source, Store
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.affine import strides
from compiler.codegen.native.element_types import TYPES
from compiler.codegen.native.functions import cast as cast_value
from compiler.codegen.native.functions import lowering
from compiler.codegen.native.llvm_ir import BF16, Function, Value, constant
from compiler.codegen.native.loops import NotLowered
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.axes import EpilogueOperand
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.codegen.native.products.place import ResultAddresses
from compiler.codegen.trace import Expr, Term, all_parts, ordered
from compiler.ir.types import HALVES, DType
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class _Finish:
    """Computes the vectors to store; equal `key`s compute the same from equal operands."""

    key: tuple[object, ...]
    run: Callable[[Function, list[Value], ResultAddresses], list[Value]] = field(compare=False)

    def __call__(
        self, function: Function, values: list[Value], place: ResultAddresses
    ) -> list[Value]:
        return self.run(function, values, place)


@dataclass
class RegisterEpilogue:
    """The stores of a kernel as an epilogue over `result`; `arrays` are its operands by name.

    Raises NotLowered if a store or a load does not move with the axes of the result alone.
    """

    kernel: KernelBody
    result: Expr
    machine: Machine
    arrays: dict[str, NumpyOperand] = field(default_factory=dict[str, NumpyOperand])
    _loads: dict[Expr, str] = field(default_factory=dict[Expr, str])

    def __post_init__(self) -> None:
        self._order = self._parts()
        self._types = {
            part: operand_types(part) for part in self._order if part.args and part.fn != "load"
        }
        self.epilogue = self._made()
        """The epilogue of the kernel that computes the result."""

    def _made(self) -> Epilogue:
        stores = self.kernel.stores
        outputs = [self._output(number, store) for number, store in enumerate(stores)]
        inputs = [self._input(part) for part in self._order if part.fn == "load"]
        plain = len(stores) == 1 and stores[0].value is self.result
        plain = plain and stores[0].operand.type.dtype is self.result.dtype
        operands = tuple(dict.fromkeys((*outputs, *inputs)))
        if plain:
            return Epilogue(operands=operands)
        names = tuple(output.name for output in outputs)
        return Epilogue(self.kernel.name, operands, _Finish(self._key(), self._finish), names)

    def _key(self) -> tuple[object, ...]:
        """What is computed, by the numbers of the parts that it is computed from."""
        numbers: dict[Term, int] = {self.result: 0}
        rows: list[object] = [self.result.dtype]
        for part in self._order:
            if part.fn == "load":
                row: object = self._loads[part], cast(Source, part.extra).operand.type.dtype
            else:
                row = part.extra, *(self._term(arg, numbers) for arg in part.args)
            rows.append((part.fn, part.dtype, row))
            numbers[part] = len(numbers)
        stores = self.kernel.stores
        stored = [(numbers[cast(Expr, e.value)], e.operand.type.dtype) for e in stores]
        return (*rows, *stored)

    def _term(self, term: Term, numbers: Mapping[Term, int]) -> object:
        """A part by its number; a constant by its digits, which tell 0.0 from -0.0."""
        return numbers[term] if isinstance(term, Expr) else repr(term)

    def _parts(self) -> list[Expr]:
        """What is computed from the result, operands first."""
        order: dict[Expr, None] = {}
        for store in self.kernel.stores:
            if isinstance(store.value, Expr):
                order |= dict.fromkeys(ordered(store.value, order, self._below))
        return [part for part in order if part is not self.result]

    def _below(self, part: Expr) -> list[Expr]:
        """The operands of an expression that are computed in registers."""
        return [] if part is self.result or part.fn == "load" else part.parts()

    def _output(self, number: int, store: Store) -> EpilogueOperand:
        if store.atomic or store.where is not None:
            raise NotLowered("its epilogue stores under a condition")
        name = f"out{number}" if number else "out"
        source = Source(store.operand, store.shape)
        moved = self._strides(self.kernel.node("load", store.indices, DType.FP32, source))
        if moved[-1] != 1:
            raise NotLowered("its epilogue stores columns apart")
        self.arrays[name] = store.operand
        return EpilogueOperand(name, TYPES[store.operand.type.dtype], moved)

    def _input(self, load: Expr) -> EpilogueOperand:
        moved = self._strides(load)
        if moved[-1] not in (0, 1):
            raise NotLowered("its epilogue loads columns apart")
        source = cast(Source, load.extra)
        name = f"given{len(self._loads)}"
        self._loads[load] = name
        self.arrays[name] = source.operand
        return EpilogueOperand(name, TYPES[source.operand.type.dtype], moved)

    def _strides(self, load: Expr) -> tuple[int, ...]:
        layout = strides(load, self.kernel.indices)
        if layout is None or layout[1] != 0:
            raise NotLowered("its epilogue does not follow the axes of its result")
        return tuple(cast("list[int]", layout[0]))

    # ---- evaluation ----

    def _finish(
        self, function: Function, values: list[Value], place: ResultAddresses
    ) -> list[Value]:
        """The vectors to store, from a vector of the result."""
        computed: dict[Expr, Value] = {self.result: values[0]}
        for part in self._order:
            computed[part] = self._value(function, part, computed, place, values[0].type.lanes)
        results = [computed[cast(Expr, store.value)] for store in self.kernel.stores]
        dtypes = [store.operand.type.dtype for store in self.kernel.stores]
        return [
            self._rounded(function, value, cast(Expr, store.value).dtype, dtype)
            for value, store, dtype in zip(results, self.kernel.stores, dtypes, strict=True)
        ]

    def _rounded(self, function: Function, value: Value, source: DType, target: DType) -> Value:
        """A number as it is stored; some CPUs round to bfloat16 by one instruction."""
        if target is DType.BF16 and source is DType.FP32 and self.machine.rounds_to_bf16:
            return function.convert("fptrunc", value, BF16)
        return cast_value(function, value, source, target)

    def _value(
        self,
        function: Function,
        part: Expr,
        known: dict[Expr, Value],
        place: ResultAddresses,
        lanes: int,
    ) -> Value:
        if part.fn == "load":
            loaded = place.load(self._loads[part])
            is_byte = cast(Source, part.extra).operand.type.dtype is DType.BOOL
            return cast_value(function, loaded, DType.INT8, DType.BOOL) if is_byte else loaded
        if part.fn == "astype":
            (inner,) = part.parts()
            return cast_value(function, known[inner], inner.dtype, part.dtype)
        if part.fn == "full":
            return constant(TYPES[part.dtype].vector(lanes), cast(float, part.args[0]))
        if not part.args:
            raise NotLowered(f"epilogues have no {part.fn}")
        types = [dtype and _computed(dtype) for dtype in self._types[part]]
        lower = lowering(part.fn, types[-1] or _computed(part.dtype))
        if lower is None:
            raise NotLowered(f"epilogues have no {part.fn}")
        is_half = part.dtype in HALVES
        arguments = [
            self._argument(function, argument, dtype, known, lanes)
            for argument, dtype in zip(part.args, types, strict=True)
        ]
        result = lower(function, *arguments)
        return cast_value(function, result, DType.FP32, part.dtype) if is_half else result

    def _argument(
        self, function: Function, argument: Term, dtype: DType | None, known: dict[Expr, Value],
        lanes: int,
    ) -> Value:  # fmt: skip
        if isinstance(argument, Expr):
            return cast_value(function, known[argument], argument.dtype, dtype or argument.dtype)
        assert dtype is not None
        if dtype is DType.BOOL:
            raise NotLowered("epilogues have no conditions that are constant")
        return constant(TYPES[dtype].vector(lanes), argument)


def _computed(dtype: DType) -> DType:
    """The type that numbers are computed in: float32 for halves."""
    return DType.FP32 if dtype in HALVES else dtype


def placed_result(kernel: KernelBody, dtype: DType) -> Expr:
    """The node that stands for a result which a specialised kernel computes."""
    return kernel.node("result", (), dtype)


def products_of(kernel: KernelBody, name: str) -> Sequence[Expr]:
    """The nodes of a kernel by their function."""
    return [part for part in all_parts(store_roots(kernel.stores)) if part.fn == name]
