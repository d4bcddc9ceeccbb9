"""Lowers each kernel once: kernels that are equal but for their operands have the same code.

A program repeats few kernels many times, with other arrays: its layers, its pairs of fields, the
updates of its parameters. Kernels are compared by what they compute, in the order of their parts,
with operands numbered as they come; of flat ones the number of elements is an argument.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field, replace
from typing import cast

from compiler.codegen.kernel.analysis import needed
from compiler.codegen.kernel.body import KernelBody, Source
from compiler.codegen.kernel.split_reductions import Scratch
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.kernel import NativeKernel
from compiler.codegen.native.loops.flat_kernels import ELEMENTS, of_any_size
from compiler.codegen.native.loops.lower import LoweredKernel, lower_one
from compiler.codegen.native.loops.split import split_kernel
from compiler.codegen.native.machine import Machine
from compiler.codegen.trace import Expr, Term, all_parts
from compiler.ir.dims import Size, evaluate
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class _Code:
    """The code of a kernel: its arguments are operands by number, then sizes."""

    kernel: NativeKernel
    operands: tuple[int, ...]
    sizes: list[Size]

    def of_size(self, elements: int) -> _Code:
        """The code of a flat kernel with the units and costs of a number of elements."""
        kernel, values = self.kernel, {str(ELEMENTS): elements}
        units, flops, nbytes = (
            evaluate(size, values) for size in (kernel.units, kernel.flops, kernel.nbytes)
        )
        kernel = replace(kernel, units=units, flops=flops, nbytes=nbytes)
        return replace(self, kernel=kernel, sizes=[elements for _ in self.sizes])


@dataclass
class KernelLowering:
    """Lowers kernels for a machine, and keeps their code for kernels that are equal."""

    machine: Machine
    _known: dict[Hashable, _Code] = field(default_factory=dict[Hashable, _Code])

    def lower(self, kernel: KernelBody, scratch: Scratch) -> list[LoweredKernel]:
        """Lower a kernel to LLVM IR: to several if its reductions are split, which `scratch` is
        for.

        Raises NotLowered with the reason if it has no loops.
        """
        return [self._lowered(part) for part in split_kernel(kernel, scratch)]

    def _lowered(self, kernel: KernelBody) -> LoweredKernel:
        flat = of_any_size(kernel)
        structure, operands = _described(flat or kernel)
        code = self._code(flat or kernel, structure, operands)
        if flat is not None:
            elements = cast(int, kernel.shape[0])
            structure = structure, elements
            code = self._known.setdefault(structure, code.of_size(elements))
        arguments = [operands[number] for number in code.operands]
        return LoweredKernel(code.kernel, arguments, code.sizes)

    def _code(
        self, kernel: KernelBody, structure: Hashable, operands: Sequence[NumpyOperand]
    ) -> _Code:
        """The code of a kernel, which is written if there is none of its structure."""
        code = self._known.get(structure)
        if code is None:
            lowered = lower_one(kernel, self.machine)
            numbers = {operand.name: number for number, operand in enumerate(operands)}
            order = tuple(numbers[operand.name] for operand in lowered.operands)
            code = self._known[structure] = _Code(lowered.kernel, order, lowered.sizes)
        return code


def _described(kernel: KernelBody) -> tuple[Hashable, list[NumpyOperand]]:
    """What the code of a kernel depends on, and its operands in the order of their numbers."""
    description = _Description()
    rows = [description.part(part) for part in all_parts(needed(kernel))]
    ends = [(loop, description.term(end)) for loop, end in kernel.ends.items()]
    stores = [
        (
            description.operand(store.operand),
            store.shape,
            tuple(map(description.term, store.indices)),
            description.term(store.value),
            description.term(store.where),
            store.atomic,
        )
        for store in kernel.stores
    ]
    own = kernel.shape, tuple(kernel.loops), kernel.split_size
    structure = (*own, tuple(rows), tuple(ends), tuple(stores))
    return structure, description.operands


class _Description:
    """Describes the parts of a kernel by numbers of other parts and of operands."""

    def __init__(self) -> None:
        self.operands: list[NumpyOperand] = []
        self._parts: dict[Expr, int] = {}
        self._numbers: dict[str, int] = {}

    def part(self, part: Expr) -> Hashable:
        """The row of a part, whose operands have been described."""
        extra = part.extra
        if isinstance(extra, Source):
            extra = self.operand(extra.operand), extra.shape
        elif isinstance(extra, NumpyOperand):
            extra = self.operand(extra)
        row = part.fn, tuple(map(self.term, part.args)), part.shape, part.dtype, extra
        self._parts[part] = len(self._parts)
        return row

    def term(self, term: Term | None) -> Hashable:
        """A part by its number; a constant by its type and digits, which tell 0.0 from -0.0."""
        if isinstance(term, Expr):
            return self._parts[term]
        return type(term), repr(term)

    def operand(self, operand: NumpyOperand) -> Hashable:
        """An operand by its number, its type, and the gaps between its rows."""
        number = self._numbers.setdefault(operand.name, len(self._numbers))
        if number == len(self.operands):
            self.operands.append(operand)
        region = operand.region
        return number, operand.type, region.row, region.pitch
