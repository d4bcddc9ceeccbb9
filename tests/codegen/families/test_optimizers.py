"""Updates of parameters of any shape, by dense gradients and by rows that repeat."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codegen.families.support import SEEDS, SIZES, assert_matches_reference, drawn, shapes
from tests.ops.samples import Sample, integers, numbers

pytestmark = pytest.mark.device

ONE = {"LearningRate": np.array([0.1], np.float32)}
POWERS = {
    "Beta1Pow": np.array([0.9**3], np.float32),
    "Beta2Pow": np.array([0.999**3], np.float32),
}
STATE = {
    "sgd": (),
    "momentum": ("Velocity",),
    "lars_momentum": ("Velocity",),
    "adagrad": ("Moment",),
    "decayed_adagrad": ("Moment",),
    "proximal_gd": (),
    "adam": ("Moment1", "Moment2"),
    "lamb": ("Moment1", "Moment2"),
    "adamax": ("Moment", "InfNorm"),
    "adadelta": ("AvgSquaredGrad", "AvgSquaredUpdate"),
    "ftrl": ("SquaredAccumulator", "LinearAccumulator"),
}
ATTRS = {"momentum": {"mu": 0.9}, "lars_momentum": {"mu": 0.9}, "lamb": {"weight_decay": 0.1}}


@drawn(18)
@given(st.sampled_from(sorted(STATE)), shapes(1, 4), SEEDS)
def test_dense(op, shape, seed):
    inputs = {"Param": numbers(*shape, seed=seed), "Grad": numbers(*shape, seed=seed + 1)}
    inputs |= {
        slot: numbers(*shape, low=0.1, seed=seed + 2 + i) for i, slot in enumerate(STATE[op])
    }
    inputs |= {} if op == "adadelta" else ONE
    if op in ("adam", "lamb"):
        inputs |= POWERS
    if op == "adamax":
        inputs["Beta1Pow"] = POWERS["Beta1Pow"]
    assert_matches_reference(Sample(op, inputs, ATTRS.get(op, {})), loosely=3)


@drawn(8)
@given(st.sampled_from(["sgd", "adagrad", "adam"]), SIZES, SIZES, SIZES, SEEDS)
def test_rows(op, height, width, count, seed):
    inputs = {
        "Param": numbers(height, width),
        "Grad": numbers(count, width, seed=1),
        "Grad_rows": integers(count, high=height, seed=seed),
        **ONE,
    }
    inputs |= {
        slot: numbers(height, width, low=0.1, seed=2 + i) for i, slot in enumerate(STATE[op])
    }
    assert_matches_reference(
        Sample(f"{op}_rows", inputs | (POWERS if op == "adam" else {})), loosely=3
    )
