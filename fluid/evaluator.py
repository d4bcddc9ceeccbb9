"""Metrics as ops of the program that is being built, superseded by `fluid.metrics`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from fluid import layers, unique_name
from fluid.executor import Executor
from fluid.framework import Block, Program, Variable, recording_guard
from fluid.layer_helper import LayerHelper
from fluid.metrics import detection_map
from fluid.recording.annotations import Array

__all__ = ["ChunkEvaluator", "DetectionMAP", "EditDistance"]


def _warn(name: str) -> None:
    warnings.warn(
        f"The {name} is deprecated: it changes the program; please use fluid.metrics.{name}.",
        Warning,
        stacklevel=3,
    )


class Evaluator:
    """Base class of metrics that accumulate batches in persistable `states` by ops.

    `metrics` are those of the batch alone. Call `reset` before each pass. Raises ValueError if the
    current block is not the root.
    """

    def __init__(self, name: str, **kwargs: object) -> None:
        _warn(type(self).__name__)
        self.states: list[Variable] = []
        self.metrics: list[Variable] = []
        self.helper = LayerHelper(name, **kwargs)
        if self.helper.main_program.current_block().idx != 0:
            raise ValueError("You can only invoke Evaluator in root block")

    def _create_state(self, suffix: str, dtype: str, shape: Sequence[int] = (1,)) -> Variable:
        name = f"{unique_name.generate(self.helper.name)}_{suffix}"
        state = self.helper.create_variable(
            name=name, persistable=True, dtype=dtype, shape=list(shape)
        )
        self.states.append(state)
        return state

    def _adding(self, suffix: str, dtype: str, of_batch: Variable) -> Variable:
        """Create a state to which every run adds the batch's value."""
        state = self._create_state(suffix, dtype)
        layers.sums([state, of_batch], out=state)
        return state

    def _sums(self, executor: Executor, eval_program: Program | None) -> list[Array]:
        """Return the values of the states, as arrays [1]."""
        program = Program() if eval_program is None else eval_program
        with recording_guard(program):
            block = program.current_block()
            copies = [layers.assign(_here(block, state)) for state in self.states]
        return executor.run(program, fetch_list=copies)

    def reset(self, executor: Executor, reset_program: Program | None = None) -> None:
        """Fill all states with 0, by running ops in `reset_program`."""
        program = Program() if reset_program is None else reset_program
        with recording_guard(program):
            for state in self.states:
                var = _here(program.current_block(), state)
                layers.fill_constant([1], var.dtype, 0.0, out=var)
        executor.run(program)

    def eval(self, executor: Executor, eval_program: Program | None = None) -> object:
        """Return the metric over all batches; NotImplementedError unless overridden."""
        raise NotImplementedError(f"{type(self).__name__} must implement eval")


def _here(block: Block, state: Variable) -> Variable:
    return block.clone_variable(state)


class ChunkEvaluator(Evaluator):
    """Precision, recall and F1 of chunks; the arguments are those of `layers.chunk_eval`."""

    def __init__(
        self,
        input: Variable,
        label: Variable,
        chunk_scheme: str,
        num_chunk_types: int,
        excluded_chunk_types: Sequence[int] | None = None,
    ) -> None:
        super().__init__("chunk_eval")
        scheme = chunk_scheme, num_chunk_types, excluded_chunk_types
        *shares, inferred, real, correct = layers.chunk_eval(input, label, *scheme)
        self.num_infer_chunks = self._adding("num_infer_chunks", "int64", inferred)
        self.num_label_chunks = self._adding("num_label_chunks", "int64", real)
        self.num_correct_chunks = self._adding("num_correct_chunks", "int64", correct)
        self.metrics.extend(shares)

    def eval(
        self, executor: Executor, eval_program: Program | None = None
    ) -> tuple[Array, Array, Array]:
        """Return precision, recall and F1 of all batches: [1] float32 each."""
        inferred, real, correct = (int(total[0]) for total in self._sums(executor, eval_program))
        precision = correct / inferred if inferred else 0.0
        recall = correct / real if real else 0.0
        score = 2 * precision * recall / (precision + recall) if correct else 0.0
        first, second, third = np.array([[precision], [recall], [score]], np.float32)
        return first, second, third


class EditDistance(Evaluator):
    """Mean edit distance and sequence error rate; see `layers.edit_distance`."""

    def __init__(
        self,
        input: Variable,
        label: Variable,
        ignored_tokens: Sequence[int] | None = None,
        **kwargs: object,
    ) -> None:
        super().__init__("edit_distance", **kwargs)
        distances, count = layers.edit_distance(input, label, ignored_tokens=ignored_tokens)
        zero = layers.fill_constant([1], "float32", 0.0)
        right = layers.reduce_sum(layers.cast(layers.equal(distances, zero), "int64"))
        wrong = layers.elementwise_sub(count, right)
        total = layers.reduce_sum(distances)
        self.total_distance = self._adding("total_distance", "float32", total)
        self.seq_num = self._adding("seq_num", "int64", count)
        self.instance_error = self._adding("instance_error", "int64", wrong)
        self.metrics += [total, wrong]

    def eval(self, executor: Executor, eval_program: Program | None = None) -> tuple[Array, Array]:
        """Return the mean distance and the sequence error rate of all batches: [1] float32 each."""
        total, count, wrong = self._sums(executor, eval_program)
        return (total / count).astype(np.float32), (wrong / count).astype(np.float32)


class DetectionMAP(detection_map.DetectionMAP):
    """Mean average precision; alias of `fluid.metrics.DetectionMAP`."""

    def __init__(
        self,
        input: Variable,
        gt_label: Variable,
        gt_box: Variable,
        gt_difficult: Variable | None = None,
        class_num: int | None = None,
        background_label: int = 0,
        overlap_threshold: float = 0.5,
        evaluate_difficult: bool = True,
        ap_version: str = "integral",
    ) -> None:
        _warn("DetectionMAP")
        boxes = input, gt_label, gt_box, gt_difficult, class_num, background_label
        super().__init__(*boxes, overlap_threshold, evaluate_difficult, ap_version)
