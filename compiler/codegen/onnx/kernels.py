"""Ops written from their kernels, for those that have no counterpart of their own in ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from compiler.codegen.kernel.body import KernelBody
from compiler.codegen.kernel.scalar_kernels import KernelOperand, ScalarKernels
from compiler.codegen.kernel.support import has_kernel_body, why_no_kernel
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.onnx.kernel_nodes import Elements, KernelNodes
from compiler.codegen.onnx.nodes import Nodes, Unsupported
from compiler.codegen.onnx.sequences import HOST_FUNCTIONS
from compiler.ir.dims import Size
from compiler.ir.graph import Op, Var
from compiler.ir.opdef import GradOp, OpDef, call
from compiler.ir.opdef.global_reductions import Whole
from compiler.ir.opdef.slot_values import slot_reads
from compiler.ir.opdef.slots import Share
from compiler.ir.types import DType, TensorType
from compiler.support.dataclass import dataclass

__all__ = ["has_nodes", "write_kernels"]


def write_kernels(nodes: Nodes, op: Op) -> None:
    """Write the nodes of an op from its kernels. Raises Unsupported if it has none, or draws."""
    reason = why_no_kernel(op, frozenset(DType), has_kernel_body(type(op.defn)))
    if reason or not has_nodes(type(op.defn)):
        raise Unsupported(f"it has no counterpart{reason and f': {reason}'}")
    kernels = OnnxKernels(nodes, op)
    call(op.defn, "kernel", kernels.operands(), kernels)
    kernels.finish()


def has_nodes(defn: type[OpDef]) -> bool:
    """True if nodes can be written from the kernels of an op, for at least some attributes."""
    if not has_kernel_body(defn) or issubclass(defn, Whole) or defn.kind in BY_THE_HOST:
        return False
    body = (defn.forward, "kernel_grad") if issubclass(defn, GradOp) else (defn, "kernel")
    return not defn.no_kernel_reason and not slot_reads(*body).names & HOST


class OnnxKernels(ScalarKernels):
    """Writes the kernels of one op as nodes; what needs code of the host is Unsupported."""

    def __init__(self, nodes: Nodes, op: Op) -> None:
        super().__init__(op.kind)
        self._nodes = nodes
        self._op = op
        self._outputs: list[tuple[Var, Elements]] = []

    @property
    def in_order(self) -> bool:
        """True: sums are computed in the same order in every run."""
        return True

    # ---- operands ----

    def operands(self) -> dict[str, Any]:
        """The operands of each slot of the op."""
        slots = self._op.defn.slots
        result: dict[str, Any] = {}
        for slot, vars in self._op.inputs.items():
            result[slot] = slots[slot].hold([*map(self._input, vars)])
        for slot, vars in self._op.outputs.items():
            result[slot] = slots[slot].hold([*map(self._output, vars)])
        return result

    def _input(self, var: Var) -> KernelOperand:
        name = self._nodes.name(var) if self._nodes.sees(var) else ""
        return self._operand(Elements(var.label, var.type, name))

    def _output(self, var: Var) -> KernelOperand:
        elements = Elements(var.label, var.type)
        self._outputs.append((var, elements))
        return self._operand(elements)

    def _operand(self, elements: Elements) -> KernelOperand:
        return KernelOperand(self, lambda: cast(NumpyOperand, elements), elements.type)

    def scratch(self, shape: Sequence[Size], dtype: DType) -> KernelOperand:
        """A value between kernels of this op."""
        return self._operand(Elements("scratch", TensorType(dtype, tuple(shape))))

    def aliased(self, a: KernelOperand, b: KernelOperand) -> bool:
        """False: nodes have no memory in common."""
        return False

    def is_view_of(self, part: KernelOperand, whole: KernelOperand, share: Share) -> bool:
        """False: nodes have no memory in common."""
        return False

    # ---- the host ----

    def on_host(self, function: Callable[..., Any], *arguments: Any, hint: str = "") -> HostNumbers:
        """The numbers of a function of offsets and sizes; Unsupported for one without nodes."""
        writer = HOST_FUNCTIONS.get(function.__name__)
        if writer is None:
            raise Unsupported(f"the host computes {function.__name__.replace('_', ' ')}")
        self.flush()
        return HostNumbers(writer(self._nodes, *map(_argument, arguments)))

    def to_device(
        self, value: Any, shape: Sequence[Size], dtype: DType = DType.INT64, *, low: int = 0,
        below: Size | None = None,
    ) -> KernelOperand:  # fmt: skip
        """Numbers of the host as elements."""
        name = self._nodes.cast(cast(str, _argument(value)), dtype)
        return self._operand(Elements("numbers", TensorType(dtype, tuple(shape)), name))

    def write_host(self, out: KernelOperand, value: Any) -> None:
        """Let offsets be those of an input, or computed ones."""
        self.flush()
        _elements(out).written = cast(str, _argument(value))

    # ---- whole ops ----

    def sorting(
        self, axis: int, largest: bool, X: KernelOperand, values: KernelOperand,
        indices: KernelOperand,
    ) -> bool:  # fmt: skip
        """`TopK`."""
        self.flush()
        nodes = self._nodes
        source = nodes.add("Reshape", [_elements(X).written, nodes.target(X.shape)])
        names = [nodes.temporary("sorted"), nodes.temporary("order")]
        count = nodes.size(values.shape[axis])
        nodes.add_all("TopK", [source, count], names, axis=axis, largest=int(largest))
        for operand, name in zip((values, indices), names, strict=True):
            elements = _elements(operand)
            shaped = nodes.add("Reshape", [name, nodes.target(elements.type.shape)])
            elements.written = nodes.cast(shaped, elements.type.dtype)
        return True

    def expect_size(self, what: str, size: Size, expected: Size) -> None:
        """ONNX compares sizes where nodes need them."""

    def expect_at_most(self, size: Size, limit: Size) -> None:
        """ONNX compares sizes where nodes need them."""

    # ---- kernels ----

    def _emit(self, kernel: KernelBody) -> None:
        KernelNodes(self._nodes, kernel).write()

    def finish(self) -> None:
        """Emit the last kernel, and name the results."""
        self.flush()
        for var, elements in self._outputs:
            if elements.written:
                self._nodes.add("Identity", [elements.written], self._nodes.bind(var))

    def __getattr__(self, name: str) -> Any:
        if name == "key":
            raise Unsupported("random numbers")
        if name in HOST:
            raise Unsupported("the host takes part in its kernels")
        return super().__getattr__(name)


BY_THE_HOST = frozenset({"linear_chain_crf", "lstmp", "random_crop", "shuffle_batch"})
"""Ops whose kernels need numbers that the host computes, or draws."""
HOST = frozenset({"as_size", "set_size", "for_each", "line"})
"""What builders of code offer beyond kernels."""


@dataclass(frozen=True)
class HostNumbers:
    """Numbers that kernels compute on the host, by the name of the value that has them."""

    name: str

    def length(self) -> HostNumbers:
        """How many there are: Unsupported, as the sizes that depend on it."""
        raise Unsupported("a size that depends on data")

    def __getitem__(self, index: int) -> HostNumbers:
        raise Unsupported("several arrays of the host")


def _argument(value: Any) -> Any:
    """What a host function is called with: names of values for operands and results."""
    if isinstance(value, KernelOperand):
        return _elements(value).written
    return value.name if isinstance(value, HostNumbers) else value


def _elements(operand: KernelOperand) -> Elements:
    return cast(Elements, operand.operand)
