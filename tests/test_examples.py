"""Every example learns: its loss falls as much as its docstring states; `--data` reads data sets."""

import importlib.util
import random
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.cli.main import main
from fluid.compat.paddle.dataset import common
from tests.fluid.compat.paddle.dataset_files import make_all

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
LESSONS = [
    ("fit_a_line", None),
    ("recognize_digits", "mlp"),
    ("recognize_digits", "conv"),
    ("image_classification", "vgg"),
    ("image_classification", "resnet"),
    ("word2vec", None),
    ("recommender_system", None),
    ("understand_sentiment", "conv"),
    ("understand_sentiment", "stacked_lstm"),
    ("label_semantic_roles", None),
    ("machine_translation", None),
]


OLD_WAYS = ["inference_transpiler", "memory_optimize", "parallel_executor"]
"""Lessons of how scripts of that time do things; they need no data sets."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with tiny files of every data set."""
    folder = tmp_path_factory.mktemp("datasets")
    make_all(folder)
    return folder


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def losses_of(module: ModuleType, model: str | None, **settings: Any) -> list[float]:
    random.seed(0)
    fluid.default_startup_program().random_seed = 1
    fluid.default_main_program().random_seed = 1
    if model is not None:
        settings["model"] = getattr(module, model)
    return module.train(**settings)


@pytest.mark.parametrize(("name", "model"), LESSONS)
def test_example_learns(
    name: str, model: str | None, fresh_programs: object, capsys: pytest.CaptureFixture[str]
) -> None:
    module = loaded(name)
    losses = losses_of(module, model)
    assert len(losses) == module.STEPS
    assert np.mean(losses[-10:]) < losses[0] / module.FALLS
    if name == "machine_translation":
        translations_are_right(module, capsys.readouterr().out)


@pytest.mark.parametrize("name", OLD_WAYS)
def test_old_way_learns(name: str, fresh_programs: object) -> None:
    module = loaded(name)
    losses = losses_of(module, None)
    assert len(losses) == module.STEPS
    assert np.mean(losses[-10:]) < losses[0] / module.FALLS


def test_a_network_without_its_norms_answers_the_same(
    fresh_programs: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded("inference_transpiler").train(steps=3, save=str(tmp_path))
    before, after, moved = capsys.readouterr().out.splitlines()[-4:-1]
    assert "3 batch norms" in before and "0 batch norms" in after
    assert float(moved.split()[-1]) < 1e-5
    program, feeds, _ = fluid.io.load_inference_model(str(tmp_path), fluid.Executor())
    assert feeds == ["picture"]
    assert "batch_norm" not in [op.type for op in program.global_block().ops]


def test_rewritten_programs_have_the_same_losses(
    fresh_programs: object, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded("memory_optimize").train(steps=3)
    output = capsys.readouterr().out.splitlines()
    assert output[-1] == "the same losses"
    assert [line for line in output if "names" in line and "0 ops that drop" not in line]


def translations_are_right(module: ModuleType, printed: str) -> None:
    """Four of five sentences or more are translated without a fault."""
    shown = [line.split(" → ") for line in printed.splitlines() if "→" in line]
    names = dict(zip(module.WORDS, module.NAMES, strict=True))
    right = [" ".join(names[word] for word in reversed(asked.split())) for asked, _ in shown]
    assert len(shown) == 5
    assert sum(told == expected for (_, told), expected in zip(shown, right, strict=True)) >= 4


@pytest.mark.parametrize(("name", "model"), LESSONS)
def test_example_reads_data_sets_and_saves_a_model(
    name: str,
    model: str | None,
    home: Path,
    fresh_programs: object,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(common, "DATA_HOME", common.DATA_HOME)
    losses = losses_of(loaded(name), model, steps=3, folder=str(home), save=str(tmp_path))
    assert len(losses) == 3 and np.isfinite(losses).all()
    executor = fluid.Executor()
    program, feeds, (result,) = fluid.io.load_inference_model(str(tmp_path), executor)
    assert set(feeds) <= set(program.global_block().vars)
    assert result.name in program.global_block().vars


def test_a_saved_example_answers_the_command_line(
    fresh_programs: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    losses_of(loaded("fit_a_line"), None, save=str(tmp_path / "model"))
    capsys.readouterr()
    np.save(tmp_path / "houses.npy", np.zeros((2, 13), np.float32))
    inputs = [str(tmp_path / "model"), "--input", str(tmp_path / "houses.npy")]
    assert main(["infer", *inputs, "--output", str(tmp_path / "prices.npz")]) == 0
    with np.load(tmp_path / "prices.npz") as prices:
        (answers,) = (prices[name] for name in prices.files)
    np.testing.assert_allclose(answers, [[22.5], [22.5]], atol=0.1)


def test_an_interrupted_example_shows_what_it_has_learnt(
    fresh_programs: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed, calls = fluid.DataFeeder.feed, count()

    def interrupted(self: Any, rows: Any) -> Any:
        if next(calls) == 3:
            raise KeyboardInterrupt
        return feed(self, rows)

    monkeypatch.setattr(fluid.DataFeeder, "feed", interrupted)
    assert len(losses_of(loaded("fit_a_line"), None)) == 3
    assert capsys.readouterr().out.count("predicted") == 5


HELP = """
import runpy, sys
for path in sys.argv[1:]:
    sys.argv = [path, "--help"]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        assert end.code == 0
"""


def test_each_example_is_a_command_that_explains_itself() -> None:
    lessons = sorted({name for name, _ in LESSONS})
    paths = [str(EXAMPLES / f"{name}.py") for name in [*lessons, *OLD_WAYS]]
    environment = {"PYTHONPATH": str(EXAMPLES.parent), "PYTHONWARNINGS": "error"}
    command = [sys.executable, "-c", HELP, *paths]
    shown = subprocess.check_output(command, text=True, env=environment)
    assert shown.count("--steps STEPS") == 2 * len(paths)
    assert shown.count("--data FOLDER") == 2 * len(lessons)
    assert shown.count("--save FOLDER") == 2 * (len(lessons) + 1)


def test_reptile_learns_to_learn_unseen_classes(fresh_programs: object) -> None:
    reptile = loaded("reptile")
    before, after = reptile.learn(rounds=40)
    assert after > before + 0.05 and after > 1 / reptile.WAYS + 0.2
