"""Windows around the rows of sequences, gathered in generated code.

Positions outside of a sequence refer to rows appended below all others: one row of zeros, or rows
of padding.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import Operand, SourceBuilder
from compiler.ir.types import Array
from compiler.ops.sequence.offsets import lod_expression, row_places, window_index


def padding_index(places: tuple[Array, Array], start: int, length: int) -> Array:
    """Like `window_index`, but with a separate padding row for each position outside.

    The padding rows before a sequence come first, then those after it, both by position.
    """
    positions, lengths = places
    steps = np.arange(start, start + length)
    seen, index = np.add.outer(positions, steps), window_index(places, start, length)
    beyond = np.where(seen < 0, seen, seen - lengths[:, None]) + max(0, -start)
    return np.where(index < len(positions), index, len(positions) + beyond)


def lower_index(k: SourceBuilder, offsets: Operand, start: int, length: int, padded: bool) -> str:
    """An expression for the window index."""
    places = lod_expression(k, f"{k.function(row_places)}({offsets})", offsets, "places")
    function = k.function(padding_index if padded else window_index)
    return lod_expression(k, f"{function}({places}, {start}, {length})", offsets, "windows")


def lower_windows(
    k: SourceBuilder, values: Operand, index: str, length: Size, border: Operand | None
) -> Operand:
    """Gather windows from values with zeros or a border below them: [rows, length, size]."""
    (rows, size), dtype = values.shape, values.type.dtype
    height = rows + (1 if border is None else border.shape[0])
    below, seen = k.scratch((height, size), dtype), k.scratch((rows, length, size), dtype)
    k.line(f"np.copyto({k.at_bind(f'{below}[:{rows}]', [below], 'rows')}, {values})")
    rest = k.at_bind(f"{below}[{rows}:]", [below], "border")
    k.line(f"{rest}.fill(0.0)" if border is None else f"np.copyto({rest}, {border})")
    k.line(f"{below}.take({index}, axis=0, out={seen}, mode='clip')")
    return seen
