"""Op samples at other sizes: axes that belong together grow together, values are drawn anew.

Which axes belong together is found by trial: `growths` doubles axes alone, with those of the same
size, and with attributes of the same number, and keeps what type inference and the reference
implementation accept, forward and backward. `resized` then returns the sample with other sizes.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import find, listed
from compiler.ir.types import is_floating
from tests.ops.backward import each, gradient_op, types_of, weights_for
from tests.ops.samples import Sample

Axis = tuple[str, int, int]
"""A slot, the position of an array in it (0 unless it has many), and an axis of the array."""
_KEPT_FAMILIES = ("detection", "control", "matching", "collective", "ps")
_KEPT_WORDS = ("index", "unique", "sampled", "structured")
_OTHER = 13
"""A size that is no multiple of a sample's."""


@dataclass(frozen=True)
class Growth:
    """Axes of inputs that grow together, from `size`, and the attributes with that number.

    Sizes must be multiples of `step`. `repeats` marks the rows of sequences: all sequences are
    repeated, and `size` is 1.
    """

    axes: tuple[Axis, ...]
    size: int
    attrs: tuple[str, ...] = ()
    step: int = 1
    repeats: bool = False


@dataclass(frozen=True)
class Scaling:
    """A sample, its growths, and the growth that each integer input holds indices of, if any."""

    sample: Sample
    growths: tuple[Growth, ...]
    indexed: Mapping[str, Growth]


Sizes = Mapping[Growth, int]


def resized(scaling: Scaling, sizes: Sizes, name: str = "", seed: int = 0) -> Sample:
    """The sample with growths at other sizes, and values drawn by a name and a seed."""
    sample, axes = scaling.sample, {a: (g, n) for g, n in sizes.items() for a in g.axes}
    times = next((n for g, n in sizes.items() if g.repeats), 1)
    highest = {slot: sizes.get(g, g.size) for slot, g in scaling.indexed.items()}
    inputs = {}
    for slot, value in sample.inputs.items():
        arrays = []
        for place, array in enumerate(listed(value) if value is not None else ()):
            shape = tuple(_length(n, axes.get((slot, place, i))) for i, n in enumerate(array.shape))
            rng = np.random.default_rng([zlib.crc32(f"{name} {slot} {place}".encode()), seed])
            if is_lod(sample, slot):
                arrays.append(_repeated(array, times))
            elif is_tiled(sample, slot) or (times > 1 and array.dtype.kind in "iub"):
                arrays.append(_tiled(array, shape))
            else:
                arrays.append(_drawn(array, shape, rng, highest.get(slot)))
        inputs[slot] = value if value is None else arrays if isinstance(value, list) else arrays[0]
    return replace(sample, inputs=inputs, attrs=_attributes(sample, sizes))


def _length(old: int, grown: tuple[Growth, int] | None) -> int:
    """The size of an axis: that of its growth, or as many times the old one as it repeats."""
    if grown is None:
        return old
    return old * grown[1] if grown[0].repeats else grown[1]


def is_lod(sample: Sample, slot: str) -> bool:
    """Whether a slot of a sample has the offsets of sequences."""
    slots = find(sample.op).slots
    return slot == "RoisLod" or (slot in slots and slots[slot].companion == "lod")


def is_tiled(sample: Sample, slot: str) -> bool:
    """Whether an input has structure that drawn values would lose, such as corners of boxes."""
    module = find(sample.op).__module__.removeprefix("compiler.ops.")
    if module.startswith(_KEPT_FAMILIES) or any(word in module for word in _KEPT_WORDS):
        return True
    return any(map(_has_marks, listed(sample.inputs[slot])))


def _has_marks(array: Any) -> bool:
    """Whether an array has numbers that mean something else: infinite ones, negative integers."""
    if is_floating(array.dtype):
        return not np.isfinite(array).all()
    return array.dtype.kind == "i" and bool((array < 0).any())


def _repeated(offsets: Any, times: int) -> Any:
    """Offsets of the same sequences, several times."""
    lengths = np.tile(np.diff(offsets), times)
    return np.append(offsets[:1], offsets[0] + np.cumsum(lengths)).astype(offsets.dtype)


