"""LoDTensor: what is set comes back, arrays stay in place, and bad sequences are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.ir.types import VarTypeId
from runtime.device import CPUPlace, CUDAPinnedPlace, CUDAPlace
from runtime.errors import LodError, PlaceError
from runtime.tensors.contents import Clock
from runtime.tensors.lod_tensor import (
    LoDTensor,
    create_lod_tensor,
    create_random_int_lodtensor,
)

CPU = CPUPlace()


def tensor_of(array: object) -> LoDTensor:
    tensor = LoDTensor()
    tensor.set(array, CPU)
    return tensor


def test_empty_tensor_is_as_in_the_reference() -> None:
    tensor = LoDTensor()
    assert tensor.shape() == [0] and tensor.lod() == [] and not tensor._is_initialized()
    assert np.array(tensor).shape == (0,)
    with pytest.raises(ValueError, match="empty LoDTensor has no element type: call set"):
        tensor._dtype()
    assert repr(tensor) == "LoDTensor(empty)"


def test_set_copies_what_it_is_given() -> None:
    source = np.arange(6, dtype="float32").reshape(2, 3)
    tensor = tensor_of(source)
    source[:] = 0
    assert np.array(tensor).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (tensor.shape(), tensor._dtype()) == ([2, 3], VarTypeId.FP32)
    assert repr(tensor) == "LoDTensor(float32[2, 3], lod=[])"


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_set_takes_lists_and_any_shape(shape: tuple[int, ...]) -> None:
    assert tensor_of(np.ones(shape)).shape() == list(shape)
    assert tensor_of([1, 2])._dtype() is VarTypeId.INT64


def test_set_stores_rows_one_after_another() -> None:
    tensor = tensor_of(np.arange(6.0).reshape(2, 3).T)
    assert tensor.array is not None and tensor.array.flags.c_contiguous
    assert np.array(tensor).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_same_shape_and_type_stay_in_place() -> None:
    clock = Clock()
    tensor = LoDTensor(np.zeros((2, 3)), clock)
    before = tensor.array
    tensor.set(np.ones((2, 3)), CPU)
    assert tensor.array is before and before is not None and before.all()
    assert clock.now == 0


@pytest.mark.parametrize("other", [np.zeros((3, 2)), np.zeros((2, 3), "float32"), np.zeros(6)])
def test_another_shape_or_type_replaces_the_array(other: np.ndarray) -> None:
    clock = Clock()
    tensor = LoDTensor(np.zeros((2, 3)), clock)
    before = tensor.array
    tensor.set(other, CPU)
    assert tensor.array is not before and tensor.shape() == list(other.shape)
    assert clock.now == 1


@pytest.mark.parametrize("values", [np.array(["a"]), np.array([1j]), np.zeros(1, "u4"), None])
def test_elements_fluid_does_not_have_are_rejected(values: object) -> None:
    tensor = tensor_of([1.0])
    with pytest.raises(TypeError, match="is not an element type fluid has") as caught:
        tensor.set(values, CPU)
    assert "hint: pass a NumPy array" in caught.value.__notes__[0]
    assert np.array(tensor).tolist() == [1.0]


def test_set_needs_a_place() -> None:
    with pytest.raises(TypeError, match=r"a place is CPUPlace\(\) or CUDAPlace\(i\), not 3"):
        LoDTensor().set(np.zeros(1), 3)  # type: ignore[arg-type]


def test_numpy_gets_a_copy_unless_it_asks_for_the_storage() -> None:
    tensor = tensor_of(np.zeros(2))
    shown, storage = np.asarray(tensor), np.asarray(tensor, copy=False)
    tensor.set(np.ones(2), CPU)
    assert shown.tolist() == [0, 0] and storage.tolist() == [1, 1]
    assert np.array(tensor, dtype="int64").dtype == np.int64
    with pytest.raises(ValueError, match="avoid copy"):
        np.array(tensor, dtype="float32", copy=False)


# Sequences


def test_lengths_and_offsets_are_two_spellings() -> None:
    tensor = tensor_of(np.zeros((5, 3)))
    tensor.set_recursive_sequence_lengths([[2, 1], [2, 1, 2]])
    assert tensor.lod() == [[0, 2, 3], [0, 2, 3, 5]]
    tensor.set_lod([[0, 2, 5]])
    assert tensor.recursive_sequence_lengths() == [[2, 3]]
    tensor.lod()[0][0] = 9
    assert tensor.lod() == [[0, 2, 5]]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_lod_round_trip(lengths: list[int]) -> None:
    tensor = tensor_of(np.zeros((sum(lengths), 2)))
    tensor.set_recursive_sequence_lengths([lengths])
    assert tensor.recursive_sequence_lengths() == [lengths]
    assert tensor.has_valid_recursive_sequence_lengths()


@pytest.mark.parametrize(
    "lod", [[[0, 2, 6]], [[0, 6, 5]], [[1, 5]], [[0]], [[]], [[0, 2], [0, 2, 3, 5]]]
)
def test_offsets_that_do_not_cover_the_data_are_rejected(lod: list[list[int]]) -> None:
    tensor = tensor_of(np.zeros((5, 3)))
    with pytest.raises(LodError, match=r"offsets .* do not fit a LoDTensor of shape \(5, 3\)"):
        tensor.set_lod(lod)
    assert tensor.lod() == []


@pytest.mark.parametrize("lengths", [[[2, 4]], [[-2, 7]], [[2, 2], [2, 1, 2]], [[]]])
def test_lengths_that_do_not_cover_the_data_are_rejected(lengths: list[list[int]]) -> None:
    with pytest.raises(LodError, match=r"sequence lengths .* do not fit"):
        tensor_of(np.zeros((5, 3))).set_recursive_sequence_lengths(lengths)


def test_lod_stays_when_other_data_is_set_and_reports_that_it_is_stale() -> None:
    tensor = create_lod_tensor(np.zeros((5, 1)), [[2, 3]], CPU)
    tensor.set(np.zeros((7, 1)), CPU)
    assert tensor.lod() == [[0, 2, 5]] and not tensor.has_valid_recursive_sequence_lengths()


@pytest.mark.parametrize(
    ("data", "lengths", "shape", "dtype"),
    [
        ([[1, 2], [3, 4, 5]], [[2, 3]], [5, 1], VarTypeId.INT64),
        ([[1.0, 2], [3, 4, 5]], [[2, 3]], [5, 1], VarTypeId.FP64),
        ([[[1.0, 2]], [[3, 4], [5, 6]]], [[1, 2]], [3, 2, 1], VarTypeId.FP64),
        (np.zeros((5, 30), "float32"), [[2, 3]], [5, 30], VarTypeId.FP32),
        (np.zeros((4, 2)), [], [4, 2], VarTypeId.FP64),
    ],
)
def test_create_lod_tensor(data: list, lengths: list, shape: list[int], dtype: VarTypeId) -> None:
    tensor = create_lod_tensor(data, lengths, CPU)
    assert (tensor.shape(), tensor._dtype()) == (shape, dtype)
    assert tensor.recursive_sequence_lengths() == lengths
    again = create_lod_tensor(tensor, lengths, CPU)
    assert np.array_equal(again, tensor) and again.lod() == tensor.lod()


@pytest.mark.parametrize("error", [ValueError, AssertionError])
@pytest.mark.parametrize("data", [[[1, 2], [3, 4, 5]], np.zeros((4, 2))])
def test_create_lod_tensor_rejects_lengths_that_do_not_fit(data: object, error: type) -> None:
    with pytest.raises(error, match=r"\[\[3, 2\]\]"):
        create_lod_tensor(data, [[3, 2]], CPU)  # type: ignore[arg-type]


def test_create_lod_tensor_rejects_other_data() -> None:
    with pytest.raises(TypeError, match="data is a LoDTensor, a NumPy array or a list, not tuple"):
        create_lod_tensor((1, 2), [[2]], CPU)  # type: ignore[arg-type]


def test_random_ints_include_both_ends() -> None:
    np.random.seed(0)
    tensor = create_random_int_lodtensor([[2, 3]], [30], CPU, low=0, high=1)
    assert (tensor.shape(), tensor._dtype(), tensor.lod()) == (
        [5, 30],
        VarTypeId.INT64,
        [[0, 2, 5]],
    )
    assert set(np.unique(np.array(tensor))) == {0, 1}


# Places


def test_places_compare_and_print() -> None:
    places = [CPUPlace(), CUDAPlace(0), CUDAPlace(1), CUDAPinnedPlace()]
    assert [str(place) for place in places] == [
        "CPUPlace",
        "CUDAPlace(0)",
        "CUDAPlace(1)",
        "CUDAPinnedPlace",
    ]
    assert len({*places, CPUPlace(), CUDAPlace(1)}) == 4


@pytest.mark.parametrize("device", [-1, "0", 1.0, True])
def test_cuda_place_needs_a_device_number(device: object) -> None:
    with pytest.raises(PlaceError, match="CUDAPlace takes a device number from 0, not"):
        CUDAPlace(device)  # type: ignore[arg-type]
