"""The feeds of a run, compared with their declarations: the shape signatures to compile for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from compiler.errors import CompileError
from compiler.ir.dims import UNKNOWN, Dim, Size
from compiler.ir.types import Array, DType, Shape, to_fluid
from compiler.support.dataclass import dataclass
from runtime.errors import (
    FeedError,
    StateMismatch,
    wrong_dtype,
    wrong_fed_dtype,
    wrong_fed_shape,
    wrong_shape,
)
from runtime.sizes import (
    LOD,
    Pattern,
    name_sizes,
    with_equal_rows,
    with_numbers,
    with_products,
    with_types,
)


@dataclass(frozen=True)
class Declared:
    """The program's declaration of a fed name.

    `shape` is None for any shape, and a `Dim` in it is a dynamic size. `kept` is true for
    persistable state: feeding it sets it. If `exact` is false, dtype and sizes are what the program
    expects, and others may be fed if its ops can use them; state needs a program that declares it
    so. `called` is the name known to the user, if different.
    """

    dtype: DType
    shape: Shape | None
    kept: bool = False
    exact: bool = True
    called: str = ""


@dataclass(frozen=True)
class Fed:
    """The feeds of a run: which set state, and the shape signatures to try for the others.

    `patterns` are tried in order; the last one has exactly the fed sizes, `exact`. `mismatches` has
    an error for each feed that is not as declared; `called` the names known to the user, where
    different.
    """

    kept: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    exact: dict[str, tuple[int, ...]]
    mismatches: tuple[CompileError, ...]
    called: Mapping[str, str] = field(default_factory=dict[str, str])

    def explained(self, error: CompileError) -> CompileError:
        """Return the error of a compilation, or that of a feed that is not as declared."""
        if not self.mismatches or isinstance(error, FeedError):
            return self._translated(error)
        first = self.mismatches[0]
        first.add_note(f"for the feed as passed: {error}")
        return first

    def _translated(self, error: CompileError) -> CompileError:
        """Add a note to an error for each feed it names that the user knows by another name."""
        for name, called in self.called.items():
            if repr(name) in error.message:
                error.add_note(f"{name!r} is fed by a reader as {called!r}")
        return error


def compare_feeds(
    declared: Mapping[str, Declared], feed: Mapping[str, Array], lod_owners: Mapping[str, str]
) -> Fed:
    """Compare feeds with their declarations; `lod_owners` maps feeds to others of the same LoD.

    Raises FeedError for a wrong dtype and ShapeError for a wrong shape if a feed must be as
    declared, StateMismatch for either if it is state.
    """
    sequences = {name.partition(LOD)[0] for name in feed if LOD in name}
    errors = {
        name: _mismatch(name, declaration, feed[name], name in sequences)
        for name, declaration in declared.items()
    }
    for name, error in errors.items():
        if error and (declared[name].exact or not _has_element_type(feed[name])):
            raise error
        if error and declared[name].kept:
            raise StateMismatch(error.message, hint=error.hint)
    borrowed = tuple(name for name, declaration in declared.items() if declaration.kept)
    shapes = {
        n: _shape(declaration, feed[n]) for n, declaration in declared.items() if n not in borrowed
    }
    pattern = name_sizes(
        shapes, {n: a.shape for n, a in feed.items() if n not in borrowed}, lod_owners
    )
    exact = {name: feed[name].shape for name in pattern}
    types = {n: DType.of(feed[n].dtype) for n in shapes if feed[n].dtype != declared[n].dtype.numpy}
    joined = with_equal_rows(pattern, exact)
    tried = [pattern, joined]
    tried += [with_products(pattern, exact), with_products(joined, exact)]
    tried += [with_numbers(pattern, exact), with_numbers(joined, exact), {**exact}]
    unequal = [
        pattern_tried
        for i, pattern_tried in enumerate(tried)
        if pattern_tried not in tried[:i] or i == len(tried) - 1
    ]
    patterns = tuple(with_types(candidate, types) for candidate in unequal)
    called = {
        name: declaration.called for name, declaration in declared.items() if declaration.called
    }
    return Fed(borrowed, patterns, exact, tuple(e for e in errors.values() if e), called)


def _shape(declared: Declared, array: Array) -> Shape:
    """The declared shape of a feed, dynamic in each axis that is undeclared or fed another size."""
    if declared.shape is None or len(declared.shape) != array.ndim:
        return (UNKNOWN,) * array.ndim
    pairs = zip(declared.shape, array.shape, strict=True)
    return tuple(size if _fits(size, number) else UNKNOWN for size, number in pairs)


def _mismatch(
    name: str, declared: Declared, array: Array, is_sequence: bool
) -> CompileError | None:
    """Return a FeedError if the dtype differs from the declared one, a ShapeError if the shape
    does.

    The declared rows of sequences are not compared: they are a number of sequences.
    """
    name = declared.called or name
    if array.dtype != declared.dtype.numpy:
        wrong = wrong_fed_dtype if declared.exact else wrong_dtype
        return wrong(name, str(declared.dtype.numpy), str(array.dtype))
    shape, first = declared.shape, 1 if is_sequence else 0
    if shape is None or (
        len(shape) == array.ndim and all(map(_fits, shape[first:], array.shape[first:]))
    ):
        return None
    wrong = wrong_fed_shape if declared.exact else wrong_shape
    return wrong(name, to_fluid(shape), array.shape)


def _fits(size: Size, number: int) -> bool:
    return isinstance(size, Dim) or size == number


def _has_element_type(array: Array) -> bool:
    """Whether an array has a dtype supported by programs, in native byte order."""
    try:
        DType.of(array.dtype)
    except TypeError:
        return False
    return array.dtype.isnative
