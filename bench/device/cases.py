"""Programs of one family of kernels each, and the equivalent in torch.

Inputs and outputs are state on the device, so that a step is its kernels and no copy.
`small` sizes are for a trial in Triton's interpreter; the others exceed the cache of any GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Build = Callable[..., Any]


PERIOD = 999_983
"""A prime, so that no two rows are equal."""

BY_CHANCE = 20.0
"""Tolerance for random results, which agree in distribution only."""


@dataclass(frozen=True)
class Case:
    """A program: `build(fluid, *inputs)` returns its output, `peer(torch, *inputs)` that of torch.

    `inputs` are shapes; one after an `i` holds integers below the number that follows it. With
    `backward`, gradients of all float inputs are computed as well. `flops` counts multiply and add
    as two, if a matrix product dominates; otherwise the case is memory bound.
    """

    name: str
    dtype: str
    inputs: Sequence[Shape]
    build: Build
    peer: Build
    backward: bool = False
    flops: int = 0
    below: int = 0
    """If set, the last input is int64, drawn from 0 to below it."""
    atol: float = 1e-3
    fixed: int = 0
    """The number of last inputs that have no gradient, besides integers."""

    @property
    def title(self) -> str:
        """The case with its dtype, as tables show it."""
        return f"{self.name} {self.dtype}"


def cases(small: bool, dtypes: Sequence[str]) -> Iterator[Case]:
    """Every case for every requested dtype."""
    for dtype in dtypes:
        yield from _pointwise(dtype, small)
        yield from _reductions(dtype, small)
        yield from _norms(dtype, small)
        yield from _products(dtype, small)
        yield from _attention(dtype, small)
        yield from _images(dtype, small)
        yield from _moves(dtype, small)
        yield from _attention(dtype, small)
        yield from _recurrent(dtype, small)


def _pointwise(dtype: str, small: bool) -> Iterator[Case]:
    rows, columns = (8, 200) if small else (16384, 4096)
    yield Case(
        "relu(x·a + b)", dtype, [(rows, columns), (columns,), (columns,)],
        lambda f, x, a, b: f.layers.relu(
            f.layers.elementwise_add(f.layers.elementwise_mul(x, a), b)),
        lambda t, x, a, b: t.relu(x * a + b),
    )  # fmt: skip
    yield Case(
        "gelu(x) + y, with gradients", dtype, [(rows, columns), (rows, columns)],
        lambda f, x, y: f.layers.elementwise_add(f.layers.gelu(x), y),
        lambda t, x, y: t.nn.functional.gelu(x) + y,
        backward=True,
    )  # fmt: skip
    yield Case(
        "dropout(x) + y, with gradients", dtype, [(rows, columns), (rows, columns)],
        lambda f, x, y: f.layers.elementwise_add(f.layers.dropout(
            x, 0.1, dropout_implementation="upscale_in_train"), y),
        lambda t, x, y: t.nn.functional.dropout(x, 0.1) + y,
        backward=True, atol=BY_CHANCE,
    )  # fmt: skip


def _reductions(dtype: str, small: bool) -> Iterator[Case]:
    rows, columns = (9, 150) if small else (16384, 4096)
    shape = [(rows, columns)]
    means = (("rows", 1), ("columns", 0), ("all", None))
    for name, dim in means if dtype == "float32" else ():
        yield Case(
            f"mean of {name}", dtype, shape,
            lambda f, x, dim=dim: f.layers.reduce_mean(x, dim=dim),
            lambda t, x, dim=dim: x.mean() if dim is None else x.mean(dim),
        )  # fmt: skip
    yield Case(
        "softmax", dtype, shape,
        lambda f, x: f.layers.softmax(x), lambda t, x: t.softmax(x, -1),
    )  # fmt: skip
    yield Case(
        "softmax, with gradient", dtype, shape,
        lambda f, x: f.layers.softmax(x), lambda t, x: t.softmax(x, -1), backward=True,
    )  # fmt: skip
    if dtype == "float32":
        yield Case(
            "softmax + cross entropy, with gradient", dtype, [(rows, columns), (rows, 1)],
            lambda f, x, y: f.layers.softmax_with_cross_entropy(x, y),
            lambda t, x, y: t.nn.functional.cross_entropy(x, y[:, 0], reduction="none")[:, None],
            backward=True, below=columns,
        )  # fmt: skip


def _norms(dtype: str, small: bool) -> Iterator[Case]:
    rows, columns = (6, 130) if small else (16384, 4096)
    for backward in (False, True):
        yield Case(
            "layer_norm" + ", with gradients" * backward, dtype, [(rows, columns)],
            _normed, lambda t, x: t.nn.functional.layer_norm(x, x.shape[-1:]), backward=backward,
        )  # fmt: skip
    if dtype == "float32":
        yield Case(
            "batch_norm, with gradients", dtype, [(2, 5, 7, 7) if small else (64, 256, 56, 56)],
            lambda f, x: f.layers.batch_norm(x),
            lambda t, x: t.nn.functional.batch_norm(x, None, None, training=True),
            backward=True,
        )  # fmt: skip


def _normed(fluid: Any, x: Any) -> Any:
    """layer_norm in float32, as in mixed precision, between casts that are fused."""
    wide = fluid.layers.cast(x, "float32")
    return fluid.layers.cast(fluid.layers.layer_norm(wide, scale=False, shift=False), x.dtype)


def _products(dtype: str, small: bool) -> Iterator[Case]:
    n = 48 if small else 4096
    shapes, atol = [(n, n), (n, n), (n,)], 0.05 if dtype == "float32" else 1.0
    yield Case(
        "matmul", dtype, shapes[:2],
        lambda f, x, y: f.layers.matmul(x, y), lambda t, x, y: x @ y, flops=2 * n**3, atol=atol,
    )  # fmt: skip
    yield Case(
        "matmul + bias, gelu", dtype, shapes,
        lambda f, x, y, b: f.layers.gelu(f.layers.elementwise_add(f.layers.matmul(x, y), b)),
        lambda t, x, y, b: t.nn.functional.gelu(x @ y + b), flops=2 * n**3, atol=atol,
    )  # fmt: skip
    batch, rows, width = (2, 20, 16) if small else (384, 512, 64)
    yield Case(
        "matmul of a batch, x yᵀ", dtype, [(batch, rows, width)] * 2,
        lambda f, x, y: f.layers.matmul(x, y, transpose_y=True),
        lambda t, x, y: x @ y.transpose(-1, -2), flops=2 * batch * rows * rows * width, atol=atol,
    )  # fmt: skip


def _attention(dtype: str, small: bool) -> Iterator[Case]:
    """BERT's attention of 512 tokens, whose result torch has from its fused kernels."""
    batch, tokens, heads, width = (1, 20, 2, 16) if small else (16, 512, 12, 64)
    flops = 4 * batch * heads * tokens * tokens * width
    for more, causal, dropout, backward in (
        ("", False, 0.0, False),
        (", with gradients", False, 0.0, True),
        (", causal, with gradients", True, 0.0, True),
        (", dropout, with gradients", False, 0.1, True),
    ):
        yield Case(
            f"attention{more}", dtype, [(batch, tokens, heads, width)] * 3,
            _attended(causal, dropout), _attended_by_torch(causal, dropout), backward=backward,
            flops=flops * 7 // 2 if backward else flops,
            atol=BY_CHANCE if dropout else 0.02,
        )  # fmt: skip


