"""The short form of the attack with shapes that do not belong together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.codegen.native.host import detected
from runtime.errors import OutOfBounds, StepError
from tools.verify.attacks import shapes
from tools.verify.attacks.shape_cases import Case, cases, chosen, mutations
from tools.verify.attacks.shapes import (
    ACCEPTED,
    BOUNDS,
    DIFFERS,
    LARGE,
    RESULT,
    TYPED,
    UNTYPED,
    attempt,
    run,
)
from tools.verify.support.children import Limits

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")


def case(op: str, operand: str, mutation: str, form: str = "known") -> Case:
    result = (each for each in cases(op) if each.call.op == op and each.operand == (operand, 0))
    return next(each for each in result if (each.mutation, each.form) == (mutation, form))


def test_a_sample_of_cases() -> None:
    some = chosen(12, seed=0, only="flatten2")
    outcomes = run(some, "native", Limits(seconds=20.0), jobs=1)
    assert not [shapes.line(c, o) for c, o in zip(some, outcomes, strict=True) if o.failed]


@pytest.mark.parametrize(
    ("op", "operand", "mutation", "kind", "message"),
    [
        (
            "flatten2_grad",
            "XShape",
            "axis 1 huge",
            TYPED,
            "Out@GRAD is f32[1, 24], expected f32[1, 786432]",
        ),
        ("relu", "X", "axis 0 +1", RESULT, ""),
        ("relu", "Out", "declared axis 0 +1", TYPED, "is declared f32["),
        ("reduce_max", "X", "axis 0 to 0", RESULT, ""),
        ("logsumexp", "X", "axis 0 to 0", RESULT, ""),
        ("roi_align", "X", "axis 3 to 1", RESULT, ""),
        ("max_pool2d_with_index_grad", "X", "axis 2 -1", RESULT, ""),
        ("strided_slice", "Input", "of size 1", RESULT, ""),
        ("diag_v2", "X", "axis 0 huge", LARGE, ""),
        ("warpctc_grad", "WarpCTCGrad", "axis 0 +1", TYPED, "has 6 steps, expected 5"),
        (
            "sequence_pad_grad",
            "Out@GRAD",
            "axis 1 to 0",
            TYPED,
            "a sequence has 3 rows, expected at most 0",
        ),
    ],
)
def test_an_outcome(op: str, operand: str, mutation: str, kind: str, message: str) -> None:
    outcome = attempt(case(op, operand, mutation), "native")
    assert outcome.kind == kind
    assert message in outcome.text


@pytest.mark.parametrize(
    ("op", "operand", "mutation", "kind", "message"),
    [
        ("equal_all", "X", "axis 0 to 0", RESULT, ""),
        ("random_crop", "X", "an axis after", TYPED, "axis 3 of X has size 1, expected at least 2"),
        ("crop", "X", "axis 1 -1", TYPED, "axis 1 of X has size 2, expected at least 3"),
    ],
)
def test_an_outcome_of_dynamic_sizes(
    op: str, operand: str, mutation: str, kind: str, message: str
) -> None:
    outcome = attempt(case(op, operand, mutation, "open"), "native")
    assert outcome.kind == kind
    assert message in outcome.text


@pytest.mark.parametrize(
    ("native", "numpy", "kind"),
    [
        (OutOfBounds("kernel k reads 4 bytes at offset 8"), [], BOUNDS),
        (KeyError("X"), [], UNTYPED),
        ([np.zeros(3)], StepError("refused"), ACCEPTED),
        (
            [np.zeros(3)],
            StepError("index 7 is out of bounds for axis 0 with size 4"),
            shapes.REFUSED,
        ),
        ([np.zeros(3)], [np.ones(3)], DIFFERS),
        ([np.zeros(3)], [np.zeros(4)], DIFFERS),
        ([np.array([1.0, np.nan])], [np.array([1.0, np.inf])], RESULT),
    ],
)
def test_kinds(monkeypatch: pytest.MonkeyPatch, native: Any, numpy: Any, kind: str) -> None:
    def computed(_: Case, target: str) -> Any:
        result = native if target == "native" else numpy
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(shapes, "computed", computed)
    assert attempt(case("relu", "X", "axis 0 +1"), "native").kind == kind


def test_slices_are_all_cases_once() -> None:
    every = [str(each) for each in chosen(50, 3, "argsort")]
    parts = [str(each) for i in range(3) for each in chosen(50, 3, "argsort", (i, 3))]
    assert every == parts == list(dict.fromkeys(every))


def test_mutations_are_other_shapes() -> None:
    result = dict(mutations((2, 3), 4))
    assert (2, 3) not in result.values()
    assert len(set(result.values())) == len(result)
    assert result["axis 1 -1"] == (2, 2)
    assert result["transposed"] == (3, 2)
