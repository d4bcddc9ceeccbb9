"""The rows of `cpu.py`: what is run, by whom, and how fast it should be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.versus.saved import Case, bert_case, real_case, zoo_case
from tests.support.nets import steps

Goals = Mapping[int, float]
"""The largest ratio ours ÷ peer that is wanted, by number of threads."""


@dataclass(frozen=True)
class Row:
    """A model, and those it is compared with: names of runners with their goals.

    With `case` it is a saved model in inference, written to a folder that is passed in; without,
    the training step of `model` in `steps`. `best`: only the fastest peer counts. `scored`: the
    outputs are detections, see `moved`.
    """

    title: str
    peers: Mapping[str, Goals]
    model: str = ""
    case: Callable[[Path], Case] | None = None
    best: bool = False
    scored: bool = False


PAIR = {1: 1.0, 2: 1.0}


def _net(title: str, one: float, two: float, case: Callable[[Path], Case]) -> Row:
    return Row(title, {"onnxruntime": {1: one, 2: two}}, case=case)


def _image(name: str, batch: int = 1, **settings: object) -> Callable[[Path], Case]:
    return partial(zoo_case, name=name, batch=batch, image=224, classes=1000, **settings)


def _real(title: str, name: str, scored: bool = False) -> Row:
    peers = {"onnxruntime": PAIR, "paddle": PAIR}
    return Row(title, peers, case=partial(real_case, name=name), best=True, scored=scored)


def _step(title: str, name: str, **peers: Goals) -> Row:
    return Row(title, {name.replace("_", " "): goals for name, goals in peers.items()}, name)


EAGER = {1: 0.8, 2: 0.9}
CACHED = {1: 0.3, 2: 0.3}
HALF = {1: 0.5, 2: 0.5}

ROWS: Mapping[str, Row] = {
    "resnet50": _net("ResNet-50", 0.85, 0.85, _image("resnet50")),
    "resnet50_8": _net("ResNet-50, batch 8", 0.85, 0.85, _image("resnet50", 8)),
    "vgg16": _net("VGG-16", 0.65, 0.60, _image("vgg16", dropout=False)),
    "mobilenet_v1": _net("MobileNetV1", 0.90, 1.0, _image("mobilenet_v1")),
    "mobilenet_v2": _net("MobileNetV2", 0.90, 1.0, _image("mobilenet_v2")),
    "bert_128": _net("BERT-base, 128 tokens", 0.85, 0.95, partial(bert_case, tokens=128)),
    "bert_384": _net("BERT-base, 384 tokens", 0.92, 0.95, partial(bert_case, tokens=384)),
    "ocr_det": _real("PP-OCRv4 detection, 640²", "detector"),
    "ocr_rec": _real("PP-OCRv4 recognition", "reader"),
    "picodet": _real("PicoDet, 416²", "picodet", scored=True),
    "hrnet": _real("HRNet-18 + OCR, 256²", "hrnet"),
    "lac": _real("LAC, 5 sentences", "lac"),
    "lenet": _step("LeNet, batch 64", "lenet", torch={1: 0.7, 2: 0.85}, torch_compile=PAIR),
    "lenet_bn": _step(
        "LeNet of 16² with a norm, batch 64", "lenet_bn", torch={1: 0.7, 2: 0.85},
        torch_compile=PAIR,
    ),
    "resnet18": _step("ResNet-18, 112², batch 8", "resnet18", torch={1: 1.0, 2: 1.05}),
    "encoder": _step("Transformer encoder, 16 × 64 words", "encoder", torch=EAGER),
    "encoder_small": _step(
        "Transformer encoder, 16 × 6 words", "transformer_encoder", torch=EAGER
    ),
    "lstm": _step("LSTM 256, batch 16, 50 steps", "lstm", torch=EAGER),
    "ctr_million": _step(
        f"CTR wide & deep, {steps.ROWS:,} rows", "ctr_million", torch=HALF, cached=HALF
    ),
    "fit_a_line": _step("fit_a_line", "fit_a_line", cached=CACHED),
    "word2vec": _step("word2vec", "word2vec", cached=CACHED),
    "ctr": _step("ctr", "ctr_wide_deep", cached=CACHED),
    "sentiment_conv": _step("sentiment_conv", "sentiment_conv", cached=CACHED),
}  # fmt: skip
"""The rows by name, in the order of the table."""
