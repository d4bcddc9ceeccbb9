"""What every test may ask for: golden updates, a GPU or a reason without one, a clean fluid."""

import gc
import importlib
import importlib.util
import os
import shutil
import signal
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from tests.support.interpreter import shorten

# Without a GPU, kernels run in Triton's interpreter, which asks when triton is imported. A machine
# with a GPU may lack nvidia-smi, but its driver makes a device file (/dev/dxg under WSL).
DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
if shutil.which("nvidia-smi") is None and not any(map(os.path.exists, DRIVER_FILES)):
    os.environ.setdefault("TRITON_INTERPRET", "1")

# A test that fails shows every frame.
os.environ.setdefault("FLUID_TRACEBACK", "full")

# The same examples in every run, and no deadline: machines that test are shared and slow.
settings.register_profile("project", derandomize=True, deadline=None)
settings.load_profile("project")


# A shell that starts tests in the background lets them ignore Ctrl-C, and with them the programs
# that tests start to see what Ctrl-C does.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# For processes that tests start, not for this one: collecting its modules would run them.
collect_ignore = ["another_system"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update`, which writes the second half of golden files anew."""
    parser.addoption("--update", action="store_true", help="write golden files from what is seen")


LONG = (
    "test_bench_smoke.py::test_kernels_are_built_beside_triton_alone",
    "test_bench_smoke.py::test_steps_beside_torch",
    "test_cpu.py::test_a_step_is_timed_beside_torch",
    "test_heterogeneous.py::test_processes_under_launch_ps_equal_one_process",
    "test_nets.py::test_a_model_predicts_and_learns[mobilenet_v2]",
    "test_nets.py::test_a_model_predicts_and_learns[resnet50]",
    "test_nets.py::test_a_model_predicts_and_learns[se_resnext50]",
    "test_views.py::test_training_has_the_same_bits_in_less_memory[densenet121]",
    "test_views.py::test_training_has_the_same_bits_in_less_memory[inception_v1]",
    "test_recorded.py::test_on_a_device[conv2d__wide__0]",
    "test_inference_transpiler.py::test_networks_of_papers[se_resnext50]",
    "test_fusion.py::test_models_of_papers[se_resnext50]",
    "test_reductions.py::test_statistics_keep_their_digits_where_means_are_large[67-8500-group]",
    "test_convolutions.py::test_long_sums_are_cut_into_parts_and_joined[1-NHWC]",
    "test_random_models.py::test_every_way_computes_the_same[0]",
    "test_recorded_training.py::test_training_on_a_device_equals_the_reference_s[lenet_bn__adam",
    "test_recorded_training.py::test_training_on_a_device_equals_the_reference_s[resnet_cifar8",
    "test_recorded_training.py::test_training_on_a_device_equals_the_reference_s[mobilenet_block",
    "test_recorded_training.py::test_training_on_a_device_equals_the_reference_s[tagger_gru_crf",
    "test_mixed_precision.py::test_losses_are_nearly_those_of_float32[lenet-CUDAPlace(0)",
    "test_package.py::test_models_equal_the_recorded_reference[sentiment_conv]",
    "test_random_programs.py::test_what_is_compiled_is_the_same",
    "test_fusion.py::test_models_of_papers[densenet121]",
    "test_fusion.py::test_models_of_papers[inception_v1]",
    "test_fusion.py::test_models_of_papers[mobilenet_v2]",
    "test_nets.py::test_a_model_predicts_and_learns[densenet121]",
    "test_memory_optimization_transpiler.py::test_what_is_compiled_of_a_network_is_the_same[se_resnext50]",
    "test_restarts.py::test_a_killed_rank_costs_an_epoch_at_most[1]",
    "test_launch.py::test_a_restarted_job_succeeds_and_keeps_the_logs_of_both_attempts",
    "test_launched_ranks.py::test_ranks_train_as_one[3-apart-jobs2]",
    "test_faults.py::test_fault_is_named[pool: SIGSTOP of a worker]",
    "test_faults.py::test_fault_is_named[pool: SIGINT of the caller]",
    "test_faults.py::test_fault_is_named[separate: two of a rank]",
    "test_faults.py::test_fault_is_named[separate: SIGKILL of rank 0 before]",
    "test_reductions.py::test_reduction_schedules_persistent_looped_split[67-33001-2]",
    "test_examples.py::test_example_learns[image_classification-vgg]",
    "test_examples.py::test_example_learns[image_classification-resnet",
    "test_examples.py::test_example_learns[label_semantic_roles",
    "test_examples.py::test_example_learns[machine_translation",
    "test_examples.py::test_example_learns[understand_sentiment-stacked_lstm",
    "test_programs.py::test_programs_made_and_dropped_leave_nothing_behind",
    "test_images_on_device.py::test_images_of_any_size_are_resized_to_any_other",
)
"""Tests that take several seconds, beside shorter ones of the same kind: `make slow` runs them. `make
test` has twenty minutes on two cores, those of installation and of slower machines included."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark long tests slow, and skip the tests marked gpu where there is no GPU.

    Torch is asked only if there are any.
    """
    for item in items:
        nodeid = item.nodeid
        if any(test in nodeid for test in LONG):
            item.add_marker(pytest.mark.slow)
    waiting = [item for item in items if item.get_closest_marker("gpu")]
    reason = missing_gpu() if waiting else None
    for item in waiting if reason else []:
        item.add_marker(pytest.mark.skip(reason=str(reason)))


def pytest_collection_finish() -> None:
    """Leave the tests themselves, of which there are many, out of garbage collections.

    Tests that imported Triton run its interpreter: it is shortened here, once it is imported.
    """
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") == "1":
        shorten(importlib.import_module("triton.runtime.interpreter"))
    gc.collect()
    gc.freeze()


def missing_gpu() -> str | None:
    """Return why GPU tests cannot run here, or None where they can."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    torch = importlib.import_module("torch")
    return None if torch.cuda.is_available() else "torch sees no CUDA GPU"


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep compiled kernels apart from those of the user; the processes of a run share them."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "kernels"
    folder.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLUID_CACHE", str(folder))
        yield


@pytest.fixture(scope="session", autouse=True)
def _without_waiting_for_disks() -> Iterator[None]:
    """Skip `os.fsync` in this process; tests of saves that are killed start their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True)
def _drawn_alike(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what a test draws without a seed be the same in every run of it.

    Programs without a seed still draw other numbers each time that they run.
    """
    number = zlib.crc32(request.node.nodeid.encode())
    np.random.seed(number)
    seeds, genuine = np.random.SeedSequence(number), np.random.default_rng

    def default_rng(seed: Any = None) -> np.random.Generator:
        return genuine(seeds.spawn(1)[0] if seed is None else seed)

    monkeypatch.setattr(np.random, "default_rng", default_rng)


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are written instead of compared."""
    return bool(request.config.getoption("--update"))


@pytest.fixture
def fresh_programs() -> Iterator[tuple[Any, Any]]:
    """Give (main, startup), both empty, with names that count from 0 and an empty scope."""
    fluid = importlib.import_module("fluid")
    main, startup = fluid.Program(), fluid.Program()
    with (
        fluid.program_guard(main, startup),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield main, startup


@pytest.fixture
def exe() -> Any:
    """Give an executor on the CPU."""
    fluid = importlib.import_module("fluid")
    return fluid.Executor(fluid.CPUPlace())
