"""Affine forms of indices: sums of axes and other expressions times sizes.

The address of an element is a form over the axes of the loop nest. Its terms are computed in the
loops that they depend on, and its coefficient of the lane axis says whether lanes are contiguous.
An axis whose index is divided by sizes, as `unravel` does, is split into several axes, so that the
divisions disappear.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TypeAlias, cast

from compiler.codegen.kernel.body import KernelBody, MatmulBody, number_of, size_of
from compiler.codegen.native.loops.types import NARROW_BITS
from compiler.codegen.trace import Expr, Term, all_parts
from compiler.ir.dims import Dim, Size, product
from compiler.ir.region import at_most
from compiler.ir.types import DType, Shape
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold


@dataclass(eq=False)
class LoopAxis:
    """A loop of the nest; if `outer` is set, the `chunk` iterations from `outer` times `chunk` on.

    `outer` is the number of a unit of work, or of a part of a split reduction. A loop that `ends`
    has as many iterations as data says, at most its size.
    """

    name: str
    size: Size
    outer: LoopAxis | None = None
    chunk: Size = 0
    ends: bool = False

    @property
    def iterations(self) -> Size:
        """The iterations of the loop, at most: those of a chunk if there are chunks."""
        return self.size if self.outer is None else self.chunk


Atom: TypeAlias = "LoopAxis | Expr"
Limits: TypeAlias = "tuple[Size, Size] | None"


@dataclass(frozen=True)
class Form:
    """The sum of atoms times sizes, and of a constant."""

    terms: tuple[tuple[Atom, Size], ...] = ()
    offset: Size = 0

    def plus(self, other: Form, factor: Size = 1) -> Form:
        """This form plus another one times a factor."""
        terms = dict(self.terms)
        for atom, size in other.terms:
            terms[atom] = terms.get(atom, 0) + size * factor
        return Form(_nonzero(terms), self.offset + other.offset * factor)

    def times(self, factor: Size) -> Form:
        """This form times a factor."""
        return Form().plus(self, factor)

    def coefficient(self, atom: Atom) -> Size:
        """The size that an atom is multiplied by; 0 if it does not occur."""
        return next((size for symbol, size in self.terms if symbol is atom), 0)

    @property
    def number(self) -> Size | None:
        """The constant that this form is; None for a form with terms."""
        return None if self.terms else self.offset


PART_STEP = threshold(
    "reduction_part_step", 64, "iterations",
    "the iterations of contiguous elements in a part are a multiple of so many", small=3,
)  # fmt: skip

_SMALL = 2**31
_LIMITS: dict[DType, Limits] = {
    DType.BOOL: (0, 1), DType.UINT8: (0, 255), DType.INT8: (-128, 127),
    DType.INT16: (-(2**15), 2**15 - 1), DType.INT32: (-_SMALL, _SMALL - 1),
}  # fmt: skip
"""The smallest and largest value of small integers."""


def _nonzero(terms: dict[Atom, Size]) -> tuple[tuple[Atom, Size], ...]:
    return tuple((atom, n) for atom, n in terms.items() if not isinstance(n, int) or n)


def exact_quotient(size: Size, divisor: Size) -> Size | None:
    """Size / divisor, if that is a whole number for all values of the symbols."""
    if isinstance(size, int) and isinstance(divisor, int):
        return None if size % divisor else size // divisor
    quotient = size // divisor
    return quotient if quotient * divisor == size else None


@dataclass
class Forms:
    """The forms of a kernel's index expressions, over its axes after splitting.

    `axes` are those of each index of the grid, `loops` those of each loop, outermost first. Of a
    split reduction, one axis of the loop is shared among the parts.
    """

    kernel: KernelBody
    axes: list[list[LoopAxis]] = field(default_factory=list["list[LoopAxis]"])
    loops: list[list[LoopAxis]] = field(default_factory=list["list[LoopAxis]"])
    known: dict[Expr, Form] = field(default_factory=dict[Expr, Form])
    known_limits: dict[Expr, Limits] = field(default_factory=dict[Expr, Limits])

    def of(self, term: Term) -> Form:
        """The form of an index."""
        if not isinstance(term, Expr):
            return Form((), int(term))
        if term not in self.known:
            for part in all_parts([term]):
                if part not in self.known:
                    self.known[part] = self._form(part)
        return self.known[term]

    def ravelled(self, indices: Sequence[Term], strides: Sequence[Size]) -> Form:
        """The sum of indices times strides."""
        total = Form()
        for index, stride in zip(indices, strides, strict=True):
            total = total.plus(self.of(index), stride)
        return total

    def _form(self, part: Expr) -> Form:
        affine = self._affine(part) if part.dtype is DType.INT64 else None
        return Form(((part, 1),)) if affine is None else affine

    def _affine(self, part: Expr) -> Form | None:
        match part.fn:
            case "index":
                return _position(self.axes[number_of(part)])
            case "loop":
                return _position(self.loops[number_of(part)])
            case "size":
                return Form((), cast(Size, part.extra))
            case "full":
                return Form((), int(cast(int, part.args[0])))
            case "ravel":
                shape = cast(Shape, part.extra)
                return self.ravelled(part.args, contiguous_strides(shape))
            case "add" | "subtract" | "negative":
                return self._sum(part)
            case "multiply":
                return self._scaled(*(self._operand(arg) for arg in part.args))
            case "index_div" | "index_mod":
                return self._divided(part)
            case "astype":
                return self._operand(part.args[0])
            case _:
                return None

    def _operand(self, term: Term) -> Form | None:
        """The form of an operand; None unless it is an integer of 64 bits."""
        if isinstance(term, Expr) and term.dtype is not DType.INT64:
            return None
        return None if isinstance(term, float) else self.of(term)

    def _sum(self, part: Expr) -> Form | None:
        first, *rest = (self._operand(arg) for arg in part.args)
        if first is None or None in rest:
            return None
        if part.fn == "negative":
            return first.times(-1)
        return first.plus(cast(Form, rest[0]), 1 if part.fn == "add" else -1)

    def _scaled(self, a: Form | None, b: Form | None) -> Form | None:
        if a is None or b is None:
            return None
        if b.number is not None:
            return a.times(b.number)
        return None if a.number is None else b.times(a.number)

    def _divided(self, part: Expr) -> Form | None:
        """The quotient or remainder, if it is a form; the rest must be known to be smaller."""
        form, divisor = self.of(part.args[0]), self.of(part.args[1]).number
        if divisor is None:
            return None
        whole, rest = _separated(form, divisor)
        if not self._is_below(rest, divisor):
            return None
        return whole if part.fn == "index_div" else rest

    def _is_below(self, form: Form, limit: Size) -> bool:
        """True if a form is known to be from 0 to limit - 1."""
        bounds = self.bounds(form)
        return bounds is not None and at_most(0, bounds[0]) and at_most(bounds[1], limit - 1)

    # ---- bounds ----

    def bounds(self, form: Form) -> Limits:
        """The smallest and largest value of a form, as far as sizes show it."""
        low, high = form.offset, form.offset
        for atom, factor in form.terms:
            limits = (0, atom.size - 1) if isinstance(atom, LoopAxis) else self.limits(atom)
            if limits is None or not (at_most(0, factor) or at_most(factor, 0)):
                return None
            first, last = limits if at_most(0, factor) else limits[::-1]
            low, high = low + first * factor, high + last * factor
        return low, high

    def limits(self, term: Term) -> Limits:
        """The smallest and largest value of an integer expression, if they are known."""
        if not isinstance(term, Expr):
            return None if isinstance(term, float) else (int(term), int(term))
        if term.dtype is not DType.INT64:
            return _LIMITS.get(term.dtype)
        if term not in self.known_limits:
            form = self.of(term)
            limits = self._limits(term) if form.coefficient(term) else self.bounds(form)
            self.known_limits[term] = limits
        return self.known_limits[term]

    def _limits(self, part: Expr) -> Limits:
        """The limits of an expression that is no form."""
        if part.fn == "index_mod" and (size := size_of(part.args[1])) is not None:
            return 0, size - 1
        if part.fn not in ("minimum", "maximum", "where", "astype", "index_div"):
            return None
        args = part.args[1:] if part.fn == "where" else part.args
        operand_limits = [self.limits(arg) for arg in args]
        if any(
            limit is None or not isinstance(limit[0] + limit[1], int) for limit in operand_limits
        ):
            return None
        pairs = cast("list[tuple[int, int]]", operand_limits)
        fn = {"minimum": min, "maximum": max}.get(part.fn)
        if fn is not None:
            return fn(low for low, _ in pairs), fn(high for _, high in pairs)
        if part.fn == "index_div":
            return min(0, pairs[0][0]), max(0, pairs[0][1])
        return min(low for low, _ in pairs), max(high for _, high in pairs)

    def is_narrow(self, term: Term) -> bool:
        """True if an integer is known to fit into a narrow index."""
        limits = self.limits(term)
        if limits is None or not isinstance(limits[0] + limits[1], int):
            return False
        limit = 1 << (NARROW_BITS.value - 1)
        return bool(at_most(-limit, limits[0]) and at_most(limits[1], limit - 1))


def _position(axes: Sequence[LoopAxis]) -> Form:
    """The index that a split axis was: the innermost axis has coefficient 1."""
    sizes = [axis.size for axis in axes]
    pairs = ((axis, product(sizes[n + 1 :])) for n, axis in enumerate(axes))
    return Form(tuple((axis, n) for axis, n in pairs if axis.size != 1))


def contiguous_strides(shape: Sequence[Size]) -> list[Size]:
    """The distances, in elements, between adjacent elements along each axis."""
    return [product(shape[axis + 1 :]) for axis in range(len(shape))]


def _separated(form: Form, divisor: Size) -> tuple[Form, Form]:
    """A form as divisor * whole + rest, whose terms the divisor does not divide."""
    whole: list[tuple[Atom, Size]] = []
    rest: list[tuple[Atom, Size]] = []
    for atom, size in form.terms:
        quotient = exact_quotient(size, divisor)
        if quotient is None:
            rest.append((atom, size))
        else:
            whole.append((atom, quotient))
    offset, left = 0, form.offset
    if isinstance(left, int) and isinstance(divisor, int):
        offset, left = divmod(left, divisor)
    return Form(tuple(whole), offset), Form(tuple(rest), left)


# ---- splitting ----


def split_axes(kernel: KernelBody, parts: Iterable[Expr]) -> Forms:
    """Split the axes and loops of a kernel where its index expressions divide by their sizes."""
    cuts: dict[tuple[str, int], dict[Size, None]] = {}
    for part in parts:
        if part.fn in ("index_div", "index_mod"):
            _add_cut(part, cuts)
    if isinstance(kernel, MatmulBody):
        cuts["loop", 0] = cuts.get(("loop", 0), {}) | cuts.get(("loop", 1), {})
    forms = Forms(kernel)
    for axis, size in enumerate(kernel.shape):
        forms.axes.append(_split(f"i{axis}", size, cuts.get(("index", axis), {})))
    for loop in range(len(kernel.loops)):
        forms.loops.append(_split_loop(kernel, forms, loop, cuts.get(("loop", loop), {})))
    return forms


def _split_loop(
    kernel: KernelBody, forms: Forms, loop: int, cuts: Iterable[Size]
) -> list[LoopAxis]:
    """Split a loop; the two loops of a matrix product are one."""
    size = kernel.loops[loop]
    if isinstance(kernel, MatmulBody) and loop == 1:
        return forms.loops[0]
    if loop in kernel.ends:
        axes = [LoopAxis(f"r{loop}", size, ends=True)]
    else:
        axes = _split(f"r{loop}", size, cuts)
    if kernel.split_size is not None:
        _share(axes, forms.axes[0][0])
    return axes


def longest_axis(axes: Sequence[LoopAxis]) -> LoopAxis:
    """The longest axis of a loop, which the parts of a split reduction share."""
    return max(axes, key=lambda axis: _magnitude(axis.size))


def part_of(axes: Sequence[LoopAxis], count: int) -> Size:
    """The iterations of a loop's longest axis that each of some parts has, at most."""
    longest = longest_axis(axes)
    step = PART_STEP.value if longest is axes[-1] else 1
    return (longest.size + count * step - 1) // (count * step) * step


