"""Hostile values for the inputs of ops: ids, counts, coordinates and offsets out of any range.

A call is a sample of `tests/ops/samples`, or its gradient op; each of its inputs in turn gets
values that no valid program would pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from compiler.ir.opdef import find
from tests.ops.samples import samples
from tools.verify.attacks.attribute_values import Call, calls_of

INTEGERS = (
    -(2**63), -(2**62), -(2**31), -1000, -7, -1, 0, 1, 100, 30_000, 2**20, 2**31 - 1, 2**31,
    2**62, 2**63 - 1,
)  # fmt: skip
FLOATS = (
    np.nan, np.inf, -np.inf, 3e38, -3e38, 1e19, -1e19, 3e9, -3e9, 1e6, -1e6, -0.5, 1e-45, 0.0,
)  # fmt: skip
SHIFTS = (1, -1, 2**31, 2**40)
"""Added to all integers of an array: ascending ones remain so."""
TOGETHER = 20
"""Feeds of a call of which several arrays are hostile, drawn by chance."""


def calls(only: str = "") -> list[Call]:
    """All samples and their gradient ops whose op contains `only`; composite ops are other ops."""
    alone = (sample for sample in samples() if not find(sample.op).is_composite)
    calls_of_samples = (call for sample in alone for call in calls_of(sample))
    return [call for call in calls_of_samples if only in call.op and not find(call.op).is_composite]


def hostile_feeds(feed: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Feeds of the same types of which one array, or several, are hostile, each with words that
    describe it.
    """
    variants = {name: [*_hostile(array)] for name, array in feed.items()}
    for name, arrays_of_variants in variants.items():
        for words, changed in arrays_of_variants:
            yield f"{name}: {words}", {**feed, name: changed}
    for seed in range(TOGETHER if len(feed) > 1 else 0):
        random = np.random.default_rng(seed)
        chosen = {
            n: arrays_of_variant[random.integers(len(arrays_of_variant))]
            for n, arrays_of_variant in variants.items()
            if arrays_of_variant
        }
        some = {name: variant for name, variant in chosen.items() if random.random() < 0.6}
        words = ", ".join(f"{name}: {variant[0]}" for name, variant in some.items())
        yield f"seed {seed}: {words}", {**feed, **{n: array for n, (_, array) in some.items()}}


def _hostile(array: Any) -> Iterator[tuple[str, Any]]:
    """Copies of an array with hostile elements: the first, the last, and all of them."""
    if not array.size:
        return
    for value in _values(array.dtype):
        for words, place in (("first", 0), ("last", -1), ("all", slice(None))):
            changed = array.copy()
            changed.reshape(-1)[place] = value
            yield f"{words} = {value}", changed
    yield "reversed", np.ascontiguousarray(array.reshape(-1)[::-1]).reshape(array.shape)
    if array.dtype.kind == "i":
        yield from _shifted(array)


def _shifted(array: Any) -> Iterator[tuple[str, Any]]:
    for shift in SHIFTS:
        yield f"all + {shift}", (array.astype(np.int64) + shift).astype(array.dtype)
    yield "all * 2", array * array.dtype.type(2)
    yield "negated", -array


def _values(dtype: np.dtype[Any]) -> list[Any]:
    """Hostile values of a type, each once."""
    if dtype.kind == "b":
        return [False, True]
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return list(dict.fromkeys(int(np.clip(n, limits.min, limits.max)) for n in INTEGERS))
    with np.errstate(over="ignore", under="ignore"):
        return [dtype.type(value) for value in FLOATS]
