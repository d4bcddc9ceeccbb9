"""Products of two matrices that a GPU vendor's library may compute instead of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from compiler.ir.dims import Size
from compiler.ir.types import Shape
from compiler.support.dataclass import dataclass

Factor: TypeAlias = "tuple[str, bool]"
"""A factor of a product: its slot, and whether it is transposed."""


@dataclass(frozen=True)
class MatrixProduct:
    """One of an op's outputs as left @ right; `views` are the shapes of the slots as matrices.

    The kernel of the product may also compute `sums`, another output: the sums of the columns of
    the right factor.
    """

    left: Factor
    right: Factor
    views: Mapping[str, Shape]
    sums: str = ""

    @property
    def form(self) -> str:
        """How both factors lie in memory: N if rows are contiguous, T if columns are."""
        return "".join("T" if transposed else "N" for _, transposed in (self.left, self.right))

    @property
    def sides(self) -> tuple[Size, Size, Size]:
        """The rows and columns of the result, and the reduced size."""
        (left, is_left_transposed), (right, is_right_transposed) = self.left, self.right
        rows, inner = self.views[left][:: -1 if is_left_transposed else 1]
        columns = self.views[right][0 if is_right_transposed else 1]
        return rows, columns, inner

    def of_gradients(self, suffix: str, outputs: Collection[str]) -> MatrixProduct:
        """Return the product of a gradient op: factors that are `outputs` are their gradients."""
        (left, is_left_transposed), (right, is_right_transposed) = self.left, self.right
        return MatrixProduct(
            (left + suffix * (left in outputs), is_left_transposed),
            (right + suffix * (right in outputs), is_right_transposed),
            {**self.views, **{slot + suffix: shape for slot, shape in self.views.items()}},
            self.sums and self.sums + suffix,
        )


@dataclass(frozen=True)
class SplitWork:
    """What other kernels have to do if a library computes a product.

    They read and write an epilogue's bytes, read the bytes of a factor whose columns they sum, and
    are so many launches.
    """

    nbytes: Size = 0
    summed: Size = 0
    launches: int = 0


@dataclass(frozen=True)
class LibraryChoice:
    """Whether a library is to compute a product, and why, for reports."""

    is_faster: bool
    reason: str


ChooseLibrary: TypeAlias = Callable[[MatrixProduct, SplitWork, str, str], "LibraryChoice | None"]
"""Chooses for a product on a GPU, by measured times: those of the GPU, and text with others.

None if there are none for such a product, or if a library is slower.
"""