def _attended(causal: bool, dropout: float) -> Build:
    def build(fluid: Any, *inputs: Any) -> Any:
        layers = fluid.layers
        q, k, v = (layers.transpose(x, [0, 2, 1, 3]) for x in inputs)
        scores = layers.matmul(q, k, transpose_y=True, alpha=q.shape[-1] ** -0.5)
        if causal:
            tokens = q.shape[2]
            later = layers.fill_constant([tokens, tokens], "float32", -1e4)
            scores = layers.elementwise_add(scores, layers.cast(layers.triu(later, 1), q.dtype))
        weights = layers.softmax(scores)
        if dropout:
            upscale = "upscale_in_train"
            weights = layers.dropout(weights, dropout, dropout_implementation=upscale)
        return layers.transpose(layers.matmul(weights, v), [0, 2, 1, 3])

    return build


def _attended_by_torch(causal: bool, dropout: float) -> Build:
    def peer(torch: Any, *inputs: Any) -> Any:
        q, k, v = (x.transpose(1, 2) for x in inputs)
        functional = torch.nn.functional
        mixed = functional.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, is_causal=causal
        )
        return mixed.transpose(1, 2)

    return peer


def _images(dtype: str, small: bool) -> Iterator[Case]:
    batch, side = (2, 8) if small else (64, 56)
    kinds = (
        ("1×1", 16 if small else 256, 8 if small else 64, 1, 1),
        ("3×3", 8 if small else 64, 8 if small else 64, 3, 1),
        ("3×3 depthwise", 8 if small else 256, 8 if small else 256, 3, 8 if small else 256),
    )
    for name, inner, outer, size, groups in kinds:
        flops = 0 if groups > 1 else 2 * batch * side * side * outer * inner * size * size
        for backward in (False, True) if name == "3×3" else (False,):
            yield Case(
                f"convolution {name} + residual, relu" + ", with gradients" * backward, dtype,
                [(batch, inner, side, side), (outer, inner // groups, size, size),
                 (batch, outer, side, side)],
                _convolved(outer, size, groups), _convolved_by_torch(size, groups),
                backward=backward, flops=flops * (3 if backward else 1),
                atol=0.05 if dtype == "float32" else 0.5,
            )  # fmt: skip
    yield Case(
        "max pool 3×3, stride 2", dtype, [(batch, 8 if small else 64, side * 2, side * 2)],
        lambda f, x: f.layers.pool2d(x, 3, "max", 2, 1),
        lambda t, x: t.nn.functional.max_pool2d(x, 3, 2, 1),
    )  # fmt: skip


def _convolved(outer: int, size: int, groups: int) -> Build:
    def build(fluid: Any, x: Any, w: Any, residual: Any) -> Any:
        block = x.block
        output = block.create_var(name="convolved", shape=residual.shape, dtype=x.dtype)
        attrs = {"strides": [1, 1], "paddings": [size // 2] * 2, "dilations": [1, 1]}
        attrs |= {"groups": groups, "data_format": "NCHW"}
        kind = "depthwise_conv2d" if groups == outer else "conv2d"
        block.append_op(kind, {"Input": [x], "Filter": [w]}, {"Output": [output]}, attrs)
        return fluid.layers.relu(fluid.layers.elementwise_add(output, residual))

    return build


def _convolved_by_torch(size: int, groups: int) -> Build:
    def peer(torch: Any, x: Any, w: Any, residual: Any) -> Any:
        output = torch.nn.functional.conv2d(x, w, padding=size // 2, groups=groups)
        return torch.relu(output + residual)

    return peer


def _moves(dtype: str, small: bool) -> Iterator[Case]:
    rows, columns = (12, 40) if small else (8192, 8192)
    yield Case(
        "transpose", dtype, [(rows, columns)],
        lambda f, x: f.layers.transpose(x, [1, 0]), lambda t, x: x.t().contiguous(),
    )  # fmt: skip
    yield Case(
        "concat", dtype, [(rows, columns), (rows, columns)],
        lambda f, x, y: f.layers.concat([x, y], axis=1), lambda t, x, y: t.cat([x, y], 1),
    )  # fmt: skip
    words, width, ids = (30, 16, 20) if small else (50000, 1024, 65536)
    if dtype == "float32":
        yield Case(
            "embedding, with gradient", dtype, [(words, width), (ids,)],
            lambda f, table, ids: f.layers.gather(table, ids, overwrite=False),
            lambda t, table, ids: table[ids],
            backward=True, below=words,
        )  # fmt: skip


def _attention(dtype: str, small: bool) -> Iterator[Case]:
    batch, heads, tokens, width = (2, 2, 20, 16) if small else (16, 12, 512, 64)
    shapes = [*[(batch, heads, tokens, width)] * 3, (batch, 1, 1, tokens)]
    product = 2 * batch * heads * tokens * tokens * width
    for backward in (False, True):
        yield Case(
            "attention with a mask" + ", with gradients" * backward, dtype, shapes, _attended,
            lambda t, q, k, v, mask: t.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask),
            backward=backward, flops=(7 if backward else 2) * product, atol=0.02, fixed=1,
        )  # fmt: skip


def _attended(fluid: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = fluid.layers.matmul(q, k, transpose_y=True, alpha=q.shape[-1] ** -0.5)
    weights = fluid.layers.softmax(fluid.layers.elementwise_add(scores, mask))
    return fluid.layers.matmul(weights, v)


def _recurrent(dtype: str, small: bool) -> Iterator[Case]:
    """An LSTM with the projection of its inputs: equal sequences, one after the other."""
    batch, steps, width = (2, 3, 16) if small else (16, 50, 256)
    shapes = [(batch * steps, width), (width, 4 * width), (width, 4 * width), (1, 4 * width)]
    if dtype == "float32":
        for backward in (False, True):
            yield Case(
                "lstm" + ", with gradients" * backward, dtype, shapes, _lstm(batch, steps),
                _lstm_of_torch(batch), backward=backward, atol=0.01,
            )  # fmt: skip


def _lstm(batch: int, steps: int) -> Build:
    def build(fluid: Any, x: Any, project: Any, recur: Any, bias: Any) -> Any:
        scale = recur.shape[0] ** -0.5
        gates = fluid.layers.matmul(x, project, alpha=scale)
        offsets = [steps * number for number in range(batch + 1)]
        gates = fluid.layers.lod_reset(gates, target_lod=offsets)
        recur = fluid.layers.scale(recur, scale)
        names = ("Hidden", "Cell", "BatchGate", "BatchCellPreAct")
        outputs = {name: [x.block.create_var(name=name, dtype=x.dtype)] for name in names}
        inputs = {"Input": [gates], "Weight": [recur], "Bias": [bias]}
        x.block.append_op("lstm", inputs, outputs, {"use_peepholes": False})
        return outputs["Hidden"][0]

    return build


def _lstm_of_torch(batch: int) -> Build:
    """Torch's gates are input, forget, candidate and output; fluid's begin with the candidate."""

    def peer(torch: Any, x: Any, project: Any, recur: Any, bias: Any) -> Any:
        def ordered(matrix: Any) -> Any:
            candidate, first, forget, output = matrix.chunk(4, -1)
            return torch.cat([first, forget, candidate, output], -1)

        width = len(recur)
        weights = [ordered(matrix * width**-0.5).t().contiguous() for matrix in (project, recur)]
        biases = [ordered(bias)[0], torch.zeros_like(bias[0])]
        state = torch.zeros(1, batch, width, dtype=x.dtype, device=x.device)
        found = torch._VF.lstm(
            x.reshape(batch, -1, width), (state, state), [*weights, *biases],
            True, 1, 0.0, False, False, True,
        )  # fmt: skip
        return found[0].reshape(-1, width)

    return peer


def draw(case: Case, seed: int = 0) -> list[np.ndarray]:
    """Inputs of a case, the same for all implementations; large ones repeat `PERIOD` numbers."""
    random = np.random.default_rng(seed)
    drawn = [
        np.resize(random.standard_normal(min(prod(shape), PERIOD), np.float32), shape)
        for shape in case.inputs
    ]
    if case.below:
        drawn[-1] = random.integers(0, case.below, case.inputs[-1])
    return drawn
