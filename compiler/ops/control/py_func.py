"""py_func: calls a Python function of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from compiler.ir.opdef import HostOp, Slots, attr, attr_list, reads, writes
from compiler.ir.program import OpDesc
from compiler.ir.types import Array, TensorType


class PyFunc(HostOp, op="py_func"):
    """Out = a Python function of X: entry `forward_callable_id` of the program's functions.

    With a `backward_callable_id`, the gradient is that function of X, Out and the gradients of Out,
    without the variables of `backward_skip_vars`. A function takes and returns a list of arrays.
    Reference: py_func_op.cc.
    """

    no_kernel_reason = "it calls a Python function"

    X = reads(many=True, optional=True)
    Out = writes(many=True, optional=True)
    forward_callable_id = attr(0)
    backward_callable_id = attr(-1)
    backward_skip_vars = attr_list(str)
    callables: ClassVar[Sequence[Callable[[list[Array]], list[Array]]]] = ()

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {}

    def numpy(self, X: list[Array] | None) -> dict[str, list[Array]]:
        if not 0 <= self.forward_callable_id < len(self.callables):
            raise ValueError(
                f"py_func: function {self.forward_callable_id} is not in this process, which has "
                f"{len(self.callables)}: a saved model has no Python functions"
            )
        return {"Out": self.callables[self.forward_callable_id](X or [])}

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        if self.backward_callable_id < 0:
            return []
        names = [*op.inputs.get("X", []), *op.outputs.get("Out", [])]
        read = [name for name in names if name not in self.backward_skip_vars]
        read += [grad(name) for name in op.outputs["Out"]]
        attrs = {"forward_callable_id": self.backward_callable_id, "backward_callable_id": -1}
        return [OpDesc("py_func", {"X": read}, {"Out": list(map(grad, op.inputs["X"]))}, attrs)]
