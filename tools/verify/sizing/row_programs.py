"""Small programs of embeddings, indices, sequences and optimizers, by name."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

import fluid
from tools.verify.sizing.programs import PROGRAMS, program
from tools.verify.sizing.recorder import Recorder, Shape, layers

__all__ = ["PROGRAMS"]


def lengths_of(count: int, longest: int) -> list[int]:
    """Lengths of sequences, from 1 up."""
    rng = np.random.default_rng(zlib.crc32(f"{count} {longest}".encode()))
    return rng.integers(1, longest + 1, count).tolist()


@program
def embedding(
    r: Recorder, rows: int, words: int, width: int, sparse: bool = False, pool: str = ""
) -> Sequence[Any]:
    lengths = lengths_of(max(1, rows // 32), 63) if pool else []
    shape = (sum(lengths), 1) if pool else (rows,)
    y = fluid.embedding(r.integers("x", shape, words, lengths=lengths), [words, width], sparse)
    return [layers.sequence_pool(layers.reshape(y, [-1, width]), pool)] if pool else [y]


@program
def gather(r: Recorder, shape: Shape, count: int, dtype: str = "int64") -> Sequence[Any]:
    x = r.floats("x", shape, has_batch=False)
    return [layers.gather(x, r.integers("i", (count,), shape[0], dtype))]


@program
def gather_nd(r: Recorder, shape: Shape, count: int) -> Sequence[Any]:
    x = r.floats("x", shape, has_batch=False)
    return [layers.gather_nd(x, r.integers("i", (count, 2), min(shape[:2])))]


@program
def scatter(r: Recorder, shape: Shape, count: int) -> Sequence[Any]:
    x, updates = r.floats("x", shape, has_batch=False), r.floats("u", (count, *shape[1:]))
    return [layers.scatter(x, r.integers("i", (count,), shape[0]), updates, overwrite=False)]


@program
def scatter_nd(r: Recorder, shape: Shape, count: int) -> Sequence[Any]:
    x, updates = r.floats("x", shape, has_batch=False), r.floats("u", (count, *shape[2:]))
    return [layers.scatter_nd_add(x, r.integers("i", (count, 2), min(shape[:2])), updates)]


@program
def one_hot(r: Recorder, rows: int, depth: int) -> Sequence[Any]:
    return [fluid.one_hot(r.integers("x", (rows,), depth), depth)]


@program
def sequence(r: Recorder, kind: str, count: int, longest: int, width: int) -> Sequence[Any]:
    lengths = lengths_of(count, longest)
    x = r.floats("x", (sum(lengths), width), lengths=lengths)
    if kind.startswith("pool_"):
        return [layers.sequence_pool(x, kind.removeprefix("pool_"))]
    if kind == "expand":
        return [
            layers.elementwise_add(layers.sequence_expand_as(r.floats("y", (count, width)), x), x)
        ]
    return [_SEQUENCES[kind](x, width)]


_SEQUENCES = {
    "softmax": lambda x, width: layers.sequence_softmax(x),
    "conv": lambda x, width: layers.sequence_conv(x, 24, 3),
    "row_conv": lambda x, width: layers.row_conv(x, 4),
    "reverse": lambda x, width: layers.sequence_reverse(x),
    "pad": lambda x, width: layers.sequence_pad(x, layers.fill_constant([1], "float32", 0.25))[0],
    "lstm": lambda x, width: layers.dynamic_lstm(x, width, use_peepholes=False)[0],
    "lstm_peepholes": lambda x, width: layers.dynamic_lstm(x, width)[0],
    "gru": lambda x, width: layers.dynamic_gru(x, width // 3),
    "lstmp": lambda x, width: layers.dynamic_lstmp(x, width, width // 8)[0],
}


@program
def crf(r: Recorder, count: int, longest: int, tags: int) -> Sequence[Any]:
    lengths = lengths_of(count, longest)
    x = r.floats("x", (sum(lengths), tags), lengths=lengths)
    y = r.integers("y", (sum(lengths), 1), tags, lengths=lengths)
    return [layers.linear_chain_crf(x, y, fluid.ParamAttr(name="transition"))]


@program
def ctc(r: Recorder, count: int, steps: int, classes: int, label: int = 8) -> Sequence[Any]:
    lengths, labels = [steps - i % 7 for i in range(count)], [label] * count
    x = r.floats("x", (sum(lengths), classes), lengths=lengths)
    y = r.integers("y", (count * label, 1), classes, "int32", 1, lengths=labels)
    return [layers.warpctc(x, y)]


@program
def gates(r: Recorder, rows: int, width: int) -> Sequence[Any]:
    return list(layers.lstm_unit(*(r.floats(name, (rows, width)) for name in "xhc")))


@program
def optimizer(
    r: Recorder, kind: str, shape: Shape, decay: float = 0.0, clip: str = "", **attrs: Any
) -> Sequence[Any]:
    """Two parameters, a square loss, and one step of an optimizer."""
    weight = layers.create_parameter(list(shape), "float32", name="weight")
    bias = layers.create_parameter([shape[1]], "float32", name="bias")
    y = layers.elementwise_add(layers.matmul(r.floats("x", (4, shape[0])), weight), bias)
    total = layers.mean(layers.square(y))
    options = {
        "learning_rate": 0.1,
        "regularization": fluid.regularizer.L2Decay(decay) if decay else None,
        "grad_clip": _CLIPS[clip]() if clip else None,
        **attrs,
    }
    getattr(fluid.optimizer, kind)(**options).minimize(total)
    return [total]


_CLIPS = {
    "norm": lambda: fluid.clip.GradientClipByNorm(0.01),
    "global": lambda: fluid.clip.GradientClipByGlobalNorm(0.01),
    "value": lambda: fluid.clip.GradientClipByValue(1e-6),
}
