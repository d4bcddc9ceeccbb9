"""Results that stay on the device, in LoDTensors."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from runtime.device import CPUPlace  # noqa: E402
from runtime.gpu.device_results import DeviceResult  # noqa: E402
from runtime.tensors.lod_tensor import LoDTensor  # noqa: E402
from tests.runtime.gpu.fake_cuda import FakeCuda, Stream  # noqa: E402

VALUES = np.arange(6, dtype="f4").reshape(2, 3)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    created = FakeCuda("late")
    created.patch(monkeypatch)
    with created:
        yield created


@pytest.fixture
def arena(device: FakeCuda) -> Any:
    """Memory of a step: its values are written late, and overwritten after the result was kept."""
    tensor = torch.empty(2, 3, device="cuda:0")
    tensor.copy_(torch.from_numpy(VALUES.copy()))
    return tensor


def test_a_result_is_read_when_it_is_needed(device: FakeCuda, arena: Any) -> None:
    result = LoDTensor(DeviceResult(arena, "cuda:0"))
    arena.fill_(-1)
    forced = device.forced
    assert result.shape() == [2, 3] and result.is_initialized() and result.offsets() == ()
    assert device.forced == forced
    assert np.array_equal(np.array(result), VALUES) and device.forced > forced
    assert result[0].shape() == [1, 3]


def test_another_stream_reads_a_result_after_it_was_written(device: FakeCuda, arena: Any) -> None:
    result = DeviceResult(arena, "cuda:0")
    with device.entered(Stream(device)):
        assert np.array_equal(result.array(), VALUES)
    assert np.array_equal(copy.deepcopy(result).array(), VALUES)


@pytest.mark.parametrize("is_read", [False, True])
def test_others_share_the_tensor_on_the_device(
    device: FakeCuda, arena: Any, is_read: bool, monkeypatch: Any
) -> None:
    result = DeviceResult(arena, "cuda:0")
    tensor = LoDTensor(result)
    if is_read:
        np.array(tensor)
    monkeypatch.setattr(torch.Tensor, "__dlpack__", lambda shared, **options: (shared, options))
    shared, options = tensor.__dlpack__(stream=1)
    assert shared is result.tensor and options == {"stream": 1}
    for number in (7, 8):
        shared.fill_(number)
        assert (np.array(tensor) == number).all()
    tensor.set(VALUES, CPUPlace())
    assert np.array_equal(np.array(tensor), VALUES)


def test_what_the_host_writes_is_no_longer_on_the_device(device: FakeCuda, arena: Any) -> None:
    for write in (
        lambda tensor: tensor.set(VALUES + 1, CPUPlace()),
        lambda tensor: tensor.array.__setitem__(..., VALUES + 1),
    ):
        tensor = LoDTensor(DeviceResult(arena, "cuda:0"))
        write(tensor)
        assert not hasattr(tensor, "__cuda_array_interface__")
        assert np.array_equal(np.from_dlpack(tensor), VALUES + 1)


def test_tensors_of_the_host_are_shared_too() -> None:
    tensor = LoDTensor(VALUES.copy())
    torch.from_dlpack(tensor)[0, 0] = 5
    assert np.array(tensor)[0, 0] == 5
    assert not hasattr(tensor, "__cuda_array_interface__")