def _share(axes: Sequence[LoopAxis], parts: LoopAxis) -> None:
    """Share the longest of a loop's axes among the parts of a split reduction.

    A part has a range of that axis and all of the others, so that no index is a quotient.
    """
    assert isinstance(parts.size, int), "the number of parts is known"
    longest = longest_axis(axes)
    longest.outer, longest.chunk = parts, part_of(axes, parts.size)


def _add_cut(part: Expr, cuts: dict[tuple[str, int], dict[Size, None]]) -> None:
    """Note the size at which a division of an axis's index cuts the axis."""
    base, cut = part.args[0], size_of(part.args[1])
    while isinstance(base, Expr) and base.fn == "index_div" and cut is not None:
        inner = size_of(base.args[1])
        cut, base = None if inner is None else cut * inner, base.args[0]
    if cut is not None and isinstance(base, Expr) and base.fn in ("index", "loop"):
        cuts.setdefault((base.fn, number_of(base)), {})[cut] = None


def _split(name: str, size: Size, cuts: Iterable[Size]) -> list[LoopAxis]:
    """Split an axis at cuts of which each divides the next one and the size."""
    chain: list[Size] = [1]
    for cut in sorted(cuts, key=_magnitude):
        whole = exact_quotient(cut, chain[-1])
        if cut not in (chain[-1], size) and whole is not None and exact_quotient(size, cut):
            chain.append(cut)
    sizes = [exact_quotient(b, a) or 0 for a, b in zip(chain, [*chain[1:], size], strict=True)]
    if len(sizes) == 1:
        return [LoopAxis(name, size)]
    return [LoopAxis(f"{name}_{n}", extent) for n, extent in enumerate(reversed(sizes))]


def _magnitude(size: Size) -> tuple[int, int]:
    """Sort key of sizes: symbolic ones by degree and factor, after numbers."""
    if not isinstance(size, Dim):
        return 0, size
    return max(len(monomial) for monomial, _ in size.terms), size.terms[0][1]
