"""Quantized copies of saved models, as the passes of Paddle 1.8.5 freeze them after training.

Scales of inputs are the largest magnitudes of one run; filters have a scale for each channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import fluid

LEVELS = 127
SLOTS = {"conv2d": ("Input", "Filter", "Output"), "mul": ("X", "Y", "Out")}
"""Layers that are quantized: their input, weights and output."""


def quantize(source: Path, target: Path, feed: Mapping[str, np.ndarray]) -> None:
    """Write a quantized copy of a saved model, both with their parameters in the file `params`."""
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetched = fluid.io.load_inference_model(
            str(source), exe, params_filename="params"
        )
        block = program.global_block()
        layers = [op for op in block.ops if op.type in SLOTS]
        inputs = list(dict.fromkeys(op.input(SLOTS[op.type][0])[0] for op in layers))
        seen = exe.run(program, feed=dict(feed), fetch_list=inputs)
        scales = {n: float(np.abs(each).max()) for n, each in zip(inputs, seen, strict=True)}
        for op in layers:
            _quantize_layer(block, op, scales)
        fluid.io.save_inference_model(
            str(target), feeds, fetched, exe, program, params_filename="params"
        )


def _quantize_layer(block: Any, op: Any, scales: Mapping[str, float]) -> None:
    inputs, weights, created = (
        (op.input(slot) if place < 2 else op.output(slot))[0]
        for place, slot in enumerate(SLOTS[op.type])
    )
    levels, sums = f"{inputs}.quantized", f"{created}.sums"
    if not block.has_var(levels):
        _quantize_input(block, block.ops.index(op), inputs, levels, scales[inputs])
    tensor = fluid.global_scope().find_var(weights).get_tensor()
    array = np.array(tensor)
    by_channel = op.type == "conv2d"
    axes = tuple(range(1, array.ndim)) if by_channel else None
    scale = np.abs(array).max(axes, keepdims=True).astype(np.float32)
    tensor.set(np.rint(array / scale * LEVELS).astype(np.float32), fluid.CPUPlace())
    _like(block, created, sums)
    op._rename_input(inputs, levels)
    op._rename_output(created, sums)
    after, old = block.ops.index(op) + 1, f"{inputs}.scale"
    out = {"Out": [created]}
    if by_channel:
        known = _state(block, f"{weights}.scale", scale.reshape(-1))
        block._insert_op(
            after, type="fake_channel_wise_dequantize_max_abs", outputs=out,
            inputs={"X": [sums], "Scales": [known, old]}, attrs={"quant_bits": [8, 8]},
        )  # fmt: skip
    else:
        most = LEVELS * LEVELS / float(scale.reshape(-1)[0])
        block._insert_op(
            after, type="fake_dequantize_max_abs", outputs=out,
            inputs={"X": [sums], "Scale": [old]}, attrs={"max_range": most},
        )  # fmt: skip


def _quantize_input(block: Any, place: int, given: str, levels: str, scale: float) -> None:
    """Insert the op that computes the levels of a layer's input by a fixed scale."""
    _like(block, given, levels)
    name = _state(block, f"{given}.scale", np.float32([scale]))
    block._insert_op(
        place, type="fake_quantize_moving_average_abs_max",
        inputs={"X": [given], "InScale": [name]}, outputs={"Out": [levels], "OutScale": [name]},
        attrs={"is_test": True, "bit_length": 8},
    )  # fmt: skip


def _like(block: Any, name: str, new: str) -> None:
    var = block.var(name)
    block.create_var(name=new, shape=var.shape, dtype=var.dtype)


def _state(block: Any, name: str, value: np.ndarray) -> str:
    block.create_var(name=name, shape=value.shape, dtype="float32", persistable=True)
    fluid.global_scope().var(name).get_tensor().set(value, fluid.CPUPlace())
    return name
