"""Decoder interface, the decoding loop `dynamic_decode` and helpers that select step inputs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from fluid.framework import Variable, default_main_program
from fluid.layers.control.arrays import (
    array_read,
    array_write,
    create_array,
    tensor_array_to_tensor,
)
from fluid.layers.control.logic import (
    equal,
    increment,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
)
from fluid.layers.control.loops import While
from fluid.layers.control.nested import Structure, map_structure
from fluid.layers.mathematics.activation import softmax
from fluid.layers.mathematics.arithmetic import elementwise_add, elementwise_mul
from fluid.layers.mathematics.indexing import slice
from fluid.layers.mathematics.order import argmax
from fluid.layers.mathematics.random import sampling_id
from fluid.layers.mathematics.reductions import reduce_all
from fluid.layers.mathematics.shapes import pad, squeeze, transpose
from fluid.layers.tensor import (
    assign,
    cast,
    fill_constant,
    fill_constant_batch_size_like,
    zeros_like,
)
from fluid.recording.annotations import DTypeLike
from fluid.recording.checks import convert_dtype

__all__ = [
    "BasicDecoder",
    "DecodeHelper",
    "Decoder",
    "GreedyEmbeddingHelper",
    "SampleEmbeddingHelper",
    "TrainingHelper",
    "dynamic_decode",
]


class Decoder:
    """Interface of the decoders that `dynamic_decode` runs."""

    def initialize(self, inits: Structure) -> Structure:
        """Return the initial (inputs, states, finished)."""
        raise NotImplementedError

    def step(
        self, time: Variable, inputs: Structure, states: Structure, **kwargs: object
    ) -> Structure:
        """Run one step; returns (outputs, next states, next inputs, finished)."""
        raise NotImplementedError

    def finalize(
        self, outputs: Structure, final_states: Structure, sequence_lengths: Variable
    ) -> Structure:
        """Return the final (outputs, states); override to post-process those of all steps."""
        raise NotImplementedError


def dynamic_decode(
    decoder: Decoder,
    inits: Structure = None,
    max_step_num: int | None = None,
    output_time_major: bool = False,
    impute_finished: bool = False,
    is_test: bool = False,
    return_length: bool = False,
    **kwargs: object,
) -> Structure:
    """Run a decoder until all batch entries are finished, or for `max_step_num` steps.

    Returns (outputs, final states), and also the lengths if `return_length`. Outputs are [batch,
    steps, …], or [steps, batch, …] if `output_time_major`. `impute_finished` keeps the states of
    finished entries unchanged; `is_test` saves the memory needed for the backward pass. `kwargs`
    are passed to `decoder.step`.
    """
    loop = _Decoding(decoder, inits, max_step_num, is_test)
    with loop.while_op.block():
        loop.step(impute_finished, kwargs)
    outputs, states = loop.results()
    with suppress(NotImplementedError):
        outputs, states = decoder.finalize(outputs, states, loop.lengths)
    if not output_time_major:
        outputs = map_structure(swap_batch_and_time, outputs)
    return (outputs, states, loop.lengths) if return_length else (outputs, states)


def swap_batch_and_time(x: Variable) -> Variable:
    """Swap the first two axes (time and batch)."""
    return transpose(x, [1, 0, *range(2, len(x.shape))])


class _Decoding:
    """The loop of `dynamic_decode` and its loop-carried variables.

    For training, inputs and states of all steps are stored in arrays; otherwise they are
    overwritten.
    """

    def __init__(self, decoder: Decoder, inits: Structure, max_step_num: int | None, is_test: bool):
        self.decoder, self.is_test = decoder, is_test
        self.inputs, self.states, self.finished = decoder.initialize(inits)
        self.finished.stop_gradient = True
        self.time = fill_constant(shape=[1], dtype="int64", value=0)
        self.condition = logical_not(reduce_all(self.finished))
        self.last = None
        if max_step_num is not None:
            self.last = fill_constant(shape=[1], dtype="int64", value=max_step_num)
        self.while_op = While(self.condition, is_test=is_test)
        self.lengths = cast(zeros_like(self.finished), "int64")
        self.lengths.stop_gradient = True
        self.arrays: Structure = None
        if not is_test:
            write = partial(array_write, i=self.time)
            self.arrays = map_structure(write, self.inputs), map_structure(write, self.states)
        self.outputs: Structure = None

    def step(self, impute_finished: bool, kwargs: dict[str, object]) -> None:
        """Append the layers of one step to the loop body."""
        inputs, states = self.inputs, self.states
        if self.arrays is not None:
            read = partial(array_read, i=self.time)
            inputs, states = (map_structure(read, arrays) for arrays in self.arrays)
        outputs, next_states, next_inputs, finished = self.decoder.step(
            self.time, inputs, states, **kwargs
        )
        finished = logical_or(finished, self.finished)
        more = cast(logical_not(self.finished), self.lengths.dtype)
        lengths = elementwise_add(self.lengths, more)
        if impute_finished:
            keep = partial(_select_rows, mask=self.finished)
            next_states = map_structure(keep, states, next_states)
        self.outputs = map_structure(lambda x: _array_in_parent(x.dtype), outputs)
        self._collect(outputs, self.outputs)
        increment(self.time, value=1.0, in_place=True)
        self._update_loop_variables(next_inputs, next_states)
        assign(finished, self.finished)
        assign(lengths, self.lengths)
        self._update_condition()

    def _collect(self, values: Structure, arrays: Structure) -> None:
        map_structure(lambda x, array: array_write(x, self.time, array), values, arrays)

    def _update_loop_variables(self, inputs: Structure, states: Structure) -> None:
        if self.arrays is None:
            map_structure(assign, inputs, self.inputs)
            map_structure(assign, states, self.states)
            return
        self._collect(inputs, self.arrays[0])
        self._collect(states, self.arrays[1])

    def _update_condition(self) -> None:
        condition = None if self.last is not None else self.condition
        unfinished = logical_not(reduce_all(self.finished), condition)
        if self.last is not None:
            logical_and(unfinished, less_equal(self.time, self.last), self.condition)

    def results(self) -> tuple[Structure, Structure]:
        """Return the outputs of all steps, and the final states."""

        def stacked(array: Variable) -> Variable:
            return tensor_array_to_tensor(array, axis=0, use_stack=True)[0]

        outputs = map_structure(stacked, self.outputs)
        if self.arrays is None:
            return outputs, self.states
        return outputs, map_structure(lambda array: array_read(array, self.time), self.arrays[1])


def _array_in_parent(dtype: DTypeLike) -> Variable:
    """Create a tensor array in the parent block."""
    program = default_main_program()
    inside = program.current_block_idx
    program.current_block_idx = program.current_block().parent_idx
    try:
        return create_array(dtype)
    finally:
        program.current_block_idx = inside


def _select_rows(state: Variable, new_state: Variable, mask: Variable) -> Variable:
    """Return `state` in the rows where `mask` is true, else `new_state`."""
    dtype = state.dtype
    is_bool = convert_dtype(dtype) == "bool"
    if is_bool:
        state, new_state = cast(state, "float32"), cast(new_state, "float32")
    if mask.dtype != state.dtype:
        mask = cast(mask, state.dtype)
        mask.stop_gradient = True
    retained = elementwise_mul(state, mask, axis=0)
    result = retained - elementwise_mul(new_state, mask - 1, axis=0)
    return cast(result, dtype) if is_bool else result


# ---- helpers: step inputs -----------------------------------------------------------------------


class DecodeHelper:
    """Interface of the helpers of `BasicDecoder`, which sample and select the next inputs."""

    def initialize(self) -> Structure:
        """Return the initial (inputs, finished)."""

    def sample(self, time: Variable, outputs: Structure, states: Structure) -> Structure:
        """Return the samples (such as word ids) for the outputs of a step."""

    def next_inputs(
        self, time: Variable, outputs: Structure, states: Structure, sample_ids: Structure
    ) -> Structure:
        """Return (finished, inputs, states) of the next step."""


class TrainingHelper(DecodeHelper):
    """Helper that feeds the ground-truth sequence (teacher forcing).

    `inputs` is [batch, steps, …], or [steps, batch, …] if `time_major`, or a structure of such;
    `sequence_length` [batch] is the number of valid steps.
    """

    def __init__(
        self, inputs: Structure, sequence_length: Variable, time_major: bool = False
    ) -> None:
        self.inputs = inputs
        self.sequence_length = sequence_length
        self.time_major = time_major
        # One extra step, so that reading past the last step needs no special case.
        self.inputs_ = map_structure(self._pad_one_step, inputs)

    def _pad_one_step(self, x: Variable) -> Variable:
        around = [0, 1] if self.time_major else [0, 0, 0, 1]
        return pad(x, paddings=around + [0, 0] * (len(x.shape) - len(around) // 2))

    def initialize(self) -> tuple[Structure, Variable]:
        """Return the first step's inputs; sequences of length 0 are finished."""
        none = fill_constant(shape=[1], dtype=self.sequence_length.dtype, value=0)
        finished = equal(self.sequence_length, none)
        first = map_structure(lambda x: x[0] if self.time_major else x[:, 0], self.inputs)
        return first, finished

    def sample(self, time: Variable, outputs: Structure, states: Structure) -> Variable:
        """Return the argmax of the outputs."""
        return argmax(outputs, axis=-1)

    def next_inputs(
        self, time: Variable, outputs: Structure, states: Structure, sample_ids: Structure
    ) -> tuple[Variable, Structure, Structure]:
        """Return the ground-truth inputs of the next step, independent of the samples."""
        if convert_dtype(time.dtype) != "int32":
            time = cast(time, "int32")
        if self.sequence_length.dtype != time.dtype:
            self.sequence_length = cast(self.sequence_length, time.dtype)
        following = time + 1
        finished = less_equal(self.sequence_length, following)
        axes = [0 if self.time_major else 1]

        def step(x: Variable) -> Variable:
            part = slice(x, axes=axes, starts=[following], ends=[following + 1])
            return squeeze(part, axes=axes)

        return finished, map_structure(step, self.inputs_), states


