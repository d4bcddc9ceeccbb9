"""Random parameters of batch norms, so that folding them has an effect."""

from __future__ import annotations

from typing import Any

import numpy as np

import fluid

RANGES = {"Scale": (0.5, 1.5), "Bias": (-0.5, 0.5), "Mean": (-0.5, 0.5), "Variance": (0.5, 2.0)}
"""Ranges of the vectors by input slot."""


def draw_norms(program: Any, random: np.random.RandomState) -> None:
    """Draw the batch-norm vectors of a program in the current scope."""
    arrays = fluid.global_scope().arrays()
    for op in program.global_block().ops:
        for slot, (low, high) in RANGES.items() if op.type == "batch_norm" else ():
            array = arrays[op.input(slot)[0]]
            array[...] = random.uniform(low, high, array.shape)
