"""Elements, sizes and parts of a LoDTensor, as scripts of release 1.8.5 read and write them."""

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import core

CPU = fluid.CPUPlace()


def filled(*shape: int) -> Any:
    """A tensor of the numbers from 0 on."""
    tensor = fluid.LoDTensor()
    tensor.set(np.arange(np.prod(shape), dtype="float32").reshape(shape), CPU)
    return tensor


@pytest.mark.parametrize(
    ("key", "shape", "first"),
    [(1, (1, 6), 6), (slice(1, 3), (2, 6), 6), (slice(None, None, 2), (2, 6), 0),
     ((slice(1, 3), 2), (2, 1), 8), ((slice(None), slice(1, 4, 2)), (4, 2), 1)],
)  # fmt: skip
def test_a_part_has_as_many_axes(key: Any, shape: tuple[int, ...], first: float) -> None:
    part = filled(4, 6)[key]
    assert isinstance(part, fluid.LoDTensor)
    assert part.shape() == list(shape)
    assert np.array(part).flat[0] == first


def test_a_part_is_a_copy_and_a_number_must_be_in_range() -> None:
    tensor = filled(2, 3)
    tensor[0]._set_float_element(0, 9)
    assert np.array(tensor)[0, 0] == 0
    with pytest.raises(IndexError):
        tensor[2]
    with pytest.raises(ValueError, match="call set first"):
        fluid.LoDTensor()[0]


@pytest.mark.parametrize(
    ("kind", "dtype"), [("int", "int32"), ("float", "float32"), ("double", "float64")]
)
def test_resize_then_mutable_data(kind: str, dtype: str) -> None:
    tensor = fluid.LoDTensor()
    tensor._set_dims([5, 2])
    assert tensor._get_dims() == [5, 2]
    getattr(tensor, f"_alloc_{kind}")(CPU)
    tensor._set_float_element(3, 2)
    assert np.array(tensor).dtype == dtype
    assert (np.array(tensor)[1, 1], tensor._get_double_element(3)) == (2, 2)


def test_an_empty_size_and_an_address() -> None:
    tensor = fluid.LoDTensor()
    tensor._set_dims([0, 1])
    tensor._alloc_float(CPU)
    assert np.array(tensor).shape == (0, 1)
    tensor._set_dims([2, 3])
    assert tensor._mutable_data(CPU, core.VarDesc.VarType.INT64) > 0
    assert (np.array(tensor).shape, np.array(tensor).dtype) == ((2, 3), np.int64)


def test_two_tensors_share_elements_until_one_is_cleared() -> None:
    tensor, other = filled(2, 3), fluid.LoDTensor()
    other._share_data_with(tensor)
    tensor._set_float_element(5, 7)
    assert np.array(other)[1, 2] == 7
    tensor._clear()
    assert (tensor._is_initialized(), other._is_initialized()) == (False, True)


def test_place_queries() -> None:
    place = core.Place()
    assert (place.is_gpu_place(), place._type()) == (True, 0)
    place.set_place(filled(1)._place())
    assert (place.is_cpu_place(), place.is_gpu_place(), place._type()) == (True, False, 1)
    place.set_place(fluid.CUDAPlace(3))
    assert place.gpu_device_id() == 3
    assert CPU._equals(fluid.CPUPlace())
    assert not CPU._equals(fluid.CUDAPlace(0))
    with pytest.raises(TypeError, match="a place is"):
        place.set_place("cpu")
