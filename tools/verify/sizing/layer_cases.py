"""Cases of small programs, in ordinary sizes and in small ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tools.verify.sizing.layer_rows import FAMILIES, SHRINKING, Row
from tools.verify.sizing.problem import Case
from tools.verify.sizing.recorder import Recorded, Recorder
from tools.verify.sizing.row_programs import PROGRAMS


def layer_cases(scale: str) -> Iterator[Case]:
    """All cases of a scale; of "small" those whose sizes may shrink independently."""
    if scale == "real":
        yield from (_case(row) for family in FAMILIES for row in family())
        return
    rows = (replace(row, args=_shrunk(row.args)) for family in SHRINKING for row in family())
    yield from {case.name: case for case in map(_case, rows)}.values()


def _case(row: Row) -> Case:
    text = ",".join(f"{key}={_short(value)}" for key, value in row.args.items())
    name = f"{row.program}({text})" + "/named" * row.has_names
    record = partial(_record, row.program, row.args)
    return Case(name, Recorded(name, record, row.has_gradient, row.has_names).problem)


def _record(program: str, args: Mapping[str, Any], recorder: Recorder) -> Sequence[Any]:
    return PROGRAMS[program](recorder, **args)


def _short(value: Any) -> str:
    """An argument in a name."""
    if isinstance(value, list | tuple):
        return "x".join(map(_short, value)) or "-"
    return str(value)


def _shrunk(value: Any) -> Any:
    """Arguments with about the square roots of sizes: of a power of two, another; else a prime."""
    if isinstance(value, Mapping):
        return {key: _shrunk(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_shrunk, value))
    if not isinstance(value, int) or isinstance(value, bool) or value < 16:
        return value
    bits = math.log2(value) / 2
    if value & (value - 1) == 0:
        return 2 ** math.ceil(bits)
    return min((7, 11, 13, 31, 61, 127, 251, 1021), key=lambda prime: abs(math.log2(prime) - bits))
