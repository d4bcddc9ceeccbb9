"""`BeamSearchDecoder`: beam search over the outputs of a recurrent cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fluid.framework import Variable
from fluid.layers.control.logic import equal, logical_not, logical_or
from fluid.layers.control.nested import Structure, flatten, map_structure
from fluid.layers.mathematics.activation import softmax
from fluid.layers.mathematics.arithmetic import (
    elementwise_add,
    elementwise_floordiv,
    elementwise_mod,
    elementwise_mul,
)
from fluid.layers.mathematics.indexing import gather_nd
from fluid.layers.mathematics.order import topk
from fluid.layers.mathematics.shapes import expand, shape, stack, transpose, unsqueeze
from fluid.layers.nn import reshape
from fluid.layers.ops import log
from fluid.layers.sequences.beam import gather_tree
from fluid.layers.sequences.decoding import Decoder
from fluid.layers.tensor import (
    assign,
    cast,
    fill_constant,
    fill_constant_batch_size_like,
    range,
    zeros_like,
)
from fluid.recording.checks import check_variable

__all__ = ["BeamSearchDecoder"]

SCORE_PENALTY = 1e9
"""Subtracted from the score of candidates that must not be selected."""


class BeamSearchDecoder(Decoder):
    """A decoder that keeps the `beam_size` best hypotheses of each batch entry at every step.

    `embedding_fn` maps word ids [batch, beams] to cell inputs, `output_fn` maps cell outputs to
    logits over the vocabulary. Sentences begin with `start_token` and end with `end_token`. Pass it
    to `dynamic_decode`, with the initial cell states as `inits`.
    """

    class OutputWrapper(NamedTuple):
        """Outputs of a step per beam: score, word id and parent beam."""

        scores: Variable
        predicted_ids: Variable
        parent_ids: Variable

    class StateWrapper(NamedTuple):
        """Loop state: cell states, log-probabilities, finished flags and lengths of the beams."""

        cell_states: Structure
        log_probs: Variable
        finished: Variable
        lengths: Variable

    def __init__(
        self,
        cell: Structure,
        start_token: int,
        end_token: int,
        beam_size: int,
        embedding_fn: Callable[[Variable], Structure] | None = None,
        output_fn: Callable[[Structure], Structure] | None = None,
    ) -> None:
        self.cell = cell
        self.embedding_fn = embedding_fn
        self.output_fn = output_fn
        self.start_token = start_token
        self.end_token = end_token
        self.beam_size = beam_size

    @staticmethod
    def tile_beam_merge_with_batch(x: Variable, beam_size: int) -> Variable:
        """Repeat each batch entry `beam_size` times: [batch, …] to [batch * beam_size, …]."""
        check_variable(x, "x", "BeamSearchDecoder.tile_beam_merge_with_batch")
        x = unsqueeze(x, [1])
        rank = len(x.shape)
        x = expand(x, [1, beam_size, *[1] * (rank - 2)])
        # Move batch and beams to the end and flatten them there: sizes may be dynamic.
        x = transpose(x, [*_axes(2, rank), 0, 1])
        x = reshape(x, shape=[0] * (rank - 2) + [-1])
        return transpose(x, [rank - 2, *_axes(0, rank - 2)])

    def _split_batch_beams(self, x: Variable) -> Variable:
        """Reshape [batch * beams, …] to [batch, beams, …]."""
        check_variable(x, "x", "BeamSearchDecoder._split_batch_beams")
        return reshape(x, shape=[-1, self.beam_size, *x.shape[1:]])

    def _merge_batch_beams(self, x: Variable) -> Variable:
        """Reshape [batch, beams, …] to [batch * beams, …]."""
        check_variable(x, "x", "BeamSearchDecoder._merge_batch_beams")
        return reshape(x, shape=[-1, *x.shape[2:]])

    def _expand_to_beam_size(self, x: Variable) -> Variable:
        """Repeat each batch entry for all beams: [batch, …] to [batch, beams, …]."""
        check_variable(x, "x", "BeamSearchDecoder._expand_to_beam_size")
        x = unsqueeze(x, [1])
        return expand(x, [1, self.beam_size, *[1] * (len(x.shape) - 2)])

    def _mask_probs(self, probs: Variable, finished: Variable) -> Variable:
        """Mask log-probabilities of finished beams so that only `end_token` can follow."""
        finished = cast(finished, dtype=probs.dtype)
        whole = expand(unsqueeze(finished, [2]), [1, 1, self.vocab_size])
        ended = elementwise_mul(whole, self.noend_mask_tensor, axis=-1)
        return ended - elementwise_mul(probs, finished - 1, axis=0)

    def _gather(self, x: Variable, indices: Variable, batch_size: Variable) -> Variable:
        """Gather the beams of `x` [batch, beams, …] at `indices` [batch, beams]."""
        if batch_size.dtype != indices.dtype:
            batch_size = cast(batch_size, indices.dtype)
        batch_size.stop_gradient = True
        batch_indices = unsqueeze(range(0, batch_size, 1, dtype=indices.dtype), [1])
        both = stack([expand(batch_indices, [1, self.beam_size]), indices], axis=2)
        both.stop_gradient = True
        return gather_nd(x, both)

    # The parameters and their names are Paddle's.
    def initialize(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, initial_cell_states: Structure
    ) -> tuple[Structure, Structure, Variable]:
        """Start every beam with `start_token`; only beam 0 has a finite score."""
        state = flatten(initial_cell_states)[0]
        self.batch_size = shape(state)[0]
        self.start_token_tensor = fill_constant([1], "int64", self.start_token)
        self.end_token_tensor = fill_constant([1], "int64", self.end_token)
        states = map_structure(self._expand_to_beam_size, initial_cell_states)
        starts = unsqueeze(expand(self.start_token_tensor, [self.batch_size]), [1])
        inputs = expand(starts, [1, self.beam_size])
        initial_scores = np.array([[0.0] + [-SCORE_PENALTY] * (self.beam_size - 1)], "float32")
        log_probs = expand(assign(initial_scores), [self.batch_size, 1])
        finished = fill_constant_batch_size_like(
            input=state, shape=[-1, self.beam_size], dtype="bool", value=False, force_cpu=True
        )
        lengths = zeros_like(inputs)
        inputs = self.embedding_fn(inputs) if self.embedding_fn else inputs
        return inputs, self.StateWrapper(states, log_probs, finished, lengths), finished

    def step(
        self, time: Variable, inputs: Structure, states: Structure, **kwargs: object
    ) -> Structure:
        """Run the cell for all beams, then select the best continuations."""
        inputs = map_structure(self._merge_batch_beams, inputs)
        cell_states = map_structure(self._merge_batch_beams, states.cell_states)
        outputs, cell_states = self.cell(inputs, cell_states, **kwargs)
        outputs = map_structure(self._split_batch_beams, outputs)
        cell_states = map_structure(self._split_batch_beams, cell_states)
        if self.output_fn is not None:
            outputs = self.output_fn(outputs)
        step_output, after = self._beam_search_step(time, outputs, cell_states, states)
        words = step_output.predicted_ids
        words.stop_gradient = True
        next_inputs = self.embedding_fn(words) if self.embedding_fn else words
        return step_output, after, next_inputs, after.finished

    def _beam_search_step(
        self, time: Variable, logits: Variable, next_cell_states: Structure, beam_state: Structure
    ) -> tuple[Structure, Structure]:
        """Select the top words over all beams; return the step outputs and the new state."""
        self._set_vocabulary(logits.shape[-1])
        step_log_probs = self._mask_probs(log(softmax(logits)), beam_state.finished)
        log_probs = elementwise_add(step_log_probs, beam_state.log_probs, axis=0)
        scores = reshape(log_probs, [-1, self.beam_size * self.vocab_size])
        best, flat_indices = topk(input=scores, k=self.beam_size)
        beams = elementwise_floordiv(flat_indices, self.vocab_size_tensor)
        words = elementwise_mod(flat_indices, self.vocab_size_tensor)
        whole = reshape(log_probs, [-1, self.beam_size * self.vocab_size])
        totals = self._gather(whole, flat_indices, self.batch_size)
        cell_states = map_structure(
            lambda x: self._gather(x, beams, self.batch_size), next_cell_states
        )
        finished = self._gather(beam_state.finished, beams, self.batch_size)
        lengths = self._gather(beam_state.lengths, beams, self.batch_size)
        lengths = lengths + cast(logical_not(finished), beam_state.lengths.dtype)
        finished = logical_or(finished, equal(words, self.end_token_tensor))
        step_output = self.OutputWrapper(best, words, beams)
        return step_output, self.StateWrapper(cell_states, totals, finished, lengths)

    def _set_vocabulary(self, count: int) -> None:
        """Record the vocabulary size and build the mask for finished beams."""
        self.vocab_size = count
        self.vocab_size_tensor = fill_constant([1], "int64", count)
        mask = np.full([count], -SCORE_PENALTY, "float32")
        mask[self.end_token] = 0.0
        self.noend_mask_tensor = assign(mask)

    def finalize(
        self, outputs: Structure, final_states: Structure, sequence_lengths: Structure
    ) -> tuple[Structure, Structure]:
        """Backtrack to the sentences of all beams [steps, batch, beams]; return them and the
        states.
        """
        return gather_tree(outputs.predicted_ids, outputs.parent_ids), final_states


def _axes(start: int, stop: int) -> list[int]:
    """Return the axes start … stop - 1 (`range` is a layer here).

    >>> _axes(2, 5)
    [2, 3, 4]
    """
    return np.arange(start, stop).tolist()
