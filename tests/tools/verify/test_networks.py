"""`tools/verify/networks.py` on tiny networks: they agree, and a wrong number is noticed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from tests.support.nets import full
from tools.verify import networks
from tools.verify.support import step_errors

Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The results of every side for the tiny wide & deep network."""
    runner = networks.Runner("wide_deep", tmp_path_factory.mktemp("wide_deep"), quick=True)
    return runner.run() | {"state": runner.state}


def judged(files: dict[str, Path], **changed: Path) -> networks.Row:
    sides = {side: path for side, path in files.items() if side != "state"}
    (row,) = networks.judged("wide_deep", True, sides | changed, files["state"])
    return row


def test_tiny_networks_agree(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert networks.main(["--quick", "--only", "lstm", "--page", str(tmp_path / "page.md")]) == 0
    shown = capsys.readouterr()
    assert "met     0 of 1 networks differ" in shown.out
    assert "lstm: native" in shown.err and "fixed" not in shown.err
    assert shown.out in (tmp_path / "page.md").read_text(encoding="utf-8") + "\n"


def test_the_row_of_a_network_that_agrees(files: dict[str, Path]) -> None:
    row = judged(files)
    assert row["wrong"] == [] and row["of bound"] < 1.0
    assert row["loss"] < 1e-6 and row["gradients"] < 1e-5 and row["parameters"] < 1e-6
    assert row["largest in"].endswith("@GRAD")


def scaled(arrays: Arrays) -> None:
    arrays["fc_1.w_0@GRAD"] *= 1.1


def one_of_a_bias(arrays: Arrays) -> None:
    arrays["fc_0.b_0@GRAD"][3] += 0.2 * np.abs(arrays["fc_0.b_0@GRAD"]).max()


def without_an_update(arrays: Arrays) -> None:
    arrays["fc_2.w_0"] -= 0.01 * arrays["fc_2.w_0@GRAD"]


def not_a_number(arrays: Arrays) -> None:
    arrays["embedding_1.w_0"][0, 0] = np.nan


def another_loss(arrays: Arrays) -> None:
    arrays["loss"] *= 1.01


def another_shape(arrays: Arrays) -> None:
    arrays["output"] = arrays["output"][1:]


WRONG: dict[Callable[[Arrays], Any], str] = {
    scaled: "fc_1.w_0@GRAD",
    one_of_a_bias: "fc_0.b_0@GRAD",
    without_an_update: "fc_2.w_0",
    not_a_number: "embedding_1.w_0",
    another_loss: "loss",
    another_shape: "output",
}
"""Ways in which a kernel may be wrong, and the variable that shows it."""


@pytest.mark.parametrize("change", WRONG)
def test_a_wrong_number_is_noticed(
    files: dict[str, Path], tmp_path: Path, change: Callable[[Arrays], Any]
) -> None:
    with np.load(files[networks.FIXED]) as result:
        arrays = {name: result[name] for name in result.files}
    change(arrays)
    np.savez(tmp_path / "changed.npz", **arrays)
    row = judged(files, **{networks.FIXED: tmp_path / "changed.npz"})
    assert [each.split(" is ")[0] for each in row["wrong"]] == [
        f"{networks.FIXED}: {WRONG[change]}"
    ]
    assert row["of bound"] > 1.0
    assert "MISSED  1 of 1 networks differ" in networks.report([row])


def test_what_should_be_zero_is_compared_with_its_layer() -> None:
    scales = {"fc_0.b_0@GRAD": 1e-12, "fc_0.w_0@GRAD": 2.0, "fc_0.b_0": 0.0, "fc_0.w_0": 0.5}
    result = step_errors.Norms(values=scales, apart={("a", "b"): dict.fromkeys(scales, 1e-6)})
    differences = result.relative_differences("a", "b")
    assert differences["fc_0.b_0@GRAD"] == pytest.approx(1e-6 / 2e-3)
    assert differences["fc_0.b_0"] == pytest.approx(1e-6 / 5e-4)
    assert differences["fc_0.w_0@GRAD"] == pytest.approx(0.5e-6)


def test_fixed_sizes_are_those_of_the_batch() -> None:
    entry = full.network("bert", quick=True)
    block = full.record(fluid, entry, fixed=True).main.global_block()
    shapes = {name: array.shape for name, array in full.draw(entry).items()}
    assert {name: tuple(block.var(name).shape) for name in shapes} == shapes


def test_networks_with_kinks_and_with_sequences() -> None:
    some = ("bert", "lstm", "transformer", "vgg16", "wide_deep")
    smooth = {name for name in some if not full.has_kinks(fluid, full.TINY[name])}
    assert smooth == {"bert", "lstm"}
    assert [name for name in full.TINY if full.has_sequences(full.TINY[name])] == ["lstm"]
