"""`fluid.create_predictor`: the numbers of an Executor, from any number of threads at once."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.codegen.native.host import detected
from compiler.errors import ShapeError
from compiler.support.shared_arrays import SharedArrays
from runtime.errors import FeedError

GOLDEN = Path(__file__).parents[2] / "golden" / "inference"
CASES = sorted(path.name.removesuffix("__io.npz") for path in GOLDEN.glob("*__io.npz"))
COMBINED = {"model_filename": "model", "params_filename": "params"}
THREADS, RUNS = 4, 12


def recorded(case: str) -> tuple[dict[str, Any], np.ndarray]:
    """The feeds and the output of the reference."""
    with np.load(GOLDEN / f"{case}__io.npz") as result:
        feeds: dict[str, Any] = {n[3:]: result[n] for n in result.files if n.startswith("in.")}
        for name in (name for name in feeds if f"lod:in.{name}" in result.files):
            lengths = [result[f"lod:in.{name}"].tolist()]
            feeds[name] = fluid.create_lod_tensor(feeds[name], lengths, fluid.CPUPlace())
        return feeds, result["out"]


def predictor(case: str, **more: Any) -> fluid.Predictor:
    return fluid.create_predictor(GOLDEN / f"{case}__separate", **more)


def sequences(lengths: list[int], seed: int) -> fluid.LoDTensor:
    ids = np.random.RandomState(seed).randint(0, 30, (sum(lengths), 1))
    return fluid.create_lod_tensor(ids, [lengths], fluid.CPUPlace())


def batch(case: str, size: int) -> dict[str, Any]:
    """A feed of the recorded kind with another number of samples."""
    feeds, _ = recorded(case)
    if any(isinstance(value, fluid.LoDTensor) for value in feeds.values()):
        lengths = np.random.RandomState(size).randint(1, 9, size).tolist()
        return dict.fromkeys(feeds, sequences(lengths, size))
    return {name: np.resize(value, (size, *value.shape[1:])) for name, value in feeds.items()}


def same(a: Any, b: Any) -> bool:
    """Whether two results agree in every bit, and in their sequences."""
    lods = [value.lod() if isinstance(value, fluid.LoDTensor) else [] for value in (a, b)]
    return lods[0] == lods[1] and np.array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize(
    ("case", "layout"),
    [
        *((case, "separate") for case in CASES),
        ("lenet_bn", "combined"),
        ("while_power", "combined"),
    ],
)
def test_results_are_those_of_the_reference(case: str, layout: str):
    names = COMBINED if layout == "combined" else {}
    model = fluid.create_predictor(GOLDEN / f"{case}__{layout}", **names)
    feed, expected = recorded(case)
    assert sorted(model.feed_names) == sorted(feed)
    (actual,) = model.run(feed)[:1]
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-5, atol=1e-5)


def test_feeds_may_come_in_order():
    model = predictor("lenet_bn")
    feed, expected = recorded("lenet_bn")
    (actual,) = model.run([feed[name] for name in model.feed_names])
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_a_model_may_come_as_bytes():
    folder = GOLDEN / "fit_a_line__combined"
    files = [(folder / name).read_bytes() for name in ("model", "params")]
    feed, expected = recorded("fit_a_line")
    (actual,) = fluid.create_predictor(None, *files).run(feed)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_results_that_are_sequences_report_it():
    (result,) = predictor("tagger_gru_crf").run({"words": sequences([2, 3], 0)})
    assert isinstance(result, fluid.LoDTensor)
    assert result.lod() == [[0, 2, 5]]


# ---- threads ----


def hammered(model: fluid.Predictor, feeds: list[Any]) -> list[Any]:
    """The first result for each feed, each of THREADS threads beginning at another one."""
    started = Barrier(THREADS)

    def work(first: int) -> list[tuple[int, Any]]:
        started.wait(timeout=20)
        order = [(first + run) % len(feeds) for run in range(RUNS)]
        return [(index, model.run(feeds[index])[0]) for index in order]

    with ThreadPoolExecutor(THREADS) as pool:
        return [pair for found in pool.map(work, range(THREADS)) for pair in found]


@pytest.mark.parametrize(
    "case",
    ["ctr_wide_deep", "sentiment_stacked_lstm", "tagger_gru_crf", "while_power"],
)
def test_threads_with_other_batch_sizes_get_the_numbers_they_get_alone(case: str):
    feeds = [batch(case, size) for size in (1, 2, 3, 5, 8, 13)]
    alone = predictor(case)
    expected = [alone.run(feed)[0] for feed in feeds]
    model = predictor(case)
    actual = hammered(model, feeds)
    assert len(actual) == THREADS * RUNS
    assert all(same(result, expected[index]) for index, result in actual)
    assert model.compiles == alone.compiles
    assert 1 <= len(model.memory().lanes) <= THREADS


def test_threads_share_parameters_and_have_arenas_of_their_own():
    alone = predictor("resnet_cifar8")
    feed = batch("resnet_cifar8", 8)
    alone.run(feed)
    model = predictor("resnet_cifar8")
    hammered(model, [feed])
    (largest, *_), lanes = alone.memory().lanes, model.memory().lanes
    assert set(lanes) == {largest}
    assert model.memory().parameters == alone.memory().parameters


def test_threads_that_take_turns_use_one_arena():
    model, feed = predictor("digits_mlp"), recorded("digits_mlp")[0]
    for _ in range(THREADS):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(model.run, feed).result()
    assert len(model.memory().lanes) == 1


def test_as_many_runs_at_once_as_asked_for():
    model = predictor("resnet_cifar8", at_once=1)
    hammered(model, [batch("resnet_cifar8", 2)])
    assert len(model.memory().lanes) == 1


def test_predictor_frees_memory():
    model, feed = predictor("resnet_cifar8"), recorded("resnet_cifar8")[0]
    (before,) = model.run(feed)
    model.release()
    assert model.memory().lanes == ()
    assert same(model.run(feed)[0], before)
    assert model.compiles == 1


def counting_model(folder: Path) -> None:
    """A model that counts what it has seen."""
    x = fluid.data("x", [None, 1], "float32")
    count = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="count")
    seen = fluid.layers.elementwise_add(count, fluid.layers.reduce_sum(x, keep_dim=False))
    fluid.layers.assign(seen, count)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(folder, ["x"], [count], exe)


@pytest.mark.usefixtures("fresh_programs")
def test_a_model_that_changes_state_has_its_runs_one_by_one(tmp_path: Path):
    counting_model(tmp_path)
    model = fluid.create_predictor(tmp_path)
    actual = hammered(model, [{"x": np.ones((1, 1), "float32")}])
    assert sorted(result.item() for _, result in actual) == list(range(1, THREADS * RUNS + 1))


def test_loading_leaves_the_global_scope_alone():
    before = fluid.global_scope().names()
    with ThreadPoolExecutor(THREADS) as pool:
        models = list(pool.map(predictor, ["fit_a_line"] * THREADS))
    assert fluid.global_scope().names() == before
    feed, expected = recorded("fit_a_line")
    assert all(np.allclose(model.run(feed)[0], expected) for model in models)


def test_threads_may_each_load_and_compile_a_model():
    cases = ["lenet_bn", "sentiment_conv", "while_power", "mobilenet_block"]
    started = Barrier(len(cases))

    def work(case: str) -> bool:
        started.wait(timeout=20)
        feed, expected = recorded(case)
        actual = predictor(case).run(feed)[0]
        return np.allclose(np.asarray(actual), expected, rtol=1e-5, atol=1e-5)

    with ThreadPoolExecutor(len(cases)) as pool:
        assert all(pool.map(work, cases))


def test_times_of_threads_are_taken(capsys: pytest.CaptureFixture[str]):
    model, feed = predictor("resnet_cifar8"), batch("resnet_cifar8", 2)
    expected = model.run(feed)[0]
    with fluid.profiler.profiler("CPU"):
        actual = hammered(model, [feed])
        assert min(model.memory().lanes) > 0
    assert all(same(result, expected) for _, result in actual)
    shown = capsys.readouterr().out
    line = next(line for line in shown.splitlines() if "::softmax" in line)
    assert f" {THREADS * RUNS} " in line


# ---- who owns what ----


def test_results_are_the_callers():
    model, feed = predictor("digits_mlp"), recorded("digits_mlp")[0]
    (first,) = model.run(feed)
    kept = first.copy()
    (second,) = model.run({name: np.zeros_like(value) for name, value in feed.items()})
    np.testing.assert_array_equal(first, kept)
    second[...] = first[...] = -1.0
    np.testing.assert_array_equal(model.run(feed)[0], kept)


@pytest.mark.usefixtures("fresh_programs")
def test_a_parameter_that_is_fetched_is_a_copy(tmp_path: Path):
    x = fluid.data("x", [None, 2], "float32")
    out = fluid.layers.fc(x, 3, param_attr="w")
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    weights = fluid.default_main_program().global_block().var("w")
    fluid.io.save_inference_model(tmp_path, ["x"], [out, weights], exe)
    model, feed = fluid.create_predictor(tmp_path), {"x": np.ones((1, 2), "float32")}
    before, fetched = model.run(feed)
    fetched[...] = 0.0
    np.testing.assert_array_equal(model.run(feed)[0], before)


# ---- what is refused ----


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda f: {"img": f["img"]}, FeedError, "missing feed: 'label'"),
        (lambda f: {**f, "imgs": f["img"]}, FeedError, "no feed 'imgs'\n  hint: did you mean"),
        (lambda f: [f["img"]], FeedError, r"is fed 2 \(img, label\), not 1"),
        (lambda f: f["img"], TypeError, "not ndarray"),
        (lambda f: {**f, "img": f["img"].astype("float64")}, FeedError, "must be float32"),
        (lambda f: {**f, "img": f["img"][:, :, 1:]}, ShapeError, "feed 'img' must have the shape"),
    ],
)
def test_feeds_that_are_rejected(change: Callable[..., Any], kind: type[Exception], message: str):
    model, (feed, expected) = predictor("lenet_bn"), recorded("lenet_bn")
    with pytest.raises(kind, match=message):
        model.run(change(feed))
    np.testing.assert_allclose(model.run(feed)[0], expected, rtol=1e-5, atol=1e-5)


def test_sequences_without_a_lod():
    with pytest.raises(ValueError, match="LoD"):
        predictor("tagger_gru_crf").run({"words": np.zeros((4, 1), "int64")})


def test_predictor_load_errors(tmp_path: Path):
    with pytest.raises(ValueError, match="no directory"):
        fluid.create_predictor(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="no saved program"):
        fluid.create_predictor(tmp_path)
    with pytest.raises(ValueError, match="at_once is how many"):
        predictor("fit_a_line", at_once=0)


def test_a_predictor_in_two_bytes_holds_half_the_parameters() -> None:
    sizes = []
    for dtype in ("fp32", "bf16", "fp16"):
        model = predictor("resnet_cifar8", dtype=dtype)
        model.run(recorded("resnet_cifar8")[0])
        sizes.append(model.memory().parameters)
    assert sizes[1] == sizes[2] != sizes[0]
    with pytest.raises(ValueError, match="dtype is 'int4'"):
        predictor("resnet_cifar8", dtype="int4")


SCRIPT = """
import sys
import numpy as np
import fluid

