"""Versions of tensors: every way in which elements may change is noticed, or they have no version."""

import numpy as np
import pytest

from runtime.device import CPUPlace
from runtime.tensors.contents import TensorWriter
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Scope

CPU = CPUPlace()


class Owner:
    """What a writer belongs to."""


def held(scope: Scope, name: str = "w", values: object = (1.0, 2.0)) -> LoDTensor:
    tensor = scope.var(name).get_tensor()
    tensor.set(np.array(values, "float32"), CPU)
    return tensor


@pytest.fixture
def scope() -> Scope:
    return Scope()


@pytest.fixture
def tensor(scope: Scope) -> LoDTensor:
    return held(scope)


def test_elements_that_are_only_read_keep_their_version(scope: Scope, tensor: LoDTensor) -> None:
    before, contents = tensor.version, scope.arrays().contents
    assert before is not None
    np.array(tensor)[0] = 9
    np.asarray(tensor)[0] = 9
    tensor.shape(), tensor.lod(), str(tensor), repr(tensor), tensor[0], tensor._copy(CPU)
    tensor._get_float_element(0)
    assert "w" in scope.arrays() and list(scope.arrays()) == ["w"] and len(scope.arrays()) == 1
    assert tensor.read()[0] == scope.arrays().tracked()["w"][0] == 1
    assert (tensor.version, scope.arrays().contents) == (before, contents)


WRITES = {
    "set": lambda tensor: tensor.set(np.zeros(2, "float32"), CPU),
    "set of another shape": lambda tensor: tensor.set(np.zeros(3, "float32"), CPU),
    "float element": lambda tensor: tensor._set_float_element(0, 3),
    "double element": lambda tensor: tensor._set_double_element(1, 3),
    "allocation": lambda tensor: tensor._alloc_float(CPU),
    "offloading": lambda tensor: (tensor.offload(lambda: np.ones(2, "float32")), tensor.read()),
}


@pytest.mark.parametrize("way", WRITES)
def test_a_write_gives_a_new_version(way: str, scope: Scope, tensor: LoDTensor) -> None:
    before, contents = tensor.version, scope.arrays().contents
    WRITES[way](tensor)
    assert tensor.version not in (before, None)
    assert scope.arrays().contents != contents


EXPOSURES = {
    "array": lambda tensor, scope: tensor.array,
    "array without a copy": lambda tensor, scope: np.array(tensor, copy=False),
    "arrays of the scope": lambda tensor, scope: scope.arrays()["w"],
    "get of the arrays": lambda tensor, scope: scope.arrays().get("w"),
    "items of the arrays": lambda tensor, scope: dict(scope.arrays()),
    "given array": lambda tensor, scope: scope.arrays().update(w=np.zeros(2, "float32")),
    "address": lambda tensor, scope: tensor._mutable_data(CPU, 5),
    "shared by another": lambda tensor, scope: LoDTensor()._share_data_with(tensor),
    "shares another": lambda tensor, scope: tensor._share_data_with(held(scope, "other")),
}


@pytest.mark.parametrize("way", EXPOSURES)
def test_elements_that_others_can_write_have_no_version(
    way: str, scope: Scope, tensor: LoDTensor
) -> None:
    contents = scope.arrays().contents
    EXPOSURES[way](tensor, scope)
    assert tensor.version is None
    assert scope.arrays().contents != contents
    tensor.set(np.zeros(tensor.shape(), "float32"), CPU)
    assert tensor.version is None, "the storage is the same"
    tensor.set(np.zeros(7, "float32"), CPU)
    assert tensor.version is not None, "the storage is new, and its own"


def test_tensors_that_share_memory_have_no_version(scope: Scope, tensor: LoDTensor) -> None:
    other = scope.var("other").get_tensor()
    other._share_data_with(tensor)
    assert tensor.version is other.version is None


def test_a_tensor_of_a_given_array_has_no_version() -> None:
    assert LoDTensor(np.zeros(2, "float32")).version is None


def test_steps_create_arrays_that_have_versions(scope: Scope) -> None:
    scope.arrays().tracked()["new"] = np.zeros(2, "float32")
    tensor = scope.arrays().tensor("new")
    assert tensor is not None and tensor.version is not None


def test_other_tensors_keep_their_version(scope: Scope, tensor: LoDTensor) -> None:
    before = tensor.version
    held(scope, "other").set(np.zeros(2, "float32"), CPU)
    scope.var("third")
    assert tensor.version == before


def test_a_kid_and_its_parent_notice_each_others_writes(scope: Scope, tensor: LoDTensor) -> None:
    kid = scope.new_scope()
    contents = kid.arrays().contents
    tensor.set(np.zeros(2, "float32"), CPU)
    assert kid.arrays().contents != contents
    contents = scope.arrays().contents
    held(kid, "own").set(np.zeros(2, "float32"), CPU)
    assert scope.arrays().contents != contents
    assert kid.arrays().tensor("w") is tensor


def test_a_writer_gives_its_tensors_a_new_version(scope: Scope, tensor: LoDTensor) -> None:
    owner, other = Owner(), held(scope, "other")
    writer = TensorWriter(scope.clock, owner)
    tensor.written_by(writer)
    versions, contents = (tensor.version, other.version), scope.arrays().contents
    writer.begin()
    assert tensor.version is None, "it may be written at any moment"
    assert scope.arrays().contents != contents
    contents = scope.arrays().contents
    writer.end()
    assert scope.arrays().contents != contents
    assert tensor.version not in (None, versions[0]) and other.version == versions[1]


def test_writers_that_are_gone_are_forgotten_but_not_their_writes(
    scope: Scope, tensor: LoDTensor
) -> None:
    seen = {tensor.version}
    for _ in range(20):
        owner = Owner()
        writer = TensorWriter(scope.clock, owner)
        tensor.written_by(writer)
        tensor.written_by(writer)
        writer.begin()
        writer.end()
        assert tensor.version not in (None, *seen)
        seen.add(tensor.version)
        del owner
    assert len(tensor._writers) == 1
