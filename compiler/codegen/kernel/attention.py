"""What a kernel of attention computes: sizes, and where the operands lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compiler.codegen.kernel.builder import KernelOperand
from compiler.errors import CompileError
from compiler.ir.attention import AttentionLayout, ordered
from compiler.ir.dims import Dim, Size, product
from compiler.ir.types import Shape


@dataclass(frozen=True)
class Attention:
    """out = factor * softmax(scale * q @ kᵀ + mask) @ v, for each matrix of a stack.

    q is [stack…, queries, width], k [stack…, keys, width], v [stack…, keys, value_width], mask
    [stack…, queries, keys] and out [stack…, queries, value_width]. Each is given by its strides
    over these axes in elements, 0 where it is broadcast; `mask` is empty if there is none.
    """

    stack: tuple[Size, ...]
    queries: Size
    keys: Size
    width: int
    value_width: int
    q: tuple[Size, ...]
    k: tuple[Size, ...]
    v: tuple[Size, ...]
    out: tuple[Size, ...]
    mask: tuple[Size, ...] = ()
    scale: float = 1.0
    factor: float = 1.0

    @property
    def operands(self) -> tuple[str, ...]:
        """The operands that it has, the output last."""
        return ("q", "k", "v", *(["mask"] if self.mask else []), "out")

    def strides(self, name: str) -> Sequence[Size]:
        """The strides of an operand."""
        return {"q": self.q, "k": self.k, "v": self.v, "out": self.out, "mask": self.mask}[name]

    @property
    def open_sizes(self) -> tuple[Dim, ...]:
        """The open sizes and strides, each once."""
        return tuple(dict.fromkeys(size for size in self._sizes() if isinstance(size, Dim)))

    def _sizes(self) -> Iterator[Size]:
        yield from (*self.stack, self.queries, self.keys)
        for name in self.operands:
            yield from self.strides(name)

    @property
    def flops(self) -> Size:
        """Operations of both products."""
        return product([2, *self.stack, self.queries, self.keys, self.width + self.value_width])

    @property
    def elements(self) -> Size:
        """Elements of q, k, v and out."""
        widths = self.width + self.value_width
        return product([*self.stack, widths]) * (self.queries + self.keys)


def described(
    layout: AttentionLayout, factors: tuple[float, float], operands: Sequence[KernelOperand],
    mask: KernelOperand | None,
) -> Attention:  # fmt: skip
    """Return the attention of operands q, k and v, whose widths are known; else CompileError."""
    orders = (layout.q, layout.k, layout.v)
    pairs = [*zip(operands, orders, strict=True)]
    q, k, v = (ordered(x.shape, order) for x, order in pairs)
    by_q, by_k, by_v = (ordered(_contiguous(x.shape), order) for x, order in pairs)
    width, columns = q[-1], v[-1]
    if not isinstance(width, int) or not isinstance(columns, int):
        raise CompileError("attention: its queries or values have an open width")
    result = layout.result(*(x.shape for x in operands))
    out = ordered(_contiguous(result), layout.from_out)
    strides = _broadcast(mask, (*q[:-1], k[-2]))
    return Attention(
        q[:-2], q[-2], k[-2], width, columns, by_q, by_k, by_v, out, strides, *factors
    )  # fmt: skip


def _contiguous(shape: Shape) -> Shape:
    """Return the strides of an array without gaps, in elements."""
    return tuple(product(shape[place + 1 :]) for place in range(len(shape)))


def _broadcast(mask: KernelOperand | None, scores: Shape) -> tuple[Size, ...]:
    """Return the strides of a mask over the axes of the scores, 0 where it is repeated."""
    if mask is None:
        return ()
    strides = zip(mask.shape, _contiguous(mask.shape), strict=True)
    own = [0 if size == 1 else stride for size, stride in strides]
    return (*[0] * (len(scores) - len(own)), *own)
