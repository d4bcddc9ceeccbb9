"""Call sequences of kernels on NumPy arrays between guard zones."""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np

from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.contraction import Call, Steps
from compiler.ir.dims import Dim, Size, evaluate
from tests.support.compiled_kernels import load

DTYPES = {
    "float": np.float32, "double": np.float64, "i8": np.int8, "i16": np.int16, "i32": np.int32,
    "i64": np.int64,
}  # fmt: skip
GUARD = 64


class Guarded:
    """An array between guard zones of NaN (of 0x55 for integers)."""

    def __init__(self, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values)
        self.dtype, self.size = values.dtype, values.size
        self.whole = np.full(values.size + 2 * GUARD + 1, self.filling, values.dtype)
        self.array = self.whole[GUARD + 1 : GUARD + 1 + values.size].reshape(values.shape)
        self.array[...] = values

    @property
    def filling(self) -> float:
        return float("nan") if self.dtype.kind == "f" else 0x55

    def check(self) -> None:
        ends = np.concatenate([self.whole[: GUARD + 1], self.whole[GUARD + 1 + self.size :]])
        same = np.isnan(ends) if self.dtype.kind == "f" else ends == 0x55
        assert same.all(), "written outside of an array"


def value(size: Size, sizes: Mapping[str, int]) -> int:
    """The number of a size."""
    return evaluate(size, sizes) if isinstance(size, Dim) else size


class Runner:
    """A sequence with its arrays, ready to run; buffers begin as NaN."""

    def __init__(
        self, sequence: Steps, machine: Machine, arrays: Mapping[str, np.ndarray],
        sizes: Mapping[str, int] | None = None, guarded: bool = True,
    ) -> None:  # fmt: skip
        self.sequence, self.machine, self.sizes = sequence, machine, sizes or {}
        self.arrays = {name: Guarded(array) for name, array in arrays.items()}
        dtype = next(iter(arrays.values())).dtype
        filling = np.nan if dtype.kind == "f" else 0x55
        for name, each in sequence.scratch.items():
            if name in self.arrays:
                continue
            shape = (value(each, self.sizes),)
            self.arrays[name] = Guarded(np.full(shape, filling, dtype))
        blocks = getattr(sequence, "blocks", 1)
        self.prepared = [self.bound(each, 0) for each in sequence.prepare]
        self.bounds = [
            self.bound(call, block)
            for block in range(value(blocks, self.sizes))
            for call in sequence.calls
        ]

    def bound(self, call: Call, block: int):
        def slot(each: str | Size) -> int:
            if isinstance(each, str):
                return self.arrays[each].array.ctypes.data
            return value(each, {**self.sizes, "block_of_tiles": block})

        slots = (ctypes.c_int64 * max(1, len(call.arguments)))(*map(slot, call.arguments))
        return load(call.kernel, self.machine), slots, value(call.kernel.units, self.sizes)

    def prepare(self) -> None:
        for function, slots, units in self.prepared:
            function(slots, 0, units)

    def run(self) -> None:
        for function, slots, units in self.bounds:
            function(slots, 0, units)

    def run_divided(self, seed: int) -> None:
        """Run with units divided at random and in a random order."""
        random = np.random.default_rng(seed)
        for function, slots, units in self.bounds:
            cuts = sorted({0, units, *random.integers(0, units + 1, 3).tolist()})
            parts = list(itertools.pairwise(cuts))
            for place in random.permutation(len(parts)):
                function(slots, *parts[place])

    def check(self) -> None:
        for array in self.arrays.values():
            array.check()


def run(
    sequence: Steps, machine: Machine, arrays: Mapping[str, np.ndarray],
    results: Sequence[str] = ("out",), sizes: Mapping[str, int] | None = None,
) -> list[np.ndarray]:  # fmt: skip
    """Run whole and with units divided; the bits must agree and guard zones stay as they are."""
    actual: list[list[np.ndarray]] = []
    for seed in (None, 1, 2):
        runner = Runner(sequence, machine, arrays, sizes)
        runner.prepare()
        if seed is None:
            runner.run()
        else:
            runner.run_divided(seed)
        runner.check()
        actual.append([runner.arrays[name].array.copy() for name in results])
    for other in actual[1:]:
        for a, b in zip(actual[0], other, strict=True):
            assert a.tobytes() == b.tobytes(), "bits depend on the division of units"
    return actual[0]


def spills(text: str) -> list[str]:
    """Lines of assembly that move a vector register from or to the stack."""
    return [
        line.strip()
        for line in text.splitlines()
        if "(%rsp)" in line and ("%zmm" in line or "%ymm" in line)
    ]


def spills_among(text: str, instruction: str) -> list[str]:
    """Vector moves from or to the stack in basic blocks that contain an instruction."""
    blocks = re.split(r"^\.?\w+:.*$", text, flags=re.MULTILINE)
    return [line for block in blocks if instruction in block for line in spills(block)]
