"""The CPUs that code is generated for: vector lengths, registers and features."""

from __future__ import annotations

from dataclasses import replace

from compiler.codegen.native.llvm_ir import Type
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Machine:
    """A level of an instruction set: bytes of a vector, vector registers, and LLVM's features.

    `triple` names the architecture to LLVM, `cpu` the processor whose scheduling it assumes.
    `has_masks` is true if loads and stores of part of a vector cost no more than whole ones.
    Dot products of bfloat16 need the feature `avx512bf16`, those of bytes `avx512vnni`.
    """

    name: str
    vector_bytes: int
    registers: int
    triple: str
    cpu: str
    features: tuple[str, ...]
    has_masks: bool = False

    @property
    def rounds_to_bf16(self) -> bool:
        """True if one instruction rounds float32 to bfloat16."""
        return "avx512bf16" in self.features

    def lanes(self, element: Type) -> int:
        """How many elements of a type a vector register holds."""
        return self.vector_bytes // element.nbytes

    def vector(self, element: Type) -> Type:
        """The type of a full vector register of elements."""
        return element.scalar.vector(self.lanes(element))


_AVX2 = ("avx", "avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "lzcnt")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_AVX512VNNI = (*_AVX512, "avx512vnni")
_AVX512BF16 = (*_AVX512VNNI, "avx512bf16")

AVX2 = Machine("avx2", 32, 16, "x86_64-unknown-linux-gnu", "haswell", _AVX2)
AVX512 = Machine(
    "avx512", 64, 32, "x86_64-unknown-linux-gnu", "skylake-avx512", _AVX512, has_masks=True
)
AVX512VNNI = replace(AVX512, name="avx512vnni", features=_AVX512VNNI)
AVX512BF16 = replace(AVX512, name="avx512bf16", features=_AVX512BF16)
NEON = Machine("neon", 16, 32, "aarch64-unknown-linux-gnu", "cortex-a76", ("neon",))

MACHINES = {machine.name: machine for machine in (AVX512BF16, AVX512VNNI, AVX512, AVX2, NEON)}
"""By name, the most capable first."""
