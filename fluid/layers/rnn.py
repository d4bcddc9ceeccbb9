"""`rnn`, which runs a cell over sequences, and the public names of cells and decoders."""

from __future__ import annotations

from functools import partial

from fluid.framework import Variable
from fluid.layers.control.nested import (
    Structure,
    assert_same_structure,
    flatten,
    map_structure,
    pack_sequence_as,
)
from fluid.layers.control.static_rnn import StaticRNN
from fluid.layers.mathematics.arithmetic import elementwise_mul
from fluid.layers.mathematics.indexing import reverse
from fluid.layers.mathematics.shapes import shape, transpose
from fluid.layers.sequences.beam import beam_search, beam_search_decode, gather_tree
from fluid.layers.sequences.beam_decoder import BeamSearchDecoder
from fluid.layers.sequences.cells import FLOATS, GRUCell, LSTMCell, RNNCell
from fluid.layers.sequences.decoding import (
    BasicDecoder,
    DecodeHelper,
    Decoder,
    GreedyEmbeddingHelper,
    SampleEmbeddingHelper,
    TrainingHelper,
    dynamic_decode,
    swap_batch_and_time,
)
from fluid.layers.sequences.sequence import sequence_mask
from fluid.recording.checks import check_type, check_variable_and_dtype
from fluid.recording.narrowing import is_sequence

__all__ = [
    "BasicDecoder",
    "BeamSearchDecoder",
    "DecodeHelper",
    "Decoder",
    "GRUCell",
    "GreedyEmbeddingHelper",
    "LSTMCell",
    "RNNCell",
    "SampleEmbeddingHelper",
    "TrainingHelper",
    "beam_search",
    "beam_search_decode",
    "dynamic_decode",
    "gather_tree",
    "rnn",
]


def rnn(
    cell: RNNCell,
    inputs: Structure,
    initial_states: Structure = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    is_reverse: bool = False,
    **kwargs: object,
) -> tuple[Structure, Structure]:
    """Run a cell over all steps of `inputs`; returns (outputs, final states).

    `inputs` is [batch, steps, …], or [steps, batch, …] if `time_major`, or a structure of such, and
    so are the outputs. `initial_states` defaults to zeros. States do not change after
    `sequence_length` [batch] steps if it is not None. `is_reverse` begins with the last step.
    `kwargs` are passed to the cell. Raises TypeError for arguments of other types.

    >>> import fluid
    >>> x = fluid.data("x", [None, 7, 4])
    >>> outputs, state = fluid.layers.rnn(fluid.layers.GRUCell(8), x)
    >>> outputs.shape, state.shape
    ((-1, 7, 8), (-1, 8))
    """
    _check(inputs, initial_states, sequence_length)
    if initial_states is None:
        rows = {"batch_dim_idx": 1 if time_major else 0}
        initial_states = cell.get_initial_states(batch_ref=inputs, **rows)
    for state in flatten(initial_states):
        state.stop_gradient = False
    if not time_major:
        inputs = map_structure(swap_batch_and_time, inputs)
    mask = None if sequence_length is None else _mask(sequence_length, inputs, initial_states)
    if is_reverse:
        inputs = map_structure(_reverse, inputs)
        mask = None if mask is None else _reverse(mask)
    outputs, states = _run(cell, inputs, initial_states, mask, kwargs)
    if is_reverse:
        outputs = map_structure(_reverse, outputs)
    if not time_major:
        outputs = map_structure(swap_batch_and_time, outputs)
    return outputs, states


def _check(inputs: object, initial_states: Structure, sequence_length: object) -> None:
    check_type(inputs, "inputs", (Variable, list, tuple), "rnn")
    for index, variable in enumerate(inputs if is_sequence(inputs) else ()):
        check_variable_and_dtype(variable, f"inputs[{index}]", FLOATS, "rnn")
    kinds = (Variable, list, tuple, type(None))
    check_type(initial_states, "initial_states", kinds, "rnn")
    for index, variable in enumerate([] if initial_states is None else flatten(initial_states)):
        check_variable_and_dtype(variable, f"initial_states[{index}]", FLOATS, "rnn")
    check_type(sequence_length, "sequence_length", (Variable, type(None)), "rnn")


def _mask(sequence_length: Variable, inputs: Structure, states: Structure) -> Variable:
    """Return a mask [steps, batch], 1 for valid steps."""
    steps = shape(flatten(inputs)[0])[0]
    mask = sequence_mask(sequence_length, maxlen=steps, dtype=flatten(states)[0].dtype)
    return transpose(mask, [1, 0])


def _reverse(x: Variable) -> Variable:
    return reverse(x, axis=[0])


def _run(
    cell: RNNCell,
    inputs: Structure,
    initial_states: Structure,
    mask: Variable | None,
    kwargs: dict[str, object],
) -> tuple[Structure, Structure]:
    """Return the outputs [steps, …] and final states of a cell; `inputs` is [steps, …]."""
    net = StaticRNN()
    with net.step():
        step = map_structure(net.step_input, inputs)
        states = map_structure(net.memory, initial_states)
        current = map_structure(lambda state: state, states)
        outputs, new_states = cell.call(step, current, **kwargs)
        assert_same_structure(states, new_states)
        if mask is not None:
            keep = partial(_masked_update, mask=net.step_input(mask))
            new_states = map_structure(keep, states, new_states)
        map_structure(net.update_memory, states, new_states)
        map_structure(net.step_output, outputs)
        map_structure(net.step_output, new_states)
    count = len(flatten(outputs))
    collected = net.outputs
    final = [steps_of_state[-1] for steps_of_state in collected[count:]]
    all_outputs = pack_sequence_as(outputs, collected[:count])
    return all_outputs, pack_sequence_as(new_states, final)


def _masked_update(state: Variable, new_state: Variable, mask: Variable) -> Variable:
    """Return `new_state` in the rows where the mask is 1, else `state`."""
    updated = elementwise_mul(new_state, mask, axis=0)
    return updated - elementwise_mul(state, mask - 1, axis=0)
