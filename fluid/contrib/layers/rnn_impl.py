"""Multi-layer, optionally bidirectional LSTM and GRU over padded batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from fluid.framework import Variable
from fluid.layers.control.static_rnn import StaticRNN
from fluid.layers.mathematics.arithmetic import elementwise_mul
from fluid.layers.mathematics.indexing import reverse
from fluid.layers.mathematics.shapes import concat, transpose
from fluid.layers.mathematics.shapes import shape as shape_of
from fluid.layers.nn import dropout, reshape
from fluid.layers.sequences.cells import Activation, GRUCell, LSTMCell
from fluid.layers.sequences.sequence import sequence_mask
from fluid.param_attr import ParamAttr, ParamAttrLike
from fluid.recording.annotations import DTypeLike

__all__ = ["BasicGRUUnit", "BasicLSTMUnit", "basic_gru", "basic_lstm"]


class BasicGRUUnit:
    """One GRU step: (input, hidden state) to the next hidden state.

    Input is [rows, features], states are [rows, hidden_size]; computes the same as
    `layers.GRUCell`. Parameters are named after `name_scope`.
    """

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        self._cell = GRUCell(
            hidden_size, param_attr, bias_attr, gate_activation, activation, dtype, name_scope
        )

    def __call__(self, input: Variable, pre_hidden: Variable) -> Variable:
        """Return the hidden state after this step."""
        return self._cell(input, pre_hidden)[1]


class BasicLSTMUnit:
    """One LSTM step: (input, hidden, cell) to the next (hidden, cell).

    Input is [rows, features], states are [rows, hidden_size]; computes the same as
    `layers.LSTMCell`. Parameters are named after `name_scope`. The activation arguments have no
    effect, as in 1.8.5.
    """

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        forget_bias: float = 1.0,
        dtype: DTypeLike = "float32",
    ) -> None:
        self._cell = LSTMCell(
            hidden_size, param_attr, bias_attr, gate_activation, activation, forget_bias, dtype,
            name_scope,
        )  # fmt: skip

    def __call__(
        self, input: Variable, pre_hidden: Variable, pre_cell: Variable
    ) -> tuple[Variable, Variable]:
        """Return the hidden state and the cell state after this step."""
        hidden, cell = self._cell(input, [pre_hidden, pre_cell])[1]
        return hidden, cell


def basic_gru(
    input: Variable,
    init_hidden: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    gate_activation: Activation | None = None,
    activation: Activation | None = None,
    dtype: DTypeLike = "float32",
    name: str = "basic_gru",
) -> tuple[Variable, Variable]:
    """GRU over [batch, time, features]: the outputs of all steps and the last hidden states.

    With `batch_first=False` input and outputs are [time, batch, …]. States are [layers ×
    directions, batch, hidden_size]; `init_hidden=None` means zeros. Steps past `sequence_length`
    [batch] do not change the state. Outputs of both directions are concatenated along the last
    axis. Dropout is applied between layers.
    """

    def unit(scope: str, attrs: Attrs) -> Unit:
        gru = BasicGRUUnit(scope, hidden_size, *attrs, gate_activation, activation, dtype)
        return lambda x, states: [gru(x, *states)]

    units = _create_units(unit, name, num_layers, bidirectional, (param_attr, bias_attr))
    stack = _Stack(units, hidden_size, dropout_prob, "downgrade_in_infer")
    outputs, (hidden,) = stack.run(input, [init_hidden], sequence_length, batch_first)
    return outputs, hidden


def basic_lstm(
    input: Variable,
    init_hidden: Variable | None,
    init_cell: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    gate_activation: Activation | None = None,
    activation: Activation | None = None,
    forget_bias: float = 1.0,
    dtype: DTypeLike = "float32",
    name: str = "basic_lstm",
) -> tuple[Variable, Variable, Variable]:
    """LSTM over [batch, time, features]: outputs of all steps, last hidden and cell states.

    The arguments are those of `basic_gru`; `forget_bias` is added to the forget gate before its
    sigmoid.
    """

    def unit(scope: str, attrs: Attrs) -> Unit:
        lstm = BasicLSTMUnit(
            scope, hidden_size, *attrs, gate_activation, activation, forget_bias, dtype
        )
        return lambda x, states: list(lstm(x, *states))

    units = _create_units(unit, name, num_layers, bidirectional, (param_attr, bias_attr))
    stack = _Stack(units, hidden_size, dropout_prob, "upscale_in_train")
    states = [init_hidden, None if init_hidden is None else init_cell]
    outputs, (hidden, cell) = stack.run(input, states, sequence_length, batch_first)
    return outputs, hidden, cell


# ---- shared by LSTM and GRU ---------------------------------------------------------------------

Attrs: TypeAlias = tuple[ParamAttrLike, ParamAttrLike]
"""The attributes of weights and of biases."""
Unit: TypeAlias = Callable[[Variable, list[Variable]], list[Variable]]
"""One step: (input, previous states) to the new states, of which the first is the output."""


def _create_units(
    make: Callable[[str, Attrs], Unit], name: str, layers: int, bidirectional: bool, attrs: Attrs
) -> list[list[Unit]]:
    """Return the units of each direction, by layer; parameter names are those of 1.8.5."""
    directions = [("", "fw")] + ([("_reverse", "bw")] if bidirectional else [])
    return [
        [
            make(f"{name}{word}_layers_{i}", (_with_suffix(attrs[0], f"_{way}_w_{i}"),
                                              _with_suffix(attrs[1], f"_{way}_b_{i}")))
            for i in range(layers)
        ]
        for word, way in directions
    ]  # fmt: skip


def _with_suffix(attr: ParamAttrLike, suffix: str) -> ParamAttrLike:
    """Return a parameter attribute with a suffix appended to its name, if it has one."""
    attr = copy.copy(attr)
    if isinstance(attr, ParamAttr) and attr.name is not None:
        attr.name += suffix
    return attr


class _Stack:
    """A stack of recurrent layers in one or both directions."""

    def __init__(
        self,
        units: list[list[Unit]],
        hidden_size: int,
        dropout_prob: float | None,
        dropout_kind: str,
    ) -> None:
        self.units, self.hidden_size = units, hidden_size
        self.dropout_prob, self.dropout_kind = dropout_prob or 0.0, dropout_kind

    def run(
        self,
        input: Variable,
        initial: Sequence[Variable | None],
        lengths: Variable | None,
        batch_first: bool,
    ) -> tuple[Variable, list[Variable]]:
        """Return the outputs of all steps in the layout of the input, and all layers' last
        states.
        """
        input = transpose(input, [1, 0, 2]) if batch_first else input
        mask = None if lengths is None else _mask(input, lengths)
        shape = [len(self.units[0]), len(self.units), -1, self.hidden_size]
        first = [state if state is None else reshape(state, shape) for state in initial]
        results = [self._direction(i, input, first, mask) for i in range(len(self.units))]
        outputs, lasts = results[0]
        if len(results) == 2:
            outputs = concat([outputs, results[1][0]], axis=2)
            lasts = [self._interleave(*pair) for pair in zip(lasts, results[1][1], strict=True)]
        return (transpose(outputs, [1, 0, 2]) if batch_first else outputs), lasts

    def _interleave(self, forward: Variable, backward: Variable) -> Variable:
        """Interleave the last states of both directions by layer, forward before backward."""
        shape = [len(self.units[0]) * 2, -1, self.hidden_size]
        return reshape(concat([forward, backward], axis=1), shape)

    def _direction(
        self,
        index: int,
        input: Variable,
        first: list[Variable | None],
        mask: Variable | None,
    ) -> tuple[Variable, list[Variable]]:
        """Return the outputs and last states of one direction; direction 1 runs in reverse."""
        if index:
            input = reverse(input, axis=[0])
            mask = None if mask is None else reverse(mask, axis=[0])
        *steps, outputs = self._recurrence(index, input, first, mask)
        count = len(first)
        lasts = [self._last_of_layers(steps[state::count]) for state in range(count)]
        return (reverse(outputs, axis=[0]) if index else outputs), lasts

    def _last_of_layers(self, steps: list[Variable]) -> Variable:
        """Return [layers, batch, hidden_size], the last step of each layer's [time, batch, …]."""
        joined = concat([step[-1] for step in steps], axis=0)
        return reshape(joined, [len(steps), -1, self.hidden_size])

    def _recurrence(
        self, index: int, input: Variable, first: list[Variable | None], mask: Variable | None
    ) -> list[Variable]:
        """Return the states of all layers at all steps, and the outputs of the last layer."""
        units = self.units[index]
        states = [[x if x is None else x[i, index] for x in first] for i in range(len(units))]
        rnn = StaticRNN()
        with rnn.step():
            x = rnn.step_input(input)
            valid = None if mask is None else rnn.step_input(mask)
            for unit, initial in zip(units, states, strict=True):
                before = [self._memory(rnn, input, state) for state in initial]
                after = unit(x, before)
                if valid is not None:
                    after = [
                        _select_valid(*pair, valid) for pair in zip(after, before, strict=True)
                    ]
                for old, new in zip(before, after, strict=True):
                    rnn.update_memory(old, new)
                for new in after:
                    rnn.step_output(new)
                x = self._dropout(after[0])
            rnn.step_output(x)
        return [*cast(list[Variable], rnn())]

    def _memory(self, rnn: StaticRNN, input: Variable, initial: Variable | None) -> Variable:
        if initial is not None:
            return rnn.memory(init=initial)
        return rnn.memory(batch_ref=input, shape=[-1, self.hidden_size], ref_batch_dim_idx=1)

    def _dropout(self, x: Variable) -> Variable:
        if not self.dropout_prob:
            return x
        return dropout(x, self.dropout_prob, dropout_implementation=self.dropout_kind)


def _mask(input: Variable, lengths: Variable) -> Variable:
    """Return a mask [time, batch]: 1 for valid steps, 0 past the sequence length."""
    mask = sequence_mask(lengths, maxlen=shape_of(input)[0], dtype="float32")
    return transpose(mask, [1, 0])


def _select_valid(after: Variable, before: Variable, valid: Variable) -> Variable:
    """Return the new state for valid rows, else the previous one."""
    return elementwise_mul(after, valid, axis=0) - elementwise_mul(before, valid - 1, axis=0)
