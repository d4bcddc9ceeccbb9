"""What is special about accuracy: how rows are counted, and what labels must be."""

import re

import numpy as np
import pytest

import compiler.ops
from compiler.errors import ShapeError
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType

assert compiler.ops, "importing it fills the registry"


def test_a_row_counts_once():
    guesses = np.array([[0, 1], [1, 1], [3, 0]])
    found = find("accuracy")({}).evaluate({"Indices": guesses, "Label": np.array([[1], [1], [2]])})
    assert found["Correct"].tolist() == [2]
    assert found["Total"].tolist() == [3]
    assert found["Accuracy"].tolist() == [np.float32(2 / 3)]


def test_only_the_shape_of_out_is_read():
    assert find("accuracy").slots["Out"].shape_only


def test_a_label_for_every_row():
    types = {s: TensorType(DType.INT64, (3, n)) for s, n in (("Indices", 2), ("Label", 2))}
    with pytest.raises(ShapeError, match=re.escape("rows i64[3, 1] and Label i64[3, 2]")):
        find("accuracy")({}).infer_types(types)
