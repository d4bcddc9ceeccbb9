"""Flags, places, versions, dygraph: what scripts ask before they begin."""

import os
from typing import Any

import pytest

import fluid
from fluid import core
from fluid.compat.installed import VersionError
from fluid.running.flags import from_env


def test_flags_are_set() -> None:
    name = "FLAGS_eager_delete_tensor_gb"
    assert fluid.get_flags(name) == {name: 0.0}
    fluid.set_flags({name: 1, "FLAGS_benchmark": True})
    try:
        assert fluid.get_flags([name, "FLAGS_benchmark"]) == {name: 1.0, "FLAGS_benchmark": True}
    finally:
        fluid.set_flags({name: 0.0, "FLAGS_benchmark": False})


@pytest.mark.parametrize(
    ("flags", "error", "message"),
    [
        ({"FLAGS_none": 1}, ValueError, "Flag FLAGS_none cannot set its value"),
        ({"FLAGS_benchmark": "yes"}, TypeError, "takes a value of type bool, but received 'yes'"),
        ({"FLAGS_paddle_num_threads": 1.5}, TypeError, "takes a value of type int"),
        ({"FLAGS_allocator_strategy": 1}, TypeError, "takes a value of type str"),
        ([("FLAGS_benchmark", 1)], TypeError, "must be Mapping, but received list"),
    ],
)
def test_flags_that_are_rejected(flags: Any, error: type[Exception], message: str) -> None:
    before = fluid.get_flags(["FLAGS_benchmark", "FLAGS_paddle_num_threads"])
    if isinstance(flags, dict):
        flags = {"FLAGS_paddle_num_threads": 9, **flags}
    with pytest.raises(error, match=message):
        fluid.set_flags(flags)
    assert fluid.get_flags(list(before)) == before


def test_flag_errors() -> None:
    with pytest.raises(ValueError, match=r"FLAGS_benchmarks cannot get its value.*did you mean"):
        fluid.get_flags("FLAGS_benchmarks")
    with pytest.raises(TypeError, match="must be str or list or tuple, but received int 3"):
        fluid.get_flags(3)


def test_flags_of_the_environment() -> None:
    said = {"FLAGS_check_nan_inf": "1", "FLAGS_paddle_num_threads": "3", "FLAGS_unknown": "x"}
    read = from_env(said)
    assert (read["FLAGS_check_nan_inf"], read["FLAGS_paddle_num_threads"]) == (True, 3)
    with pytest.raises(ValueError, match="FLAGS_benchmark is 'maybe', expected 0 or 1"):
        from_env({"FLAGS_benchmark": "maybe"})


@pytest.mark.parametrize(("value", "flag"), [(2, True), (0.0, False), (None, False)])
def test_flags_that_are_bools_take_numbers(value: Any, flag: bool) -> None:
    fluid.set_flags({"FLAGS_benchmark": value})
    assert fluid.get_flags("FLAGS_benchmark") == {"FLAGS_benchmark": flag}
    fluid.set_flags({"FLAGS_benchmark": False})


# ---- places


def test_as_many_cpu_places_as_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CPU_NUM", "")
    del os.environ["CPU_NUM"]
    assert fluid.cpu_places() == [fluid.CPUPlace()]
    assert os.environ["CPU_NUM"] == "1" and "CPU_NUM is not set" in capsys.readouterr().err
    monkeypatch.setenv("CPU_NUM", "3")
    assert (len(fluid.cpu_places()), len(fluid.cpu_places(2))) == (3, 2)
    for wrong in ("0", "many", "-1"):
        monkeypatch.setenv("CPU_NUM", wrong)
        with pytest.raises(
            ValueError, match=f"CPU_NUM is '{wrong}', expected a whole number from 1"
        ):
            fluid.cpu_places()


def test_gpus_that_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert fluid.cuda_places() == [fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    monkeypatch.setenv("FLAGS_selected_gpus", "2")
    assert fluid.cuda_places() == [fluid.CUDAPlace(2)]
    assert fluid.cuda_places([0, 1])[1] == fluid.CUDAPlace(1)
    monkeypatch.setenv("FLAGS_selected_gpus", "one")
    with pytest.raises(ValueError, match="FLAGS_selected_gpus is 'one'"):
        fluid.cuda_places()


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr("fluid.running.places.gpu_count", lambda: 0)
    assert not fluid.is_compiled_with_cuda()
    assert core.get_cuda_device_count() == 0
    for places in (fluid.cuda_places, fluid.cuda_pinned_places):
        with pytest.raises(AssertionError, match="Not compiled with CUDA"):
            places()


def test_core_has_names_that_scripts_import() -> None:
    assert core.CPUPlace() == fluid.CPUPlace()
    assert (core.LoDTensor, core.LoDTensorArray) == (fluid.LoDTensor, fluid.LoDTensorArray)
    assert fluid.Tensor is fluid.LoDTensor
    assert not issubclass(core.EOFException, core.EnforceNotMet)


def test_a_tensor_array_holds_tensors() -> None:
    array = fluid.LoDTensorArray()
    array.append(fluid.LoDTensor())
    with pytest.raises(TypeError, match="holds LoDTensors, not list"):
        array.append([1.0])
    assert len(array) == 1


# ---- versions and dygraph


def test_versions_that_are_met() -> None:
    for wanted in [("0.1",), ("1.8.5",), ("1.8.5.0", "1.8.5"), ("1", "10.0.0")]:
        fluid.require_version(*wanted)


@pytest.mark.parametrize(
    ("wanted", "error", "message"),
    [
        (("1.8.6",), VersionError, "of 1.8.6 or higher is required, but this is 1.8.5"),
        (("1.6", "1.8.4"), VersionError, "from 1.6 to 1.8.4 is required"),
        (("1.x",), ValueError, "'min_version' in require_version must be in format"),
        (("1.6", "2.0.0.0.0"), ValueError, "'max_version' in require_version must be in format"),
        ((1.8,), TypeError, "'min_version' in require_version must be str, but received float"),
        (("1.6", 2), TypeError, "'max_version' in require_version must be str or NoneType"),
    ],
)
def test_versions_that_are_not(wanted: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fluid.require_version(*wanted)


def test_eager_mode_is_switched() -> None:
    fluid.disable_dygraph()
    before = fluid.in_dygraph_mode()
    fluid.enable_imperative()
    within = fluid.in_dygraph_mode()
    fluid.disable_dygraph()
    assert (before, within, fluid.in_dygraph_mode()) == (False, True, False)


def test_operators_of_a_library() -> None:
    with pytest.raises(RuntimeError, match=r"custom\.so: operators in C\+\+ cannot be loaded"):
        fluid.load_op_library("custom.so")