class GreedyEmbeddingHelper(DecodeHelper):
    """Helper that feeds the embedding of the most probable word of the previous step.

    `start_tokens` [batch] are the first words; a sequence is finished at `end_token`.
    """

    def __init__(
        self, embedding_fn: Callable[[Variable], Structure], start_tokens: Variable, end_token: int
    ) -> None:
        self.embedding_fn = embedding_fn
        self.start_tokens = start_tokens
        self.end_token = fill_constant(shape=[1], dtype="int64", value=end_token)

    def initialize(self) -> tuple[Structure, Variable]:
        """Return the embedding of the start tokens; nothing is finished."""
        finished = fill_constant_batch_size_like(
            input=self.start_tokens, shape=[-1], dtype="bool", value=False, force_cpu=True
        )
        return self.embedding_fn(self.start_tokens), finished

    def sample(self, time: Variable, outputs: Structure, states: Structure) -> Variable:
        """Return the most probable word."""
        return argmax(outputs, axis=-1)

    def next_inputs(
        self, time: Variable, outputs: Structure, states: Structure, sample_ids: Structure
    ) -> tuple[Variable, Structure, Structure]:
        """Return the embedding of the selected words."""
        finished = equal(sample_ids, self.end_token)
        return finished, self.embedding_fn(sample_ids), states


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Like `GreedyEmbeddingHelper`, with words sampled from the output distribution.

    Logits are divided by `softmax_temperature`; `seed` makes sampling reproducible.
    """

    def __init__(
        self,
        embedding_fn: Callable[[Variable], Structure],
        start_tokens: Variable,
        end_token: int,
        softmax_temperature: float | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(embedding_fn, start_tokens, end_token)
        self.softmax_temperature = None
        if softmax_temperature is not None:
            self.softmax_temperature = fill_constant([1], "float32", softmax_temperature)
        self.seed = seed

    def sample(self, time: Variable, outputs: Structure, states: Structure) -> Variable:
        """Return word ids sampled from the distribution."""
        if self.softmax_temperature is not None:
            outputs = outputs / self.softmax_temperature
        probabilities = softmax(outputs)
        probabilities.stop_gradient = True
        return sampling_id(probabilities, seed=self.seed, dtype=self.start_tokens.dtype)


class BasicDecoder(Decoder):
    """A decoder of a cell and a helper; `output_fn` is applied to the cell outputs."""

    class OutputWrapper(NamedTuple):
        """Outputs of a step: cell outputs and samples."""

        cell_outputs: Structure
        sample_ids: Structure

    def __init__(
        self,
        cell: Structure,
        helper: DecodeHelper,
        output_fn: Callable[[Structure], Structure] | None = None,
    ) -> None:
        self.cell = cell
        self.helper = helper
        self.output_fn = output_fn

    # The parameters and their names are Paddle's.
    def initialize(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, initial_cell_states: Structure
    ) -> tuple[Structure, Structure, Variable]:
        """Return the helper's initial inputs and the initial cell states."""
        inputs, finished = self.helper.initialize()
        return inputs, initial_cell_states, finished

    def step(
        self, time: Variable, inputs: Structure, states: Structure, **kwargs: object
    ) -> Structure:
        """Run the cell, then sample and select the next inputs with the helper."""
        outputs, states = self.cell(inputs, states, **kwargs)
        if self.output_fn is not None:
            outputs = self.output_fn(outputs)
        words = self.helper.sample(time=time, outputs=outputs, states=states)
        words.stop_gradient = True
        finished, inputs, states = self.helper.next_inputs(
            time=time, outputs=outputs, states=states, sample_ids=words
        )
        return self.OutputWrapper(outputs, words), states, inputs, finished
