"""What a kernel of attention computes: sizes, and where the operands lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from compiler.codegen.kernel.scalar_kernels import KernelOperand
from compiler.errors import CompileError
from compiler.ir.attention import AttentionForm, ordered
from compiler.ir.dims import Dim, Size, product
from compiler.ir.types import Shape
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Attention:
    """out = factor * dropout(softmax(scale * q @ kᵀ + mask)) @ v, for each matrix of a stack.

    q is [stack…, queries, width], k [stack…, keys, width], v [stack…, keys, value_width], mask
    [stack…, queries, keys] and out [stack…, queries, value_width]. Each is given by its strides
    over these axes in elements, 0 where it is broadcast; `mask` is empty if there is none.
    `is_causal` and `dropout` are those of `AttentionForm`.
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
    is_causal: bool = False
    dropout: float = 0.0

    @property
    def operands(self) -> tuple[str, ...]:
        """The operands that it has, the output last."""
        more = [*(["mask"] if self.mask else []), *(["rng"] if self.dropout else [])]
        return ("q", "k", "v", *more, "out")

    def strides(self, name: str) -> Sequence[Size]:
        """The strides of an operand, or of a gradient, which are its operand's."""
        strides = {"q": self.q, "k": self.k, "v": self.v, "out": self.out, "mask": self.mask}
        return strides.get(name.removeprefix("d_"), ())

    @property
    def open_sizes(self) -> tuple[Dim, ...]:
        """The open sizes and strides, each once."""
        return tuple(dict.fromkeys(size for size in self._sizes() if isinstance(size, Dim)))

    def _sizes(self) -> Iterator[Size]:
        yield from (*self.stack, self.queries, self.keys)
        for strides in (self.q, self.k, self.v, self.mask, self.out):
            yield from strides

    @property
    def flops(self) -> Size:
        """Operations of both products."""
        return product([2, *self.stack, self.queries, self.keys, self.width + self.value_width])

    @property
    def elements(self) -> Size:
        """Elements of q, k, v and out."""
        widths = self.width + self.value_width
        return product([*self.stack, widths]) * (self.queries + self.keys)


def described(form: AttentionForm, operands: Mapping[str, KernelOperand]) -> Attention:
    """Return the attention of operands "q", "k", "v" and, if there is one, "mask".

    Raises CompileError unless widths are known.
    """
    layout, mask = form.layout, operands.get("mask")
    orders = {"q": layout.q, "k": layout.k, "v": layout.v}
    q, k, v = (ordered(operands[name].shape, order) for name, order in orders.items())
    by_q, by_k, by_v = (
        ordered(_contiguous(operands[name].shape), order) for name, order in orders.items()
    )
    width, columns = q[-1], v[-1]
    if not isinstance(width, int) or not isinstance(columns, int):
        raise CompileError("attention: its queries or values have an open width")
    result = layout.result(*(operands[name].shape for name in orders))
    out = ordered(_contiguous(result), layout.from_out)
    strides = _broadcast(mask, (*q[:-1], k[-2]))
    return Attention(
        q[:-2], q[-2], k[-2], width, columns, by_q, by_k, by_v, out, strides, form.scale,
        form.factor, form.is_causal, form.dropout,
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
