"""`WeightQuantization`: the weights of a saved model become integers.

Reference: post_training_quantization.py of fluid.contrib.slim.quantization of release 1.8.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from compiler.ir.types import Array
from fluid import io
from fluid.contrib.slim.quantization.insertion import read, write
from fluid.executor import Executor, global_scope
from fluid.framework import Operator
from runtime.device import CPUPlace

__all__ = ["WeightQuantization"]


class WeightQuantization:
    """Quantizes the weights of a model in a folder to int8 or int16, for smaller files."""

    _supported_quantizable_op_type: Sequence[str] = ("conv2d", "depthwise_conv2d", "mul")
    _supported_weight_quantize_type: Sequence[str] = ("channel_wise_abs_max", "abs_max")

    def __init__(
        self,
        model_dir: str,
        model_filename: str | None = None,
        params_filename: str | None = None,
    ) -> None:
        self._model = (model_dir, model_filename, params_filename)

    def quantize_weight_to_int(
        self,
        save_model_dir: str,
        save_model_filename: str | None = None,
        save_params_filename: str | None = None,
        quantizable_op_type: Sequence[str] = ("conv2d", "mul"),
        weight_bits: int = 8,
        weight_quantize_type: str = "channel_wise_abs_max",
        generate_test_model: bool = False,
        threshold_rate: float = 0.0,
    ) -> None:
        """Save the model with integer weights in the folder `quantized_model`.

        Scales are attributes of ops. `generate_test_model` saves one with rounded float weights in
        `test_model`. `threshold_rate` is the part of a weight that "abs_max" clips. Raises
        AssertionError for another op type, another type of quantization and other bits.
        """
        for kind in quantizable_op_type:
            supported = kind in self._supported_quantizable_op_type
            assert supported, f"Input error:{kind} is not supported for weight quantization."
        assert weight_bits in (8, 16), "Input error: weight_bits should be 8 or 16."
        types = self._supported_weight_quantize_type
        assert weight_quantize_type in types, (
            f"Input error: weight_quantize_type should in {list(types)}"
        )
        rounding = _Rounding(weight_bits, weight_quantize_type, threshold_rate)
        folders = {"quantized_model": False, "test_model": True}
        for folder, is_test in folders.items():
            if generate_test_model or not is_test:
                saved = str(Path(save_model_dir, folder)), save_model_filename, save_params_filename
                self._save(rounding, quantizable_op_type, is_test, saved)

    def _save(
        self,
        rounding: _Rounding,
        kinds: Sequence[str],
        is_test: bool,
        saved: tuple[str, str | None, str | None],
    ) -> None:
        executor, scope = Executor(CPUPlace()), global_scope()
        folder, model_filename, params_filename = self._model
        program, feeds, fetches = io.load_inference_model(
            folder, executor, model_filename, params_filename
        )
        persistable = {var.name for var in program.list_vars() if var.persistable}
        done: dict[str, tuple[Array, list[float]]] = {}
        for op in [op for block in program.blocks for op in block.ops if op.type in kinds]:
            for name in [name for name in op.input_arg_names if name in persistable]:
                if name not in done:
                    done[name] = rounding.rounded(read(scope, name), op.type)
                rounding.note(op, name, done[name][1])
                levels, scales = done[name]
                value = rounding.floats(levels, scales, op.type) if is_test else levels
                write(scope, CPUPlace(), name, value)
        io.save_inference_model(saved[0], feeds, fetches, executor, program, saved[1], saved[2])


class _Rounding:
    """How weights are rounded: by one scale, or by one a channel of the result."""

    def __init__(self, bits: int, kind: str, threshold_rate: float) -> None:
        self._bits, self._kind, self._rate = bits, kind, threshold_rate
        self._top = 2 ** (bits - 1) - 1

    def rounded(self, weight: Array, op_type: str) -> tuple[Array, list[float]]:
        """The levels of a weight and its scales."""
        channels = self._axis(op_type)
        if channels is None:
            threshold = float(np.abs(weight).max())
            if abs(self._rate) >= 1e-10:
                threshold = _clipping_threshold(np.abs(weight), self._rate)
                weight = np.clip(weight, -threshold, threshold)
            scales = [threshold / self._top]
        else:
            others = tuple(axis for axis in range(weight.ndim) if axis != channels % weight.ndim)
            scales = [float(largest) / self._top for largest in np.abs(weight).max(axis=others)]
        levels = np.around(weight / _along(scales, weight.ndim, channels).astype(weight.dtype))
        return levels.astype(np.int8 if self._bits == 8 else np.int16), scales

    def floats(self, levels: Array, scales: list[float], op_type: str) -> Array:
        """The values that levels stand for, float32."""
        return (levels * _along(scales, levels.ndim, self._axis(op_type))).astype(np.float32)

    def _axis(self, op_type: str) -> int | None:
        """The axis of channels: the last of a product's weight; None for one scale."""
        if self._kind == "abs_max":
            return None
        return -1 if op_type == "mul" else 0

    def note(self, op: Operator, name: str, scales: list[float]) -> None:
        """Write the scales of a weight as attributes of an op."""
        op.set_attr("quantization_type", f"post_weight_{self._kind}")
        op.set_attr("quantize_weight_bits", self._bits)
        op.set_attr(f"{name}_quant_scale", scales)


def _along(scales: list[float], rank: int, axis: int | None) -> Array:
    """Scales as an array that broadcasts along an axis; one scale along all."""
    shape = [1] * rank
    if axis is not None:
        shape[axis] = len(scales)
    return np.array(scales).reshape(shape)


def _clipping_threshold(magnitudes: Array, rate: float, bins: int = 5000) -> float:
    """The magnitude that a part `rate` of all exceeds, at the end of a bin of a histogram."""
    counts, edges = np.histogram(magnitudes, bins=bins, range=(0, float(magnitudes.max())))
    parts = np.cumsum(counts / counts.sum())
    enough = np.flatnonzero(parts >= 1.0 - rate)
    index = int(enough[0]) + 1 if enough.size else 0
    return index * float(edges[1] - edges[0])