def _tiled(array: Any, shape: Sequence[int]) -> Any:
    """An array repeated along each axis up to a shape."""
    if not array.size:
        return np.zeros(shape, array.dtype)
    places = [np.arange(n) % old for n, old in zip(shape, array.shape, strict=True)]
    return np.ascontiguousarray(array[np.ix_(*places)]) if places else array.copy()


def _drawn(array: Any, shape: Sequence[int], rng: np.random.Generator, highest: int | None) -> Any:
    """Values in the range of an array, or below `highest`; an array of the same shape is kept.

    Floats drift along the array, so that no two parts of a sum are alike. Those of an array with
    repeated values, which stand for cases, and integers are chosen among its values.
    """
    if tuple(shape) == array.shape and (array.size < 2 or not is_floating(array.dtype)):
        return array.copy()
    count = int(np.prod(shape))
    values = np.unique(array.astype(np.float64)) if is_floating(array.dtype) else array.reshape(-1)
    if not array.size:
        return np.zeros(shape, array.dtype)
    if highest is not None:
        low = int(array.min())
        return rng.integers(low, max(highest, low + 1), shape).astype(array.dtype)
    if not is_floating(array.dtype) or 1 < len(values) <= array.size // 2:
        return rng.choice(values, tuple(shape)).astype(array.dtype)
    low, high = float(values[0]), float(values[-1])
    return drift(rng, low, high if high > low else low + 0.25, count, array.dtype).reshape(shape)


def drift(rng: np.random.Generator, low: float, high: float, count: int, dtype: Any) -> Any:
    """Random floats of a range whose upper end grows from a third of it to all."""
    wide = np.dtype(dtype) == np.float64
    drawn = rng.random(count, dtype=np.float64 if wide else np.float32)
    drawn *= np.linspace(0.35, 1.0, count, dtype=drawn.dtype)
    return (low + (high - low) * drawn).astype(dtype)


def _attributes(sample: Sample, sizes: Sizes) -> dict[str, Any]:
    result = dict(sample.attrs)
    for growth, size in sizes.items():
        for name in growth.attrs:
            result[name] = each(result[name], lambda n, g=growth, s=size: s if n == g.size else n)
    return result


# ---- trials ------------------------------------------------------------------------------------


def scaling_of(sample: Sample) -> Scaling | None:
    """The growths of a sample; None if the reference refuses drawn values even at its own sizes."""
    still = Scaling(sample, (), {})
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if not accepts(resized(still, {})):
            return None
        result = tuple(growths(sample))
        grown = Scaling(sample, result, {})
        return replace(grown, indexed=dict(_indexed(grown)))


def accepts(sample: Sample) -> bool:
    """Whether type inference and the reference accept inputs and agree, forward and backward."""
    op = find(sample.op)
    try:
        inferred = op(sample.attrs).infer_types(types_of(sample.inputs))
        results = op(sample.attrs).evaluate(sample.inputs)
        agree = _agree(inferred, results)
        if agree and sample.grads and op.grad_class:
            weights = weights_for(sample.op, results)
            values = {**sample.inputs, **results}
            agree = _agree(*gradient_op(sample.op, sample.attrs, values, weights))
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        return False
    return agree


def _agree(types: Mapping[str, Any], results: Mapping[str, Any]) -> bool:
    """Whether results have the sizes that are inferred for them, where these are known."""
    pairs = (
        (type.shape, array.shape)
        for slot, value in results.items()
        if value is not None
        for type, array in zip(listed(types[slot]), listed(value), strict=True)
    )
    return all(
        len(said) == len(real)
        and all(size in (UNKNOWN, n) for size, n in zip(said, real, strict=True))
        for said, real in pairs
    )


def growths(sample: Sample) -> Iterator[Growth]:
    """The growths of a sample: rows of its sequences first, then other axes in order."""
    rows = _rows(sample)
    if rows is not None:
        yield rows
    covered = set(rows.axes if rows else ()) | set(_sequence_rows(sample))
    free = [(axis, n) for axis, n in _axes(sample) if n > 1 and axis not in covered]
    for axis, size in free:
        if axis not in covered:
            growth = _growth(sample, axis, size, [a for a, n in free if n == size])
            if growth is not None:
                covered |= set(growth.axes)
                yield growth


