"""Each form with operands that are equal in all threads, written in the text, or under a guard.

A machine may compute once what all threads share; the result must be that of each thread alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from tests.tools.ptx.forms import Form
from tests.tools.ptx.instruction_text import (
    PREFIX,
    address,
    instruction,
    kernel,
    load_operands,
    store_result,
    target,
)
from tests.tools.ptx.integers import Whole
from tests.tools.ptx.listed import FORMS, label
from tests.tools.ptx.operands import COUNT, tuples, width
from tests.tools.ptx.runner import agrees, column, execute
from tests.tools.ptx.warps import LANES

KEPT = 0x5A5A5A5A5A5A5A5A
"""What a register holds before an instruction that a guard leaves out."""


SHARED = 10
"""Operand tuples that all threads share."""


@dataclass(frozen=True)
class Use:
    """An instruction of the kernel: a letter for each operand, and the values of shared ones.

    `v` differs by thread, `u` is a register equal in all threads, `i` is written in the text.
    With `guard` only odd threads execute it.
    """

    letters: str
    row: tuple[int, ...]
    guard: bool

    def operands(self, own: Sequence[int]) -> list[int]:
        return [
            mine if letter == "v" else shared
            for letter, mine, shared in zip(self.letters, own, self.row, strict=True)
        ]


def written(kind: str) -> bool:
    """Whether operands of a kind can appear in the text."""
    return kind in ("f32", "f64", "count") or (kind[0] in "bsu" and kind[1:] in ("16", "32", "64"))


def literal(kind: str, bits: int) -> str:
    """As Triton writes numbers: bits of floats, signed integers."""
    if kind in ("f32", "f64"):
        return f"0{'f' if kind == 'f32' else 'd'}{bits:0{width(kind) // 4}X}"
    return str(bits if kind == "count" else Whole(f"s{width(kind)}").value(bits))


def uses(form: Form) -> list[Use]:
    """Each operand alone differing by thread, none differing, and literals where they may stand."""
    count = len(form.operands)
    letters = {"u" * count, *("u" * n + "v" + "u" * (count - n - 1) for n in range(count))}
    if count > 1:
        letters |= {
            "v" * n + "i" + "v" * (count - n - 1)
            for n, kind in enumerate(form.operands)
            if written(kind)
        }
    if form.name.startswith("selp") and written(form.operands[0]):
        letters.add("iiv")
    rows = tuples(form)
    return [
        Use(
            letter,
            in_range(form, letter, rows[(7 * n + 53 * again) % len(rows)]),
            (n + again) % 2 == 0,
        )
        for n, letter in enumerate(sorted(letters))
        for again in range(SHARED if set(letter) == {"u"} else 2)
    ]


def in_range(form: Form, letters: str, row: tuple[int, ...]) -> tuple[int, ...]:
    """A row whose counts in the text are below 256: ptxas refuses others for some instructions."""
    kinds = zip(letters, form.operands, row, strict=True)
    return tuple(
        bits & 255 if letter == "i" and kind == "count" else bits for letter, kind, bits in kinds
    )


def lines(form: Form, use: Use, own: list[str], offset: int) -> list[str]:
    """Set shared operands, execute, store."""
    body: list[str] = []
    names: list[str] = []
    for place, (letter, kind, bits) in enumerate(
        zip(use.letters, form.operands, use.row, strict=True)
    ):
        size = width(kind)
        if letter == "v":
            names.append(own[place])
        elif letter == "i":
            names.append(literal(kind, bits))
        elif kind == "pred":
            body.append(f"setp.ne.b32 %p{5 + place}, %r2, {bits};")  # block 0
            names.append(f"%p{5 + place}")
        else:
            names.append(f"%{PREFIX[size]}{15 + place}")
            body.append(f"mov.b{size} {names[-1]}, 0x{bits:x};")
    kept = "setp.ne.b32 %p9, %r2, 0;"
    if form.result != "pred":
        kept = f"mov.b{width(form.result)} {target(form)}, 0x{KEPT & ((1 << width(form.result)) - 1):x};"
    guard = "@%p10 " if use.guard else ""
    return [
        *body,
        kept,
        guard + instruction(form, names, target(form)),
        *store_result(form, offset),
    ]


@pytest.mark.parametrize("form", FORMS, ids=label)
def test_results_are_those_of_each_thread_alone(form: Form) -> None:
    result = uses(form)
    rows, size = tuples(form)[:: COUNT // LANES], width(form.result) // 8
    loads, own = load_operands(form)
    body = [*loads, "and.b32 %r5, %r1, 1;", "setp.eq.b32 %p10, %r5, 1;", *address(0, size, 30)]
    for n, use in enumerate(result):
        body += lines(form, use, own, n * LANES * size)
    out = np.zeros((len(result), LANES), f"u{size}")
    columns = [
        column(each, f"u{width(kind) // 8}")
        for each, kind in zip(zip(*rows, strict=True), form.operands, strict=True)
    ]
    execute(kernel("one", 1 + len(columns), body, threads=LANES), [out, *columns], threads=LANES)
    wrong = [
        fault
        for use, got in zip(result, out.tolist(), strict=True)
        for fault in faults(form, use, rows, got)
    ]
    assert not wrong, "\n".join([f"{len(wrong)} results", *wrong[:12]])


def faults(form: Form, use: Use, rows: Sequence[tuple[int, ...]], got: list[int]) -> list[str]:
    model = cache(form.model)
    actual: list[str] = []
    for thread, (row, bits) in enumerate(zip(rows, got, strict=True)):
        operands = use.operands(row)
        expected = model(*operands)
        if use.guard and thread % 2 == 0:
            expected = 0 if form.result == "pred" else KEPT & ((1 << width(form.result)) - 1)
        if not agrees(form, expected, bits):
            actual.append(
                f"{form.name} {use} {[hex(n) for n in operands]}: {expected and hex(expected)}, got {hex(bits)}"
            )
    return actual