predictor = fluid.create_predictor(sys.argv[1])
with np.load(sys.argv[2]) as recorded:
    feeds = {name: recorded["in." + name] for name in predictor.feed_names}
print(predictor.run(feeds)[0].tobytes().hex())
print("compiler.ops" in sys.modules, "networkx" in sys.modules)
"""


def test_the_next_process_compiles_nothing_for_equal_weights(tmp_path: Path) -> None:
    """What batch norms were folded into comes from disk, for the weights it was computed of."""
    model = tmp_path / "model"
    shutil.copytree(GOLDEN / "lenet_bn__separate", model)
    environment = {**os.environ, "FLUID_CACHE": str(tmp_path / "cache")}

    def run(**changed: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(model), str(GOLDEN / "lenet_bn__io.npz")],
            env=environment | changed, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.splitlines()

    results, loaded = run()
    assert loaded == "True True"
    assert run() == [results, "False False"]
    place = max(model.glob("batch_norm_*.b_0"))
    place.write_bytes(place.read_bytes()[:-4] + np.float32(0.75).tobytes())
    others, loaded = run()
    assert loaded == "True True"
    assert others != results
    assert run() == [others, "False False"]
    assert run(FLUID_CACHE_SIZE="0") == [others, "True True"]


@pytest.mark.skipif(detected() is None, reason="no native code here")
def test_folded_weights_are_stored_as_they_were_packed_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If they are to be packed in another way, they are computed again."""
    monkeypatch.setenv("FLUID_CACHE", str(tmp_path))
    monkeypatch.setenv("FLUID_TARGET", "native")
    feeds, _ = recorded("resnet_cifar8")
    expected = predictor("resnet_cifar8").run(feeds)[0]
    for writer in [each for each in threading.enumerate() if each.name == "fluid-store"]:
        writer.join()
    size_by_path = {path.name: path.stat().st_size for path in tmp_path.glob("modules/*.arrays")}
    packed = sum(size for name, size in size_by_path.items() if ".prepared" in name)
    weights = sum(size_by_path.values()) - packed
    assert weights < packed / 10
    assert predictor("resnet_cifar8").run(feeds)[0].tobytes() == expected.tobytes()
    monkeypatch.setattr(SharedArrays, "find", lambda self, made: None)
    assert predictor("resnet_cifar8").run(feeds)[0].tobytes() == expected.tobytes()
