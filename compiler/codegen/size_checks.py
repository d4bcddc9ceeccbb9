"""Checks of sizes in `bind`: what ops require of dynamic sizes.

Inference compares the sizes of an op's inputs. Comparisons that only numbers decide are left for
the module: it makes each once, when it is bound to sizes, so that kernels and reference
implementations take for granted that their operands belong together. Ops of a block have no checks:
they may never run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from compiler.codegen.module_writer import ModuleWriter
from compiler.ir.dims import Size, names_of
from compiler.ir.opdef.size_comparison import Requirement
from compiler.ir.opdef.type_inference import size_requirements
from compiler.ir.types import TensorType
from compiler.plan import PlannedOp, Step

_Operands: TypeAlias = "dict[str, TensorType]"
"""The types of an op's inputs, by slot, and index in slots of several."""


def check_sizes(writer: ModuleWriter, step: Step) -> None:
    """Write what the ops of a step require of sizes that are known when the module is bound."""
    for op in (op for op in step.ops if op.outputs and not op.body):
        operands = dict(_operands(op))
        if not any(type.names for type in operands.values()):
            continue
        for requirement in size_requirements(op.defn, op.defn.types_of(op.inputs)):
            names = names_of(*requirement.sizes)
            if names and names <= writer.bound_dims:
                writer.expect(requirement, _message(op.kind, operands, requirement))


def _operands(op: PlannedOp) -> Iterator[tuple[str, TensorType]]:
    for slot, values in op.inputs.items():
        for index, value in enumerate(values):
            yield f"{slot}[{index}]" if op.defn.slots[slot].many else slot, value.type


def _message(kind: str, operands: _Operands, required: Requirement) -> str:
    """What is wrong with sizes that violate a requirement, as an f-string of their names."""
    operand_texts = ", ".join(f"{name} {_type_text(type)}" for name, type in operands.items())
    size, expected = required.sizes[0], required.expected
    return (
        f"{kind}: {_described(operands, size)} {{{size}}}, expected {expected}, of {operand_texts}"
    )


def _described(operands: _Operands, size: Size) -> str:
    """What has a size: an axis or all elements of an operand, or else its formula."""
    for name, type in operands.items():
        if size in type.shape:
            return f"axis {type.shape.index(size)} of {name} has size"
        if size == type.numel:
            return f"the number of elements of {name} is"
    return f"{size} is"


def _type_text(type: TensorType) -> str:
    """A type as an f-string of the names of its sizes; `?` for those that no binding knows."""
    sizes = [f"{{{size}}}" if str(size) != "?" else "?" for size in type.shape]
    return f"{type.dtype.text}[{', '.join(sizes)}]"
