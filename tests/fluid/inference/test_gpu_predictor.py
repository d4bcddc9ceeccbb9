"""Predictors on a GPU, whose kernels run in Triton's interpreter here."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.cli.main import main
from fluid.core import AnalysisConfig, create_paddle_predictor
from runtime.errors import PlaceError

pytest.importorskip("triton")
pytest.importorskip("torch")

GPU = fluid.CUDAPlace(0)
IMAGES = np.random.RandomState(0).rand(5, 3, 8, 8).astype("float32")


def save(folder: Path, build: Callable[[], tuple[list[str], Any]]) -> str:
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        feeds, out = build()
    executor = fluid.Executor()
    with fluid.scope_guard(fluid.Scope()):
        executor.run(startup)
        fluid.io.save_inference_model(str(folder), feeds, [out], executor, main)
    return str(folder)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A residual network; small, since Triton's interpreter is slow."""

    def normalised(x: Any, act: str | None) -> Any:
        y = fluid.layers.conv2d(x, 4, 3, padding=1, bias_attr=False)
        return fluid.layers.batch_norm(y, act=act, is_test=True)

    def build() -> tuple[list[str], Any]:
        first = normalised(fluid.layers.data("img", [3, 8, 8]), "relu")
        second = normalised(normalised(first, "relu"), None)
        y = fluid.layers.elementwise_add(first, second, act="relu")
        pooled = fluid.layers.pool2d(y, pool_type="avg", global_pooling=True)
        return ["img"], fluid.layers.fc(pooled, 10, act="softmax")

    return save(tmp_path_factory.mktemp("images"), build)


def answers(predictor: Any, counts: list[int]) -> list[np.ndarray]:
    return [predictor.run({"img": IMAGES[:n]})[0] for n in counts]


@pytest.mark.device
@pytest.mark.parametrize(("dtype", "atol"), [(None, 1e-5), ("bf16", 2e-2)])
def test_numbers_are_those_of_the_cpu_for_every_batch(images: str, dtype: str, atol: float) -> None:
    counts = [3, 1, 3, 3, 5, 1]
    gpu = fluid.create_predictor(images, dtype=dtype, place=GPU)
    for found, want in zip(
        answers(gpu, counts), answers(fluid.create_predictor(images), counts), strict=True
    ):
        np.testing.assert_allclose(found, want, atol=atol)
    assert gpu.compiles == 1


@pytest.mark.device
def test_threads_share_it(images: str) -> None:
    gpu, counts = fluid.create_predictor(images, place=GPU), [1, 2, 3, 2, 1]
    with ThreadPoolExecutor(3) as pool:
        result = list(pool.map(lambda n: answers(gpu, [n])[0], counts))
    for mine, want in zip(result, answers(gpu, counts), strict=True):
        np.testing.assert_array_equal(mine, want)
    assert gpu.compiles == 1


@pytest.mark.device
def test_sequences_keep_their_offsets(tmp_path: Path) -> None:
    def build() -> tuple[list[str], Any]:
        words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
        vectors = fluid.layers.embedding(words, [20, 6])
        return ["words"], fluid.layers.sequence_softmax(fluid.layers.fc(vectors, 1))

    folder = save(tmp_path, build)
    ids = np.arange(6, dtype=np.int64)[:, None]
    feed = {"words": fluid.create_lod_tensor(ids, [[4, 2]], fluid.CPUPlace())}
    (result,), (want,) = (
        fluid.create_predictor(folder, place=place).run(feed) for place in (GPU, None)
    )
    np.testing.assert_allclose(np.array(result), np.array(want), atol=1e-6)
    assert result.lod() == want.lod() == [[0, 4, 6]]


@pytest.mark.device
def test_analysis_config_chooses_it(images: str) -> None:
    config = AnalysisConfig(images)
    config.enable_use_gpu(100, 0)
    assert (config.use_gpu(), config.gpu_device_id()) == (True, 0)
    gpu, results = create_paddle_predictor(config), []
    config.disable_gpu()
    assert not config.use_gpu()
    for predictor in (gpu, create_paddle_predictor(config)):
        predictor.get_input_tensor("img").copy_from_cpu(IMAGES[:2])
        predictor.zero_copy_run()
        name = predictor.get_output_names()[0]
        results.append(predictor.get_output_tensor(name).copy_to_cpu())
    np.testing.assert_allclose(*results, atol=1e-5)


@pytest.mark.device
def test_fluid_infer_runs_on_it(images: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", IMAGES[:2])
    inputs = ["infer", images, "--input", str(tmp_path / "x.npy"), "--target"]
    assert main([*inputs, "native", "--output", str(tmp_path / "cpu.npz")]) == 0
    assert main([*inputs, "cuda", "--check", str(tmp_path / "cpu.npz")]) == 0


def test_without_a_gpu_it_says_so(images: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRITON_INTERPRET", "FLUID_GPU"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(PlaceError, match=r"CUDAPlace\(0\) cannot be used"):
        fluid.create_predictor(images, place=GPU)
    config = AnalysisConfig(images)
    with pytest.warns(UserWarning, match="^enable_use_gpu: .* the model runs on the CPU"):
        config.enable_use_gpu(100, 0)
    assert not config.use_gpu()
