"""One predictor that many threads run with mixed sizes on a GPU, whose steps are captured.

On a machine with a GPU the same is done by 16 threads; elsewhere a fake device breaks as torch does.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.inference.predictor import Predictor

pytest.importorskip("triton")
torch = pytest.importorskip("torch")

from runtime.gpu import copies, staging  # noqa: E402
from runtime.gpu.drivers import Driver  # noqa: E402
from runtime.loader import load  # noqa: E402
from tests.runtime.gpu.fake_cuda import FakeCuda, QueuedLibrary  # noqa: E402

SIZES = (1, 2, 3, 5, 8, 13, 21)
X = np.random.RandomState(0).rand(SIZES[-1], 9).astype("f4")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, main, startup = tmp_path_factory.mktemp("model"), fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 9])
        hidden = x
        for _ in range(3):
            hidden = fluid.layers.fc(hidden, 6, act="relu")
        y = fluid.layers.fc(hidden, 4)
    executor = fluid.Executor()
    with fluid.scope_guard(fluid.Scope()):
        executor.run(startup)
        fluid.io.save_inference_model(str(folder), ["x"], [y], executor, main)
    return folder


@pytest.fixture(scope="module")
def wanted(model: Path) -> list[np.ndarray]:
    (result,) = fluid.create_predictor(model).run({"x": X})
    return [result[:size] for size in SIZES]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """A fake device with Triton's kernels, and few bindings at once."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(copies, "LARGE", 64)
    monkeypatch.setattr(staging, "SMALLEST", 1024)
    created = FakeCuda("late")
    created.patch(monkeypatch)
    library = QueuedLibrary(created)
    for module in ("runtime.gpu.package", "fluid.running.kernels_ahead"):
        monkeypatch.setattr(f"{module}.driver_of", lambda *_: Driver("cuda", 0, library))
    begin = created.graph.capture_begin

    def begins(graph: Any, mode: str = "global", **named: str) -> None:
        begin(graph, *named.values() or (mode,))
        sleep(0.01)  # lets others run during the capture

    monkeypatch.setattr(created.graph, "capture_begin", begins)
    with created:
        yield created


def serve(
    predictor: Predictor, threads: int, runs: int, sizes: int, wanted: list[np.ndarray],
    entered: Callable[[], AbstractContextManager[object]], release: int = 0,
) -> int:  # fmt: skip
    """Run mixed sizes in threads and compare; return the number of runs that were right.

    Every `release` runs a thread frees the idle lanes. Raises the first error of a run.
    """

    def go(thread: int) -> int:
        right = 0
        with entered():
            for run in range(runs):
                kind = (3 * thread + 5 * run) % sizes
                (actual,) = predictor.run({"x": X[: SIZES[kind]]})
                right += np.allclose(actual, wanted[kind], rtol=1e-3, atol=1e-5)
                if release and run % release == release - 1:
                    predictor.release()
        return right

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(go, range(threads)))


@pytest.mark.slow
def test_threads_of_a_predictor_capture_at_once(
    device: FakeCuda, model: Path, wanted: list[np.ndarray]
) -> None:
    predictor = fluid.create_predictor(model, place=fluid.CUDAPlace(0))
    assert serve(predictor, 3, 6, 2, wanted, lambda: device) == 18
    assert device.replays > 4
    assert not device.aborts


@pytest.mark.slow
def test_lanes_and_bindings_are_dropped_while_others_run(
    device: FakeCuda, model: Path, wanted: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes are evicted, idle lanes released, and a predictor is dropped by a thread that runs."""
    monkeypatch.setattr("runtime.executor.load", partial(load, keep=1))
    predictors = [fluid.create_predictor(model, place=fluid.CUDAPlace(0)) for _ in range(2)]
    first = predictors.pop()
    serve(first, 1, 4, 1, wanted, lambda: device)
    del first
    assert serve(predictors.pop(), 3, 6, 2, wanted, lambda: device, release=3) == 18
    assert not device.aborts


@pytest.mark.gpu
@pytest.mark.parametrize("own_streams", [False, True], ids=["one stream", "streams"])
@pytest.mark.parametrize("release", [0, 20], ids=["kept", "released"])
def test_16_threads_run_60_times(
    model: Path, wanted: list[np.ndarray], own_streams: bool, release: int
) -> None:
    def entered() -> AbstractContextManager[Any]:
        return torch.cuda.stream(torch.cuda.Stream()) if own_streams else nullcontext()

    predictor = fluid.create_predictor(model, place=fluid.CUDAPlace(0))
    assert serve(predictor, 16, 60, len(SIZES), wanted, entered, release) == 16 * 60
