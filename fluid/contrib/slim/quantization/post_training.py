"""`PostTrainingQuantization`: a trained model is quantized by the values of some batches.

Reference: post_training_quantization.py of fluid.contrib.slim.quantization of release 1.8.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler.ir.types import Array
from fluid import io
from fluid.compat.graphs import Graph, IrGraph
from fluid.contrib.slim.quantization.activations import AddQuantDequantPass
from fluid.contrib.slim.quantization.calibration import Samples, kl_threshold
from fluid.contrib.slim.quantization.freeze import QuantizationFreezePass
from fluid.contrib.slim.quantization.insertion import read, write
from fluid.contrib.slim.quantization.quantized_slots import (
    OUT_SCALE_OPS,
    input_names,
    output_names,
)
from fluid.contrib.slim.quantization.transform import QuantizationTransformPass
from fluid.executor import Executor, global_scope
from fluid.framework import Operator, Program
from runtime.tensors.scope import Scope

__all__ = ["PostTrainingQuantization"]

ALGORITHMS = ("KL", "abs_max", "min_max")
ACTIVATION_TYPES = ("range_abs_max", "moving_average_abs_max", "abs_max")
WEIGHT_TYPES = ("abs_max", "channel_wise_abs_max")
WITH_WEIGHTS = tuple(QuantizationTransformPass._supported_quantizable_op_type)  # pyright: ignore[reportPrivateUsage] - a name of Paddle
SUPPORTED = (*WITH_WEIGHTS, *AddQuantDequantPass._supported_quantizable_op_type)  # pyright: ignore[reportPrivateUsage] - a name of Paddle


class PostTrainingQuantization:
    """Quantizes a saved model; batches of `batch_generator` or samples of `sample_generator` show
    how large its activations are.

    `algo` chooses thresholds of activations: "KL", which keep most of the distribution; "abs_max",
    the largest magnitudes; "min_max" only records smallest and largest values as attributes of ops.
    The other arguments are those of the passes. With `is_use_cache_file` values are kept in files
    of `cache_dir`.

    Raises AssertionError for arguments that cannot be, naming them.
    """

    def __init__(
        self,
        executor: Executor | None = None,
        scope: Scope | None = None,
        model_dir: str | None = None,
        model_filename: str | None = None,
        params_filename: str | None = None,
        batch_generator: Callable[[], Iterable[Any]] | None = None,
        sample_generator: Callable[[], Iterable[Any]] | None = None,
        batch_size: int = 10,
        batch_nums: int | None = None,
        algo: str = "KL",
        quantizable_op_type: Sequence[str] = ("conv2d", "depthwise_conv2d", "mul"),
        is_full_quantize: bool = False,
        activation_bits: int = 8,
        weight_bits: int = 8,
        activation_quantize_type: str = "range_abs_max",
        weight_quantize_type: str = "channel_wise_abs_max",
        is_use_cache_file: bool = False,
        cache_dir: str = "./temp_post_training",
    ) -> None:
        assert executor is not None, "The executor cannot be None."
        assert model_dir is not None, "The model_dir cannot be None."
        _expect_data(sample_generator or batch_generator, batch_size)
        _expect_known(algo, activation_quantize_type, weight_quantize_type)
        self._ops = tuple(SUPPORTED if is_full_quantize else quantizable_op_type)
        _expect_supported(self._ops)
        self._executor = executor
        self._scope = global_scope() if scope is None else scope
        self._model = (model_dir, model_filename, params_filename)
        self._samples, self._batches = sample_generator, batch_generator
        self._batch_size, self._batch_nums = batch_size, batch_nums
        self._algorithm = algo
        self._weight_bits, self._activation_bits = weight_bits, activation_bits
        self._activation_type, self._weight_type = activation_quantize_type, weight_quantize_type
        self._cache = Path(cache_dir) if is_use_cache_file else None
        self._program: Program | None = None
        self._feeds: list[str] = []
        self._fetches: list[str] = []

    def quantize(self) -> Program:
        """Load the model, run the batches and quantize it; returns the quantized program.

        Raises ValueError if there is no batch, AssertionError for an op with several results.
        """
        folder, model_filename, params_filename = self._model
        program, self._feeds, fetches = io.load_inference_model(
            folder, self._executor, model_filename, params_filename
        )
        self._fetches = [var.name for var in fetches]
        weights, activations = self._variables(program)
        weight_values = {name: read(self._scope, name) for name in weights}
        thresholds = self._thresholds(program, activations)
        if self._algorithm == "min_max":
            for name, value in weight_values.items():
                rows = value.reshape(len(value), -1)
                thresholds[name] = rows.min(axis=1).tolist(), rows.max(axis=1).tolist()
            self._record_inputs(program, thresholds)
        else:
            program = self._quantized(program, thresholds)
        self._record_outputs(program, thresholds)
        self._program = program
        return program

    def save_quantized_model(
        self,
        save_model_path: str,
        model_filename: str | None = None,
        params_filename: str | None = None,
    ) -> None:
        """Save the quantized model; RuntimeError before `quantize`."""
        if self._program is None:
            raise RuntimeError("there is no quantized model: call quantize() first")
        block = self._program.global_block()
        io.save_inference_model(
            save_model_path,
            self._feeds,
            [block.var(name) for name in self._fetches],
            self._executor,
            self._program,
            model_filename,
            params_filename,
        )

    def _variables(self, program: Program) -> tuple[list[str], list[str]]:
        """The weights and the activations whose thresholds are needed."""
        persistable = {var.name for var in program.list_vars() if var.persistable}
        names: dict[str, None] = {}
        for op in program.global_block().ops:
            if op.type in self._ops:
                names |= dict.fromkeys([*input_names(op), *output_names(op)])
            elif op.type in OUT_SCALE_OPS:
                names |= dict.fromkeys(output_names(op))
        weights = [name for name in names if name in persistable]
        return weights, [name for name in names if name not in persistable]

    def _loader(self, program: Program) -> Iterable[Any]:
        block = program.global_block()
        loader = io.DataLoader.from_generator(
            feed_list=[block.var(name) for name in self._feeds],
            capacity=3 * self._batch_size,
            iterable=True,
        )
        places = self._executor.place
        if self._samples is not None:
            loader.set_sample_generator(self._samples, self._batch_size, True, places)
        elif self._batches is not None:
            loader.set_batch_generator(self._batches, places)
        return loader()

    def _thresholds(self, program: Program, activations: list[str]) -> dict[str, Any]:
        """The threshold of each activation; for "min_max" the smallest and the largest value."""
        samples = Samples(self._cache)
        ranges: dict[str, tuple[float, float]] = {}
        fetches = [*activations, *self._fetches]
        for count, feed in enumerate(self._loader(program), 1):
            values = self._executor.run(program, feed, fetches, return_numpy=False)
            for name, value in zip(activations, values, strict=False):
                array = np.array(value)
                ranges[name] = _widened(ranges.get(name), array)
                if self._algorithm == "KL":
                    samples.add(name, array)
            if self._batch_nums and count >= self._batch_nums:
                break
        if activations and not ranges:
            raise ValueError(f"the generator yields less than a batch of {self._batch_size}")
        if self._algorithm == "KL":
            return {name: kl_threshold(samples.take(name)) for name in samples.names()}
        if self._algorithm == "abs_max":
            return {name: max(-low, high) for name, (low, high) in ranges.items()}
        return dict(ranges)

    def _quantized(self, program: Program, thresholds: Mapping[str, float]) -> Program:
        """Insert fake quantization with the thresholds as scales, and freeze it."""
        scope, place = self._scope, self._executor.place
        graph = IrGraph(Graph(program.desc), for_test=True)
        QuantizationTransformPass(
            scope,
            place,
            self._weight_bits,
            self._activation_bits,
            activation_quantize_type=self._activation_type,
            weight_quantize_type=self._weight_type,
            quantizable_op_type=[kind for kind in WITH_WEIGHTS if kind in self._ops],
        ).apply(graph)
        others = AddQuantDequantPass._supported_quantizable_op_type  # pyright: ignore[reportPrivateUsage] - a name of Paddle
        AddQuantDequantPass(
            scope, place, quantizable_op_type=[kind for kind in others if kind in self._ops]
        ).apply(graph)
        for name, threshold in thresholds.items():
            for scale in (f"{name}.scale", f"{name}.quant_dequant.scale"):
                if scope.find_var(scale) is not None:
                    write(scope, place, scale, np.array([threshold], np.float32))
        QuantizationFreezePass(
            scope, place, self._weight_bits, self._activation_bits, self._weight_type
        ).apply(graph)
        return graph.to_program()

    def _record_inputs(self, program: Program, ranges: Mapping[str, tuple[float, float]]) -> None:
        """Write ranges of inputs as attributes of ops."""
        for op in program.global_block().ops:
            if op.type in self._ops:
                for name in input_names(op):
                    low, high = ranges[name]
                    op.set_attr(f"{name}.min", low)
                    op.set_attr(f"{name}.max", high)

    def _record_outputs(self, program: Program, thresholds: Mapping[str, Any]) -> None:
        """Write thresholds of results as attributes of ops."""
        for op in program.global_block().ops:
            if op.type in (*self._ops, *OUT_SCALE_OPS):
                names = output_names(op)
                assert len(names) == 1, (
                    f"Post training quantization only support one output for {op.type}"
                )
                self._record_output(op, thresholds[names[0]])

    def _record_output(self, op: Operator, threshold: Any) -> None:
        if self._algorithm == "min_max":
            low, high = threshold
            op.set_attr("out_min", low)
            op.set_attr("out_max", high)
        else:
            op.set_attr("out_threshold", threshold)
        if op.type in self._ops:
            op.set_attr("quantization_type", f"post_{self._algorithm.lower()}")


def _expect_data(generator: object, batch_size: int) -> None:
    """AssertionError without a generator or for an empty batch."""
    assert generator, "The sample_generator and batch_generator cannot be None in the same time."
    assert batch_size > 0, "The batch_size should be greater than 0."


def _expect_known(algorithm: str, activation: str, weight: str) -> None:
    """AssertionError for an unknown algorithm or type of quantization."""
    for name, value, known in (
        ("algo", algorithm, ALGORITHMS),
        ("activation_quantize_type", activation, ACTIVATION_TYPES),
        ("weight_quantize_type", weight, WEIGHT_TYPES),
    ):
        assert value in known, f"The {name} ({value}) should be one of {', '.join(known)}."


def _expect_supported(kinds: Sequence[str]) -> None:
    """AssertionError for an op type that no pass quantizes."""
    for kind in kinds:
        assert kind in SUPPORTED, f"{kind} is not supported for quantization."


def _widened(known: tuple[float, float] | None, value: Array) -> tuple[float, float]:
    """A range that also has the values of an array."""
    low, high = float(value.min()), float(value.max())
    return (low, high) if known is None else (min(known[0], low), max(known[1], high))
