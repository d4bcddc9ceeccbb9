"""A tensor whose elements another process holds: they are read once, and then are here again."""

import numpy as np

from runtime.device import CPUPlace
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Scope


def offloaded(values: np.ndarray, clock: object = None) -> tuple[LoDTensor, list[int]]:
    tensor, reads = LoDTensor(np.zeros(3), clock), []  # type: ignore[arg-type]

    def take() -> np.ndarray:
        reads.append(1)
        return values

    tensor.offload(take)
    return tensor, reads


def test_the_first_reader_gets_the_elements() -> None:
    tensor, reads = offloaded(np.arange(3.0))
    assert tensor.is_offloaded and tensor._is_initialized() and not reads
    assert np.array(tensor).tolist() == [0, 1, 2]
    assert tensor.shape() == [3] and tensor.array is tensor.peek()
    assert not tensor.is_offloaded and len(reads) == 1


def test_values_that_are_set_replace_the_borrowed_ones() -> None:
    tensor, reads = offloaded(np.arange(3.0))
    tensor.set(np.ones(3), CPUPlace())
    assert not tensor.is_offloaded and np.array(tensor).tolist() == [1, 1, 1] and not reads


def test_a_scope_s_arrays_are_other_objects_after_a_read() -> None:
    scope = Scope()
    scope.var("w").get_tensor().set(np.zeros(3), CPUPlace())
    scope.var("w").get_tensor().offload(lambda: np.ones(3))
    before = scope.generation
    assert scope.arrays()["w"].tolist() == [1, 1, 1] and scope.generation > before
