"""mma.sync of float64: products of 8 or 16 rows, each element in a register of its own."""

from __future__ import annotations

import numpy as np

from tools.ptx.checks import require_whole_warps
from tools.ptx.errors import unsupported
from tools.ptx.group import WARP, Group, Mask
from tools.ptx.instructions import Instruction, Vector
from tools.ptx.matrices.tensor_cores import COLUMN, ROW, Kind, left_factor, right_factor
from tools.ptx.values import Step, reader, writer

_SHAPES = {"m8n8k4": (1, 1), "m16n8k4": (2, 1), "m16n8k8": (4, 2), "m16n8k16": (8, 4)}
"""The elements of the left and of the right factor in each lane."""
_DOUBLE = Kind(1, lambda values: values[..., None])


def multiply_doubles(instruction: Instruction) -> Step:
    """mma.sync of float64; sums are rounded after each product, in an order of our own."""
    sync, aligned, shape, *form = instruction.modifiers
    groups = [operand.parts for operand in instruction.operands if isinstance(operand, Vector)]
    left_count, right_count = _SHAPES.get(shape, (0, 0))
    results = 2 if shape == "m8n8k4" else 4
    if (sync, aligned, *form) != ("sync", "aligned", "row", "col", *["f64"] * 4) or [
        len(group) for group in groups
    ] != [results, left_count, right_count, results]:
        raise unsupported(instruction)
    depth = int(shape.partition("k")[2])
    writes = [writer(part) for part in groups[0]]
    left, right, added = ([reader(operand, "f8") for operand in part] for part in groups[1:])

    def run(group: Group, mask: Mask) -> None:
        require_whole_warps(group, instruction, mask)
        a, b = left_factor(group, left, _DOUBLE, depth), right_factor(group, right, _DOUBLE, depth)
        total = np.zeros((group.lanes // WARP, 16, 8))
        for place, read in enumerate(added):
            total[:, ROW + 8 * (place >> 1), 2 * COLUMN + (place & 1)] = group.warps(read(group))
        total += np.matmul(a, b)
        for place, write in enumerate(writes):
            result = total[:, ROW + 8 * (place >> 1), 2 * COLUMN + (place & 1)]
            write(group, mask, result.reshape(-1))

    return run
