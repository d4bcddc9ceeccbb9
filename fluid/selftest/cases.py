"""A case of the selftest: a small program built by layers, and the shapes that it is fed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

import numpy as np

from compiler.support.dataclass import dataclass
from fluid import unique_name
from fluid.backward import gradients
from fluid.data import data
from fluid.framework import Program, Variable, recording_guard

Shape = tuple[int, ...]
Build: TypeAlias = Callable[..., Variable | Sequence[Variable]]


@dataclass(frozen=True)
class Case:
    """A program over feeds: `build` takes their variables and returns what is fetched.

    `small` and `large` are the shapes of the feeds: odd sizes, and sizes that arrays of real models
    have. `ids` are the exclusive maximum of integer feeds, by position. With `lod`, rows of every
    feed are sequences of uneven lengths. `has_gradients` adds the gradients of all float feeds.
    """

    name: str
    build: Build
    small: tuple[Shape, ...]
    large: tuple[Shape, ...]
    ids: Mapping[int, int] = field(default_factory=dict[int, int])
    lod: bool = False
    has_gradients: bool = True
    positive: bool = False

    def shapes(self, is_large: bool) -> tuple[Shape, ...]:
        """The shapes of the feeds."""
        return self.large if is_large else self.small


@dataclass(frozen=True)
class Recorded:
    """A recorded case: its programs, the names that are fetched, and its feeds."""

    main: Program
    startup: Program
    fetches: tuple[str, ...]
    feeds: Mapping[str, np.ndarray]


def record(case: Case, is_large: bool, seed: int = 0) -> Recorded:
    """Record a case's program in new programs, and draw its feeds."""
    main, startup = Program(), Program()
    main.random_seed = startup.random_seed = seed + 1
    shapes = case.shapes(is_large)
    with recording_guard(main, startup), unique_name.guard():
        variables = [_declared(case, number, shape) for number, shape in enumerate(shapes)]
        built = case.build(*variables)
        results = [built] if isinstance(built, Variable) else list(built)
        results += _gradients(results, variables) if case.has_gradients else []
    feeds = _drawn(case, shapes, np.random.default_rng(seed))
    return Recorded(main, startup, tuple(result.name for result in results), feeds)


def _declared(case: Case, number: int, shape: Shape) -> Variable:
    dtype = "int64" if number in case.ids else "float32"
    is_open = all(len({dims[0] for dims in shapes}) == 1 for shapes in (case.small, case.large))
    sizes = [-1 if is_open else shape[0], *shape[1:]]
    variable = data(f"x{number}", sizes, dtype, lod_level=int(case.lod))
    variable.stop_gradient = number in case.ids
    return variable


def _gradients(results: Sequence[Variable], inputs: Sequence[Variable]) -> list[Variable]:
    """The gradients of the results with respect to the inputs that have one."""
    sources = [variable for variable in inputs if not variable.stop_gradient]
    return [gradient for gradient in gradients(list(results), sources) if gradient is not None]


def _drawn(case: Case, shapes: Sequence[Shape], draw: np.random.Generator) -> dict[str, np.ndarray]:
    feeds: dict[str, np.ndarray] = {}
    for number, shape in enumerate(shapes):
        if number in case.ids:
            feeds[f"x{number}"] = draw.integers(0, case.ids[number], shape)
            continue
        values = draw.standard_normal(shape, np.float32)
        feeds[f"x{number}"] = np.abs(values) + np.float32(0.1) if case.positive else values
    if case.lod:
        offsets = _offsets(shapes[0][0], draw)
        feeds |= {f"x{number}@LOD0": offsets for number in range(len(shapes))}
    return feeds


def _offsets(rows: int, draw: np.random.Generator) -> np.ndarray:
    """Offsets of sequences of uneven lengths, the first of which is one row."""
    cuts = draw.choice(np.arange(1, rows), min(max(rows // 7, 1), rows - 1), replace=False)
    return np.array(sorted({0, 1, rows, *cuts.tolist()}), np.int64)