def _axes(sample: Sample) -> Iterator[tuple[Axis, int]]:
    """Every axis of every input that is not LoD, with its size."""
    for slot, value in sample.inputs.items():
        if value is not None and not is_lod(sample, slot):
            for place, array in enumerate(listed(value)):
                for axis, size in enumerate(np.shape(array)):
                    yield (slot, place, axis), size


def _sequence_rows(sample: Sample) -> Iterator[Axis]:
    """The first axes of inputs with LoD, whose sizes are the last offsets."""
    for slot, value in sample.inputs.items():
        if value is not None and sample.inputs.get(f"{slot}_lod"):
            yield from ((slot, place, 0) for place in range(len(listed(value))))


def _growth(sample: Sample, axis: Axis, size: int, same: Sequence[Axis]) -> Growth | None:
    """The smallest growth with an axis that is accepted: alone, or with others of its size."""
    options = [
        [other for other in same if other[2] == axis[2]],
        [axis],
        [other for other in same if other[0] == axis[0]],
        list(same),
    ]
    for attrs, axes in product(_attribute_choices(sample, size), map(tuple, options)):
        growth = Growth(axes, size, attrs)
        if _grows(sample, growth, 2 * size):
            is_free = _grows(sample, growth, _OTHER)
            return replace(growth, step=1 if is_free else size)
    return None


def _attribute_choices(sample: Sample, size: int) -> list[tuple[str, ...]]:
    """Attributes that may follow a size: none, each with that number, or all of them."""
    names = [n for n, v in sample.attrs.items() if any(_is_number(i, size) for i in _items(v))]
    choices = [(), *((name,) for name in names), tuple(names)]
    return list(dict.fromkeys(choices))


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _is_number(value: Any, size: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == size


def _grows(sample: Sample, growth: Growth, size: int) -> bool:
    return accepts(resized(Scaling(sample, (growth,), {}), {growth: size}))


def _rows(sample: Sample) -> Growth | None:
    """The growth of all sequences of a sample; None if it has none, or is not accepted."""
    lods = [a for s, v in sample.inputs.items() if v is not None and is_lod(sample, s) for a in listed(v)]  # fmt: skip
    if not lods:
        return None
    counts = {int(a[-1]) for a in lods} | {len(a) - 1 for a in lods}
    firsts = [axis for axis, n in _axes(sample) if axis[2] == 0 and n in counts]
    own = [axis for axis in firsts if f"{axis[0]}_lod" in sample.inputs]
    for axes in (firsts, own, [a for a in firsts if a[0] not in ("Weight", "Bias", "Filter")]):
        growth = Growth(tuple(axes), 1, repeats=True)
        if axes and _grows(sample, growth, 3):
            return growth
    return None


def _indexed(scaling: Scaling) -> Iterator[tuple[str, Growth]]:
    """The integer inputs that index a growth: its last index is accepted and the next is not."""
    sample = scaling.sample
    for slot, value in sample.inputs.items():
        numbers = None if value is None or isinstance(value, list) else value
        if numbers is None or numbers.dtype.kind not in "iu" or not numbers.size:
            continue
        if is_lod(sample, slot) or is_tiled(sample, slot) or numbers.min() < 0:
            continue
        for growth in scaling.growths:
            elsewhere = any(axis[0] != slot for axis in growth.axes)
            if elsewhere and not growth.repeats and numbers.max() < growth.size:
                size = 2 * growth.size
                grown = resized(scaling, {growth: size})
                if _takes(grown, slot, size - 1) and not _takes(grown, slot, size):
                    yield slot, growth
                    break


def _takes(sample: Sample, slot: str, index: int) -> bool:
    """Whether an op accepts an index in a place of an input."""
    numbers = sample.inputs[slot].copy()
    numbers.reshape(-1)[0] = index
    return accepts(replace(sample, inputs={**sample.inputs, slot: numbers}))
