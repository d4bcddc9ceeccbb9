"""Every option of the compiler: an argument, or an environment variable (docs/settings.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from compiler.support.dataclass import dataclass
from compiler.support.settings.fluid import (
    FLUID_CACHE,
    FLUID_CACHE_SIZE,
    FLUID_CHECK,
    FLUID_COMPRESS,
    FLUID_CUDA_GRAPH,
    FLUID_DETERMINISTIC,
    FLUID_DISABLE,
    FLUID_DTYPE,
    FLUID_DUMP,
    FLUID_EXACT_PRODUCTS,
    FLUID_LIBRARIES,
    FLUID_MEMORY_BUDGET,
    FLUID_MEMORY_LIMIT,
    FLUID_PASSES,
    FLUID_TARGET,
    FLUID_TF32,
)
from compiler.support.settings.setting import Environ, bytes_of
from compiler.support.settings.systems import XDG_CACHE_HOME


class Named(Protocol):
    """An object with a name, such as the class of a pass."""

    @property
    def name(self) -> str:
        """The name."""
        ...


NARROW = ("bf16", "fp16")
"""Half-precision element types that matrix products may compute in."""


@dataclass(frozen=True)
class Options:
    """Options of a compilation.

    `disable` names passes to leave out. Graphs and plans are always verified. `check` 1 also fills
    memory with NaN (or the smallest integer) after the last step that needs it, so that a late read
    shows, and native kernels compare every access with the bounds of its array; 2 also runs the
    interpreter before and after each pass on generated feeds and stops at the first pass that
    changes a number, and compares what each native step computes, in every run, with the reference
    implementations of its ops: a difference raises WrongResult. Its kernels are those of ordinary
    runs, without checks of bounds. `typical` is the value assumed for unknown sizes when schedules
    are compared.

    `memory_budget` is the maximum bytes of live temporaries, as a number, as text with a unit
    (`"300MB"`), or as a percentage of what they would otherwise take (`"60%"`): cheap values are
    then recomputed rather than kept. With unknown sizes it holds for the typical one.
    `memory_limit` is the maximum bytes of a step in total, as a number or text with a unit
    (`"2GiB"`): if sizes need more, binding raises MemoryLimitExceeded before memory is allocated
    (docs/security.md lists what is counted).

    `dump` is a folder in which each compilation writes its stages, in a separate subfolder.
    `passes` are registered passes to run in addition, at their registered positions: classes or
    names (docs/cookbook.md). `dtype` "bf16" or "fp16" lets matrix products, and the ops after them,
    compute in bfloat16 or float16, for inference (docs/mixed_precision.md). `deterministic` fixes
    the order of summation of duplicate rows on a device, which takes longer; `tf32` lets its
    float32 products round their operands to TF32, which is faster (docs/gpu.md).

    `target` is the code generator for programs on the CPU: "native" (machine code, docs/native.md)
    or "numpy" (readable NumPy calls); by default native where it runs. Without `winograd` native
    convolutions are direct sums: slower, and their rounding errors are smaller.

    With `libraries` the library of a GPU's vendor computes products for which it was measured to be
    faster; packages have kernels only (docs/gpu.md).

    With `cuda_graph` an executor captures the steps of a program on a GPU as CUDA graphs, if the
    host takes no part in them (docs/gpu.md).

    `check_numbers` stops a step at the first op that computes NaN or infinity, and names op and
    tensor; ops are then neither fused nor moved. `bucket_bytes` is how many bytes of gradients are
    all-reduced at once, None to let the cost model decide; with `overlap`, communication overlaps
    with computing the other gradients; `compress` "fp16" or "bf16" casts them for the transfer.
    """

    disable: frozenset[str] = frozenset()
    check: int = 0
    typical: int = 32
    memory_budget: int | str | None = None
    memory_limit: int | str | None = None
    dump: str | None = None
    passes: Sequence[str | Named] = ()
    dtype: str | None = None
    deterministic: bool = False
    tf32: bool = False
    exact_products: bool = False
    libraries: bool = True
    gpu: str = ""
    tiles: str = ""
    bucket_bytes: int | None = None
    overlap: bool = True
    compress: str | None = None
    check_numbers: bool = False
    target: str | None = None
    winograd: bool = True
    cuda_graph: bool = True

    def __post_init__(self) -> None:
        _expect_dtype(self.dtype)
        _expect_target(self.target)
        _expect_buckets(self.bucket_bytes, self.compress)
        _expect_gpu(self.gpu)
        if self.tf32 and self.exact_products:
            raise ValueError("tf32 rounds what exact_products multiplies exactly: set one of them")
        if self.memory_budget is not None:
            budget_bytes(self.memory_budget, 0)
        if self.memory_limit is not None:
            limit_bytes(self.memory_limit)
        object.__setattr__(self, "passes", self.added)

    @property
    def added(self) -> tuple[str, ...]:
        """The names of `passes`."""
        return tuple(entry if isinstance(entry, str) else entry.name for entry in self.passes)

    @property
    def memory_limit_bytes(self) -> int | None:
        """`memory_limit` in bytes; None if there is no limit."""
        return None if self.memory_limit is None else limit_bytes(self.memory_limit)

    @staticmethod
    def from_env(environ: Environ = None) -> Options:
        """Return the options of environment variables: those of docs/settings.md that have the name
        of an option. Raises ValueError naming a variable with an invalid value.

        >>> Options.from_env({"FLUID_DISABLE": "schedule,reuse_memory"}).disable == {
        ...     "schedule", "reuse_memory"}
        True
        """
        return Options(
            disable=frozenset(FLUID_DISABLE.read(environ)),
            check=int(FLUID_CHECK.read(environ)),
            memory_budget=FLUID_MEMORY_BUDGET.read(environ),
            memory_limit=FLUID_MEMORY_LIMIT.read(environ),
            dump=FLUID_DUMP.read(environ),
            passes=FLUID_PASSES.read(environ),
            dtype=FLUID_DTYPE.read(environ),
            deterministic=FLUID_DETERMINISTIC.read(environ),
            tf32=FLUID_TF32.read(environ),
            exact_products=FLUID_EXACT_PRODUCTS.read(environ),
            libraries=FLUID_LIBRARIES.read(environ),
            compress=FLUID_COMPRESS.read(environ),
            target=FLUID_TARGET.read(environ),
            cuda_graph=FLUID_CUDA_GRAPH.read(environ),
        )


@dataclass(frozen=True)
class Cache:
    """An on-disk cache of compiled code: its folder and its maximum bytes."""

    folder: Path
    limit: int = FLUID_CACHE_SIZE.default

    @staticmethod
    def from_env(environ: Environ = None, kind: str = "kernels") -> Cache:
        """Return the cache in the folder `FLUID_CACHE` (by default `fluid` in the user's cache
        folder), with the limit `FLUID_CACHE_SIZE` (`500MB`; 0 disables it). Raises ValueError for
        an invalid size.

        >>> Cache.from_env({"FLUID_CACHE": "/tmp/kernels", "FLUID_CACHE_SIZE": "500MB"}).limit
        500000000
        """
        usual = Path(XDG_CACHE_HOME.read(environ), "fluid").expanduser()
        folder = Path(FLUID_CACHE.read(environ) or usual, kind)
        return Cache(folder, FLUID_CACHE_SIZE.read(environ))


CPU_TARGETS = ("native", "numpy")
"""The code generators for programs on the CPU."""


def _expect_target(target: str | None) -> None:
    """Raise ValueError for a target that does not generate code for CPUs."""
    if target not in (None, *CPU_TARGETS):
        raise ValueError(
            f"the target is {target!r}, expected {' or '.join(map(repr, CPU_TARGETS))}"
        )


def _expect_dtype(dtype: str | None) -> None:
    """Raise ValueError for an element type that products cannot compute in."""
    if dtype not in (None, "fp32", *NARROW):
        raise ValueError(f"dtype is {dtype!r}, expected 'bf16', 'fp16' or 'fp32' (the default)")


def _expect_buckets(bucket_bytes: int | None, compress: str | None) -> None:
    """Raise ValueError for an empty bucket size, or an unknown element type for transfers."""
    if bucket_bytes is not None and bucket_bytes < 1:
        raise ValueError(f"bucket_bytes is {bucket_bytes}, expected 1 or more, or None")
    if compress not in (None, *NARROW):
        raise ValueError(f"compress is {compress!r}, expected 'fp16', 'bf16' or None (the default)")


def _expect_gpu(gpu: str) -> None:
    """Raise ValueError for a GPU that is not named as `fluid compile` names it."""
    if gpu and not re.fullmatch(r"cuda:\d{2,3}|hip:gfx[0-9a-f]{3,4}", gpu):
        raise ValueError(f"gpu is {gpu!r}, expected one such as 'cuda:90' or 'hip:gfx942'")


_PERCENTAGE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *%")


def budget_bytes(budget: int | str, whole: int) -> int:
    """Return the bytes that a budget allows; a percentage is relative to `whole`.

    Raises ValueError for text that is neither bytes with a unit nor a percentage.

    >>> budget_bytes("1.5MB", 0), budget_bytes("2 KiB", 0), budget_bytes("60%", 1000)
    (1500000, 2048, 600)
    """
    if isinstance(budget, int):
        return budget
    if percentage := _PERCENTAGE.fullmatch(budget.strip()):
        return int(float(percentage[1]) / 100 * whole)
    try:
        return bytes_of(budget)
    except ValueError:
        raise ValueError(
            f"memory_budget is {budget!r}, expected bytes (300000000, '300MB', '1.5GiB') or '60%'"
        ) from None


def limit_bytes(limit: int | str) -> int:
    """Return the bytes of a memory limit; raise ValueError for an invalid size.

    >>> limit_bytes("2GiB"), limit_bytes("512"), limit_bytes(1000)
    (2147483648, 512, 1000)
    """
    try:
        return bytes_of(str(limit))
    except ValueError:
        raise ValueError(
            f"memory_limit is {limit!r}, expected bytes: 300000000, '300MB', '2GiB'"
        ) from None
