"""`coalesce_tensor`: several tensors packed into one buffer."""

from __future__ import annotations

from typing import Any

from compiler.errors import ShapeError
from compiler.ir.conversion.coalesced_memory import places_in
from compiler.ir.opdef import attr, reads, writes
from compiler.ir.opdef.composite import Composite, CompositeSteps
from compiler.ir.types import DType, TensorType


class CoalesceTensor(Composite, op="coalesce_tensor"):
    """FusedOutput = the elements of all of Input, flattened, each input aligned to 4096 bytes.

    Output has the individual tensors as views of that buffer: writing one changes the other.
    Without `copy_data`, the values are `constant` if `set_constant` is set; otherwise Paddle 1.8.5
    leaves the buffer uninitialised, while here it holds the values of Input. Padding between
    tensors is zero. Raises ShapeError for unknown sizes and for dtypes other than `dtype`.
    Reference: coalesce_tensor_op.cc.
    """

    Input = reads(many=True)
    Output = writes(many=True, optional=True)
    FusedOutput = writes()
    copy_data = attr(False)
    set_constant = attr(False)
    constant = attr(0.0)
    check_name = attr(False)
    dtype = attr(DType.FP32.code)

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to padded rows, a concat of them, and a copy of each input."""
        types = [steps.type("Input", i) for i in range(len(steps.all("Input")))]
        self.require_types(types)
        ranges = places_in(types)
        if self.set_constant and not self.copy_data:
            self.fill(steps, types, ranges)
            return
        last = places_in([*types, types[0]])[-1][0]
        ends = [start for start, _ in ranges[1:]] + [last]
        rows = [
            self.row(steps, name, end - start - size)
            for name, (start, size), end in zip(steps.all("Input"), ranges, ends, strict=True)
        ]
        steps.write("FusedOutput", steps("concat", {"axis": 0}, X=rows))
        steps.write("Output", *(steps("assign", X=name) for name in steps.all("Input")))

    def require_types(self, types: list[TensorType]) -> None:
        """Raise ShapeError unless all inputs have the dtype of the attribute."""
        wanted = DType.of(self.dtype)
        for number, type in enumerate(types):
            if type.dtype is not wanted:
                raise ShapeError(
                    f"{self.kind}: Input {number} is {type}, attribute 'dtype' is {wanted.text}"
                )

    def row(self, steps: CompositeSteps, name: str, behind: int) -> str:
        """Append ops that flatten one input and pad it with zeros at the end."""
        flat = steps("reshape2", {"shape": [-1]}, X=name)
        return steps("pad", {"paddings": [0, behind]}, X=flat)

    def fill(
        self, steps: CompositeSteps, types: list[TensorType], ranges: list[tuple[int, int]]
    ) -> None:
        """Append constants instead of the inputs' values."""
        whole = places_in([*types, types[0]])[-1][0]
        about: dict[str, Any] = {"dtype": self.dtype, "value": self.constant}
        shapes = [[size for size in type.shape if isinstance(size, int)] for type in types]
        steps.write("FusedOutput", steps("fill_constant", {**about, "shape": [whole]}))
        filled = [steps("fill_constant", {**about, "shape": shape}) for shape in shapes]
        steps.write("Output", *filled)
