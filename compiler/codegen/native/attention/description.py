"""What an attention kernel computes: sizes, and where the operands lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compiler.ir.dims import Dim, Size, product


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
