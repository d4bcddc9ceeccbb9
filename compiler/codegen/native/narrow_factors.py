"""Factors of products in 8 and 16 bits: as they are where the CPU has dot products of them.

Others in half precision are widened to float32, in which products of two halves are exact, so that
results agree to the rounding of sums.
"""

from __future__ import annotations

from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.element_types import COMPUTED, TYPES
from compiler.codegen.native.functions import cast
from compiler.codegen.native.kernel import NativeKernel, entry
from compiler.codegen.native.llvm_ir import F32, I8, I64, POINTER, Function, LoopBody, Type, Value
from compiler.codegen.native.loops import NotLowered
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.module_writer import NativeModuleWriter
from compiler.codegen.native.products.dots import dot_of
from compiler.codegen.native.products.index import Indices, named
from compiler.ir.dims import product
from compiler.ir.types import HALVES, DType
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import cached_by_thresholds, threshold

BLOCK = threshold(
    "widening_block", 4096, "elements", "a unit of widening factors to float32 has so many",
    small=48,
)  # fmt: skip


@dataclass(frozen=True)
class Factors:
    """The factors of a product, and the element type that its kernels compute in.

    Factors in half precision are widened to float32 first if there is a reason `why`.
    """

    left: NumpyOperand
    right: NumpyOperand
    element: Type
    why: str = ""

    def write(self, writer: NativeModuleWriter) -> tuple[NumpyOperand, NumpyOperand]:
        """Return the factors in the element type; append kernels that widen them, if needed."""
        if not self.why:
            return self.left, self.right
        writer.comments.append(f"factors widened to float32: {self.why}")
        return _widened(writer, self.left), _widened(writer, self.right)


def product_factors(
    machine: Machine, left: NumpyOperand, right: NumpyOperand, side_by_side: bool = True
) -> Factors:
    """The factors of a product and the type to compute in.

    `side_by_side` says that the left one's elements along the sum are neighbours, as dot products
    read them. Raises NotLowered for types that no product computes in.
    """
    element, why = product_type(machine, left.type.dtype, right.type.dtype, side_by_side)
    if why and any(map(has_gaps, (left, right))):
        raise NotLowered("a factor in half precision has gaps")
    return Factors(left, right, element, why)


def product_type(
    machine: Machine, left: DType, right: DType, side_by_side: bool
) -> tuple[Type, str]:
    """The type that a product computes in, and why its factors are widened to it, if they are.

    Raises NotLowered for types that no product computes in.
    """
    dtypes = {left, right}
    if len(dtypes) == 1 and dtypes <= COMPUTED:
        return TYPES[left], ""
    if dtypes == {DType.INT8} and side_by_side and dot_of(machine, I8):
        return I8, ""
    if not dtypes <= {*HALVES, DType.FP32}:
        raise NotLowered("its factors are neither of one type nor in half precision")
    why = _why_widened(machine, dtypes, side_by_side)
    return (F32, why) if why else (TYPES[left], "")


def has_gaps(factor: NumpyOperand) -> bool:
    """True for factors in half precision that cannot be widened, since they have gaps."""
    return factor.type.dtype in HALVES and factor.region.is_strided


def _why_widened(machine: Machine, dtypes: set[DType], side_by_side: bool) -> str:
    """Why a product in half precision computes in float32; empty if it need not."""
    for dtype in sorted(dtypes, key=lambda each: each.value):
        if dot_of(machine, TYPES[dtype]) is None:
            return f"{machine.name} has no products of {dtype.numpy.name}"
    if len(dtypes) > 1:
        return "they are of two types"
    return "" if side_by_side else "no neighbours of the left one are summed"


def _widened(writer: NativeModuleWriter, half: NumpyOperand) -> NumpyOperand:
    """An array in half precision as float32, once if it is constant; other arrays as they are."""
    if half.type.dtype not in HALVES:
        return half
    count = product(half.shape)
    nbytes = product([count, 6])
    function = _widening(writer.machine, half.type.dtype)
    kernel = NativeKernel([function], (count + (BLOCK.value - 1)) // BLOCK.value, 0, nbytes)
    return writer.prepared(kernel, [half], [count], half.shape, DType.FP32)


@cached_by_thresholds(128)
def _widening(machine: Machine, dtype: DType) -> Function:
    """The function that widens halves; its slots are they, float32, and the number of elements."""
    name = f"widen_{dtype.name.lower()}"
    f, (source, target, count), first, last = entry(name, [POINTER, POINTER, I64])
    half, indices = TYPES[dtype], Indices(f, {})
    vector = F32.vector(machine.lanes(F32))

    def convert(type: Type) -> LoopBody:
        def element(place: Value, _: list[Value]) -> list[Value]:
            value = f.load(type.of(half), f.address(source, place, half.nbytes))
            f.store(cast(f, value, dtype, DType.FP32), f.address(target, place, F32.nbytes))
            return []

        return element

    start = f.index(indices.mul(first, BLOCK.value))
    stop = f.index(indices.least(indices.mul(last, BLOCK.value), count))
    length = f.binary("and", f.sub(stop, start), f.constant(I64, -vector.lanes))
    whole = f.add(start, length)
    f.loop_if_any(start, whole, vector.lanes, convert(vector))
    f.loop_if_any(whole, stop, 1, convert(F32))
    return named(f)
