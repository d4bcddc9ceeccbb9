"""Numeric gradients by central differences, and the tolerance of an op's gradients.

The rules are those of the reference's operator tests: a difference is divided by the size of the
numeric gradient, with a minimum that depends on the dtype.
"""

from __future__ import annotations

import numpy as np

from tools.verify.reference_tests.one_op import parted

LIMIT = 1e-7
"""Maximum relative difference of float64 gradients, unless the op is on the list of exceptions."""
STEP = 1e-5
"""Step of the differences in float64."""


def numeric_gradient(op, name, outputs, step):
    """The derivative of the mean over the means of `outputs` by `name`, in the dtype of that input.

    Each element is moved by `step` in both directions, and the op is run again on all inputs.
    """
    array, lengths = parted(op.feed[name])
    array = np.array(array)
    gradient = np.zeros(array.shape, array.dtype)
    for place in np.ndindex(*array.shape):
        sides = []
        for move in (step, -step):
            moved = array.copy()
            moved[place] += move
            value = moved if lengths is None else (moved, lengths)
            sides.append(mean(op, {**op.feed, name: value}, outputs, array.dtype))
        gradient[place] = (sides[0] - sides[1]) / step / 2
    return gradient


def mean(op, feed, outputs, dtype):
    """The mean over the means of these outputs."""
    means = [np.array(output).astype(dtype).mean() for output in op.run(outputs, feed)]
    return dtype.type(np.array(means).sum() / len(outputs))


def expect_close(kind, name, numeric, found, limit, is_double):
    """Raise AssertionError, naming the element that differs most, if a gradient is out of
    tolerance.
    """
    if found.size != numeric.size:
        raise AssertionError(
            f"gradient of {name} by {kind} has the shape {found.shape}, not {numeric.shape}"
        )
    found = found.reshape(numeric.shape)
    sizes = scaled(np.abs(numeric), is_double)
    far = np.abs(numeric - found) / sizes
    if far.size and not far.max() <= limit:
        at = np.unravel_index(int(np.argmax(np.nan_to_num(far, nan=np.inf))), far.shape)
        raise AssertionError(
            f"gradient of {name} by {kind} at {list(map(int, at))} is {found[at]!s}, numerically "
            f"{numeric[at]!s}: relative difference {far[at]:.3g} > {limit:g}"
        )


def scaled(sizes, is_double):
    """The divisors of differences."""
    sizes = np.array(sizes)
    if not is_double:
        sizes[sizes < 1e-3] = 1
        return sizes
    tiny, small = sizes <= 1e-8, sizes <= 1e-6
    least = sizes < 1e-10
    sizes[small & ~tiny] *= 1e2
    sizes[tiny & ~least] *= 1e4
    sizes[least] = 1e-3
    return sizes
