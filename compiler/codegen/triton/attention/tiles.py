"""Tiles of the kernels of attention: the fastest of those measured on an H200.

On other GPUs, and for dropout of wide queries, those whose kernels do not spill.
"""

from __future__ import annotations

from compiler.codegen.kernel.attention import Attention
from compiler.codegen.triton.expressions import power_of_two
from compiler.codegen.triton.tiling.tiles import MIN_SIDE, WARPS
from compiler.ir.dims import is_multiple
from compiler.ir.types import DType
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

MOST_COLUMNS = threshold(
    "attention_columns", 128, "columns",
    "wider queries or values of an attention do not fit into the registers of a GPU's program",
    small=16,
)  # fmt: skip
WIDE_TILE = threshold(
    "attention_wide_tile", 64, "columns",
    "blocks of keys of wider queries are half as long on a GPU, and float32 ones are not fused",
    small=8,
)  # fmt: skip
LONG = threshold(
    "attention_long", 512, "tokens",
    "from so many on, programs of a GPU's gradients have more queries, and of more, fewer keys",
    small=64,
)  # fmt: skip
ONE_PROGRAM = threshold(
    "attention_one_program", 128, "tokens",
    "the gradients of matrices with so many queries and keys are one program each", small=32,
)  # fmt: skip

_FACTORS_IN_MEMORY = ("cuda:90", "cuda:100", "cuda:103")
"""GPUs whose tensor cores read factors from shared memory, which leaves registers for more sums."""


@dataclass(frozen=True)
class AttentionTile:
    """Queries and keys of a program's tile, how its loop is pipelined, and its warps."""

    rows: int
    keys: int
    stages: int
    warps: int = WARPS


def forward_tile(spec: Attention, dtype: DType) -> AttentionTile:
    """Return the tile of the forward kernel."""
    if dtype is DType.FP32:
        return AttentionTile(64, 32, 3)
    is_short = isinstance(spec.keys, int) and spec.keys <= LONG.value
    if _is_plain(spec) and _is_narrow(spec) and is_short and is_multiple(spec.keys, 128):
        return AttentionTile(64, 128, 2)
    return AttentionTile(64, 64, 3)


def query_gradient_tile(spec: Attention, gpu: str) -> AttentionTile:
    """Return the tile of the gradients by queries."""
    stages = 3 if _is_narrow(spec) else 2
    if spec.dropout and _has_factors_in_registers(gpu):
        return AttentionTile(64, 32, stages)
    is_long = isinstance(spec.queries, int) and spec.queries >= LONG.value
    is_medium = WIDE_TILE.value // 2 < spec.width <= WIDE_TILE.value
    if _is_plain(spec) and is_medium and is_long and is_multiple(spec.queries, 128):
        return AttentionTile(128, 64, 3, 8)
    return AttentionTile(64, 64, stages)


def key_gradient_tile(spec: Attention, gpu: str) -> AttentionTile:
    """Return the tile of the gradients by keys and values."""
    is_narrow = _is_narrow(spec)
    stages = 3 if is_narrow else 2
    if _has_factors_in_registers(gpu) and not (is_narrow and _is_plain(spec)):
        return AttentionTile(64, 32, 2)
    if spec.dropout and (_masks_rows(spec) or not is_narrow):
        return AttentionTile(32, 64, stages)
    return AttentionTile(64, 64, stages)


def single_tile(spec: Attention, gpu: str) -> AttentionTile | None:
    """Return the tile of all gradients of a matrix in one program; None if it is too large."""
    sizes = [size for size in (spec.queries, spec.keys) if isinstance(size, int)]
    if len(sizes) < 2 or max(sizes) > ONE_PROGRAM.value or not _is_narrow(spec):
        return None
    rows, keys = (max(MIN_SIDE, power_of_two(size)) for size in sizes)
    is_large = max(rows, keys) > ONE_PROGRAM.value // 2
    if is_large and _has_factors_in_registers(gpu):
        return None
    return AttentionTile(rows, keys, 1, 2 * WARPS if is_large else WARPS)


def _has_factors_in_registers(gpu: str) -> bool:
    """Whether tensor cores of a GPU read both factors from registers, not from shared memory."""
    return gpu.startswith("cuda:") and gpu not in _FACTORS_IN_MEMORY


def _is_narrow(spec: Attention) -> bool:
    return max(spec.width, spec.value_width) <= WIDE_TILE.value


def _is_plain(spec: Attention) -> bool:
    """Whether scores are computed without numbers for each of them."""
    return not spec.is_causal and not spec.dropout and not _masks_rows(spec)


def _masks_rows(spec: Attention) -> bool:
    """Whether the mask has numbers for each query."""
    return bool(spec.mask) and spec.mask[-2] != 0
