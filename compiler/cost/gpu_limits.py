"""Peak rates of GPUs, from the vendors' data sheets: the roofs of rooflines.

Rates are dense, without sparsity, at the boost clock. Matrix products use the matrix units (tensor
cores) where they support the type exactly; float32 is the rate of exact float32 products (on NVIDIA
the ordinary units, since TF32 rounds its operands).
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.types import DType
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Gpu:
    """A GPU: bytes/s of its memory and of its host link, operations/s by element type.

    `target` is what kernels are compiled for, as in `Options.gpu`, `source` the reference of the
    numbers.
    """

    name: str
    target: str
    bandwidth: float
    link: float
    operations: Mapping[DType, float]
    source: str

    def rate(self, dtype: DType) -> float:
        """Return operations/s for a type; integers count as float32."""
        return self.operations.get(dtype, self.operations[DType.FP32])


HOST = 307e9
"""Bytes/s of host memory: one socket with eight channels of DDR5-4800 (JESD79-5)."""

_PCIE4, _PCIE5 = 0.032, 0.064
"""TB/s in one direction of sixteen lanes (PCI Express base specifications 4.0 and 5.0)."""


def _gpu(
    name: str, target: str, bandwidth: float, link: float, rates: tuple[float, float, float],
    source: str,
) -> Gpu:  # fmt: skip
    """Return a GPU from bandwidths in TB/s and rates of 16 bits, float32 and float64 in TFLOP/s."""
    half, single, double = (rate * 1e12 for rate in rates)
    by_type = {DType.FP16: half, DType.BF16: half, DType.FP32: single, DType.FP64: double}
    return Gpu(name, target, bandwidth * 1e12, link * 1e12, by_type, source)


GPUS: Mapping[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        _gpu("a100", "cuda:80", 2.039, _PCIE4, (312.0, 19.5, 19.5),
             "NVIDIA A100 80GB SXM data sheet, 2021; float64 by matrix units"),
        _gpu("h100", "cuda:90", 3.35, _PCIE5, (989.4, 66.9, 66.9),
             "NVIDIA H100 SXM data sheet, 2023; float64 by matrix units"),
        _gpu("h200", "cuda:90", 4.8, _PCIE5, (989.4, 66.9, 66.9),
             "NVIDIA H200 SXM data sheet, 2024; float64 by matrix units"),
        _gpu("b200", "cuda:100", 8.0, _PCIE5, (2250.0, 75.0, 37.0),
             "NVIDIA Blackwell architecture brief, HGX B200 by eight, 2024"),
        _gpu("mi300x", "hip:gfx942", 5.3, _PCIE5, (1307.4, 163.4, 163.4),
             "AMD Instinct MI300X data sheet, 2023; matrix units"),
        _gpu("mi325x", "hip:gfx942", 6.0, _PCIE5, (1307.4, 163.4, 163.4),
             "AMD Instinct MI325X data sheet, 2024; matrix units"),
        _gpu("4090", "cuda:89", 1.008, _PCIE4, (165.2, 82.6, 1.29),
             "NVIDIA Ada GPU architecture paper, GeForce RTX 4090, 2022; sums in float32"),
        _gpu("l40s", "cuda:89", 0.864, _PCIE4, (362.0, 91.6, 1.43),
             "NVIDIA L40S data sheet, 2023"),
        _gpu("l4", "cuda:89", 0.300, _PCIE4, (121.0, 30.3, 0.47),
             "NVIDIA L4 data sheet, 2023"),
    )
}  # fmt: skip
"""GPUs by name."""
