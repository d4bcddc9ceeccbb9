"""`coalesce_tensor`: tensors one behind the other in the memory of one."""

from __future__ import annotations

from typing import Any

from compiler.errors import ShapeError
from compiler.ir.conversion.coalesced_memory import places_in
from compiler.ir.opdef import attr, reads, writes
from compiler.ir.opdef.composite import Composite, Steps
from compiler.ir.types import DType, TensorType


class CoalesceTensor(Composite, op="coalesce_tensor"):
    """FusedOutput = the elements of all of Input in a row, each from a multiple of 4096 bytes on.

    Output has the tensors one by one and shares that memory: writing one changes the other. Without
    `copy_data` the values are not those of Input but `constant`, where `set_constant` is given;
    otherwise Paddle 1.8.5 leaves what was there, and here they are those of Input. Between tensors
    there are zeros. Raises ShapeError for sizes that are not known and for other element types than
    `dtype`. Reference: coalesce_tensor_op.cc.
    """

    Input = reads(many=True)
    Output = writes(many=True, optional=True)
    FusedOutput = writes()
    copy_data = attr(False)
    set_constant = attr(False)
    constant = attr(0.0)
    check_name = attr(False)
    dtype = attr(DType.FP32.code)

    def expand(self, steps: Steps) -> None:
        """A padded row of each input, all of them in a row, and each input again."""
        types = [steps.type("Input", i) for i in range(len(steps.all("Input")))]
        self.require_types(types)
        places = places_in(types)
        if self.set_constant and not self.copy_data:
            self.fill(steps, types, places)
            return
        last = places_in([*types, types[0]])[-1][0]
        ends = [start for start, _ in places[1:]] + [last]
        rows = [
            self.row(steps, name, end - start - size)
            for name, (start, size), end in zip(steps.all("Input"), places, ends, strict=True)
        ]
        steps.write("FusedOutput", steps("concat", {"axis": 0}, X=rows))
        steps.write("Output", *(steps("assign", X=name) for name in steps.all("Input")))

    def require_types(self, types: list[TensorType]) -> None:
        """ShapeError unless all inputs have the element type that the attribute says."""
        wanted = DType.of(self.dtype)
        for number, type in enumerate(types):
            if type.dtype is not wanted:
                raise ShapeError(
                    f"{self.kind}: Input {number} is {type}, attribute 'dtype' says {wanted.text}"
                )

    def row(self, steps: Steps, name: str, behind: int) -> str:
        """Append one input as a row with zeros behind it."""
        flat = steps("reshape2", {"shape": [-1]}, X=name)
        return steps("pad", {"paddings": [0, behind]}, X=flat)

    def fill(self, steps: Steps, types: list[TensorType], places: list[tuple[int, int]]) -> None:
        """Append constants in place of all values."""
        whole = places_in([*types, types[0]])[-1][0]
        about: dict[str, Any] = {"dtype": self.dtype, "value": self.constant}
        shapes = [[size for size in type.shape if isinstance(size, int)] for type in types]
        steps.write("FusedOutput", steps("fill_constant", {**about, "shape": [whole]}))
        filled = [steps("fill_constant", {**about, "shape": shape}) for shape in shapes]
        steps.write("Output", *filled)
