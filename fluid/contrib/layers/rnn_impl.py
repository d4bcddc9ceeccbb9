"""LSTM and GRU layers over padded batches, several layers deep and in both directions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from fluid.framework import Variable
from fluid.layers.control.static_rnn import StaticRNN
from fluid.layers.mathematics.arithmetic import elementwise_mul
from fluid.layers.mathematics.indexing import reverse
from fluid.layers.mathematics.shapes import concat, transpose
from fluid.layers.mathematics.shapes import shape as shape_of
from fluid.layers.nn import dropout, reshape
from fluid.layers.sequences.cells import Activation, GRUCell, LSTMCell
from fluid.layers.sequences.sequence import sequence_mask
from fluid.param_attr import ParamAttr

__all__ = ["BasicGRUUnit", "BasicLSTMUnit", "basic_gru", "basic_lstm"]


class BasicGRUUnit:
    """One step of a gated recurrent unit: (input, hidden state) to the next hidden state.

    Input is [rows, features], states are [rows, hidden_size]; the arithmetic is that of
    `layers.GRUCell`. Parameters are called after `name_scope`.
    """

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        dtype: Any = "float32",
    ) -> None:
        self._cell = GRUCell(
            hidden_size, param_attr, bias_attr, gate_activation, activation, dtype, name_scope
        )

    def __call__(self, input: Variable, pre_hidden: Variable) -> Variable:
        """The hidden state after this step."""
        return self._cell(input, pre_hidden)[1]


class BasicLSTMUnit:
    """One step of long short-term memory: (input, hidden, cell) to the next (hidden, cell).

    Input is [rows, features], states are [rows, hidden_size]; the arithmetic is that of
    `layers.LSTMCell`. Parameters are called after `name_scope`. The activations are accepted and
    change nothing, as in 1.8.5.
    """

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        forget_bias: float = 1.0,
        dtype: Any = "float32",
    ) -> None:
        self._cell = LSTMCell(
            hidden_size, param_attr, bias_attr, gate_activation, activation, forget_bias, dtype,
            name_scope,
        )  # fmt: skip

    def __call__(
        self, input: Variable, pre_hidden: Variable, pre_cell: Variable
    ) -> tuple[Variable, Variable]:
        """The hidden state and the cell state after this step."""
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
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Activation | None = None,
    activation: Activation | None = None,
    dtype: Any = "float32",
    name: str = "basic_gru",
) -> tuple[Variable, Variable]:
    """A GRU over [batch, time, features]: the outputs of all steps, the last hidden states.

    With `batch_first=False` input and outputs are [time, batch, …]. States are
    [layers × directions, batch, hidden_size]; `init_hidden=None` begins with zeros. Steps past
    `sequence_length` [batch] keep the state before them. Outputs of both directions are joined
    along the last axis. Dropout is between layers.
    """

    def unit(scope: str, attrs: Attrs) -> Unit:
        gru = BasicGRUUnit(scope, hidden_size, *attrs, gate_activation, activation, dtype)
        return lambda x, states: [gru(x, *states)]

    units = _units(unit, name, num_layers, bidirectional, (param_attr, bias_attr))
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
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Activation | None = None,
    activation: Activation | None = None,
    forget_bias: float = 1.0,
    dtype: Any = "float32",
    name: str = "basic_lstm",
) -> tuple[Variable, Variable, Variable]:
    """An LSTM over [batch, time, features]: outputs of all steps, last hidden and cell states.

    The arguments are those of `basic_gru`; `forget_bias` is added to the forget gate before its
    sigmoid.
    """

    def unit(scope: str, attrs: Attrs) -> Unit:
        lstm = BasicLSTMUnit(
            scope, hidden_size, *attrs, gate_activation, activation, forget_bias, dtype
        )
        return lambda x, states: list(lstm(x, *states))

    units = _units(unit, name, num_layers, bidirectional, (param_attr, bias_attr))
    stack = _Stack(units, hidden_size, dropout_prob, "upscale_in_train")
    states = [init_hidden, None if init_hidden is None else init_cell]
    outputs, (hidden, cell) = stack.run(input, states, sequence_length, batch_first)
    return outputs, hidden, cell


# ---- what both have in common -------------------------------------------------------------------

Attrs = tuple[Any, Any]
"""The attributes of weights and of biases."""
Unit = Callable[[Variable, list[Variable]], list[Variable]]
"""One step: an input and the states before it, to the states after it; the first is the output."""


def _units(
    make: Callable[[str, Attrs], Unit], name: str, layers: int, bidirectional: bool, attrs: Attrs
) -> list[list[Unit]]:
    """The units of each direction, from the first layer on; parameters have the names of 1.8.5."""
    directions = [("", "fw")] + ([("_reverse", "bw")] if bidirectional else [])
    return [
        [
            make(f"{name}{word}_layers_{i}", (_named(attrs[0], f"_{way}_w_{i}"),
                                              _named(attrs[1], f"_{way}_b_{i}")))
            for i in range(layers)
        ]
        for word, way in directions
    ]  # fmt: skip


def _named(attr: Any, suffix: str) -> Any:
    """The attributes with a suffix to their name, where they have one."""
    attr = copy.copy(attr)
    if isinstance(attr, ParamAttr) and attr.name is not None:
        attr.name += suffix
    return attr


class _Stack:
    """Layers of units over time, in one or both directions."""

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
        """Outputs of all steps in the layout of the input, and the last states of all layers."""
        input = transpose(input, [1, 0, 2]) if batch_first else input
        mask = None if lengths is None else _mask(input, lengths)
        shape = [len(self.units[0]), len(self.units), -1, self.hidden_size]
        first = [each if each is None else reshape(each, shape) for each in initial]
        found = [self._direction(i, input, first, mask) for i in range(len(self.units))]
        outputs, lasts = found[0]
        if len(found) == 2:
            outputs = concat([outputs, found[1][0]], axis=2)
            lasts = [self._joined(*pair) for pair in zip(lasts, found[1][1], strict=True)]
        return (transpose(outputs, [1, 0, 2]) if batch_first else outputs), lasts

    def _joined(self, forward: Variable, backward: Variable) -> Variable:
        """Last states of both directions: layer by layer, forward before backward."""
        shape = [len(self.units[0]) * 2, -1, self.hidden_size]
        return reshape(concat([forward, backward], axis=1), shape)

    def _direction(
        self,
        index: int,
        input: Variable,
        first: list[Variable | None],
        mask: Variable | None,
    ) -> tuple[Variable, list[Variable]]:
        """Outputs and last states of one direction; the second one runs from the end."""
        if index:
            input = reverse(input, axis=[0])
            mask = None if mask is None else reverse(mask, axis=[0])
        *steps, outputs = self._recurrence(index, input, first, mask)
        count = len(first)
        lasts = [self._last_of_layers(steps[state::count]) for state in range(count)]
        return (reverse(outputs, axis=[0]) if index else outputs), lasts

    def _last_of_layers(self, steps: list[Variable]) -> Variable:
        """[layers, batch, hidden_size], the last step of each layer's [time, batch, …]."""
        joined = concat([each[-1] for each in steps], axis=0)
        return reshape(joined, [len(steps), -1, self.hidden_size])

    def _recurrence(
        self, index: int, input: Variable, first: list[Variable | None], mask: Variable | None
    ) -> list[Variable]:
        """The states of all layers at all steps, and the outputs of the last layer."""
        units = self.units[index]
        states = [[x if x is None else x[i, index] for x in first] for i in range(len(units))]
        rnn = StaticRNN()
        with rnn.step():
            x = rnn.step_input(input)
            valid = None if mask is None else rnn.step_input(mask)
            for unit, initial in zip(units, states, strict=True):
                before = [self._memory(rnn, input, each) for each in initial]
                after = unit(x, before)
                if valid is not None:
                    after = [_kept(*pair, valid) for pair in zip(after, before, strict=True)]
                for old, new in zip(before, after, strict=True):
                    rnn.update_memory(old, new)
                for new in after:
                    rnn.step_output(new)
                x = self._dropped(after[0])
            rnn.step_output(x)
        return list(rnn())

    def _memory(self, rnn: StaticRNN, input: Variable, initial: Variable | None) -> Variable:
        if initial is not None:
            return rnn.memory(init=initial)
        return rnn.memory(batch_ref=input, shape=[-1, self.hidden_size], ref_batch_dim_idx=1)

    def _dropped(self, x: Variable) -> Variable:
        if not self.dropout_prob:
            return x
        return dropout(x, self.dropout_prob, dropout_implementation=self.dropout_kind)


def _mask(input: Variable, lengths: Variable) -> Variable:
    """[time, batch]: 1 for the steps of a sequence, 0 past its length."""
    mask = sequence_mask(lengths, maxlen=shape_of(input)[0], dtype="float32")
    return transpose(mask, [1, 0])


def _kept(after: Variable, before: Variable, valid: Variable) -> Variable:
    """The state after a step where the sequence goes on, else the one before it."""
    return elementwise_mul(after, valid, axis=0) - elementwise_mul(before, valid - 1, axis=0)
