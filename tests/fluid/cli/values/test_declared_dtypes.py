"""Arrays of files as the dtypes that a model declares of its feeds."""

import warnings

import numpy as np
import pytest

from fluid.cli.model import CommandError
from fluid.cli.values.declared_dtypes import as_declared


def converted(values, dtype, declared):
    return as_declared(np.array(values, dtype), np.dtype(declared), "x", "x.npy")


@pytest.mark.parametrize(
    ("dtype", "declared"),
    [
        ("float64", "float32"),
        ("float64", "int64"),
        ("int64", "int32"),
        ("uint8", "float32"),
        ("bool", "float32"),
        ("int64", "bool"),
    ],
)
def test_another_dtype_is_converted_with_a_warning(dtype, declared):
    with pytest.warns(match=rf"x.npy holds {dtype}, feed 'x' takes {declared}: .* converted"):
        result = converted([[0, 1]], dtype, declared)
    assert (result.dtype, result.tolist()) == (declared, [[0, 1]])


@pytest.mark.parametrize(
    ("dtype", "declared"),
    [("int32", "int64"), ("float16", "float32"), ("float32", "float64"), ("float32", "float32")],
)
def test_a_wider_dtype_of_the_kind_needs_no_warning(dtype, declared):
    with warnings.catch_warnings(action="error"):
        assert converted([0, 1], dtype, declared).dtype == declared


@pytest.mark.parametrize(
    ("values", "dtype", "declared", "lost"),
    [
        ([1.0, 2.5], "float64", "int64", "2.5"),
        ([1.0, np.nan], "float32", "int64", "nan"),
        ([1, 2**40], "int64", "int32", str(2**40)),
        ([1, -1], "int32", "uint8", "-1"),
        ([1.0, 1e300], "float64", "float32", "1e+300"),
        ([1, 70000], "int64", "float16", "70000"),
        ([0, 2], "int64", "bool", "2"),
    ],
)
def test_numbers_that_would_be_lost_are_an_error(values, dtype, declared, lost):
    with pytest.raises(CommandError) as error:
        converted(values, dtype, declared)
    expected = f"x.npy holds {dtype}, feed 'x' takes {declared}, which cannot hold {lost}"
    assert str(error.value) == expected


def test_infinite_numbers_stay_infinite():
    with pytest.warns(match="converted"):
        assert converted([np.inf, -np.inf, np.nan], "float64", "float32")[0] == np.inf


@pytest.mark.parametrize(("values", "dtype"), [(["a"], "<U1"), ([1j], "complex64")])
def test_what_is_no_number_is_an_error(values, dtype):
    with pytest.raises(CommandError, match="save numbers of that dtype"):
        converted(values, dtype, "float32")
