"""Multi-layer LSTM, optionally bidirectional, over sequences of one length.

The reference runs it on cuDNN only, and so uses its weight layout: for each layer (and direction)
the matrices of the gates input, forget, candidate, output, [hidden, size] for the input and
[hidden, hidden] for the state; and after all matrices two biases for each gate, in the same order.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, required, writes
from compiler.ir.opdef.attribute_bounds import at_least, between
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.sequence.lstm_cell import memory_gradient, run_memory
from compiler.ops.sequence.time_steps import require_shape
from compiler.ops.shape.random import generator
from compiler.ops.type_checks import require_same_dtype

Run: TypeAlias = "tuple[Array, Array, Array, Array, Array]"
"""A layer's inputs, gates and activated cells, a row per step and sequence; and states and cells,
stacked below the initial ones.
"""
Weights: TypeAlias = "tuple[Array, Array, Array]"
"""Input weights [size, 4 · hidden], state weights [hidden, 4 · hidden], bias [4 · hidden]."""


def weight_places(
    size: int, hidden: int, layers: int, directions: int
) -> list[tuple[int, int, int]]:
    """The offsets of the matrices and biases of each layer and direction, and its input size.

    >>> weight_places(3, 2, 2, 1)
    [(0, 72, 3), (40, 88, 2)]
    """
    sizes = [size] * directions + [hidden * directions] * directions * (layers - 1)
    counts = [4 * hidden * (below + hidden) for below in sizes]
    starts = [sum(counts[:index]) for index in range(len(counts) + 1)]
    return [
        (starts[index], starts[-1] + 8 * hidden * index, below) for index, below in enumerate(sizes)
    ]


def weights_at(W: Array, place: tuple[int, int, int], hidden: int) -> Weights:
    """Read a layer's weights from W, gates in the order of `lstm_step`."""
    start, bias, below = place
    middle, order = start + 4 * hidden * below, [2, 0, 1, 3]
    outer = W[start:middle].reshape(4, hidden, below)[order]
    inner = W[middle : middle + 4 * hidden * hidden].reshape(4, hidden, hidden)[order]
    biases = W[bias : bias + 8 * hidden].reshape(2, 4, hidden).sum(axis=0)[order]
    return outer.reshape(-1, below).T, inner.reshape(-1, hidden).T, biases.reshape(-1)


def put_weights(W: Array, place: tuple[int, int, int], weights: Weights) -> None:
    """Write a layer's weights, or their gradients, to W; both biases get the same values."""
    start, bias, below = place
    hidden, order = len(weights[1]), [1, 2, 0, 3]
    middle = start + 4 * hidden * below
    outer, inner = (weight.T.reshape(4, hidden, -1)[order] for weight in weights[:2])
    W[start:middle] = outer.reshape(-1)
    W[middle : middle + 4 * hidden * hidden] = inner.reshape(-1)
    W[bias : bias + 8 * hidden] = np.tile(weights[2].reshape(4, hidden)[order].reshape(-1), 2)


def step_starts(length: int, batch: int) -> Array:
    """The first row of each step, when all sequences of a batch have the same length."""
    return np.arange(length + 1) * batch


def run_layer(seen: Array, state: Array, cell: Array, weights: Weights) -> Run:
    """Run one direction of a layer over [length, batch, size], from the initial state and cell."""
    (outer, inner, bias), (length, batch, size) = weights, seen.shape
    rows = seen.reshape(length * batch, size)
    gates, starts = rows @ outer + bias, step_starts(length, batch)
    states, cells = (np.empty((len(rows) + batch, len(inner)), seen.dtype) for _ in range(2))
    states[:batch], cells[:batch] = state, cell
    rule = ("logistic", "tanh", "tanh"), None, 0.0
    active, _ = run_memory(gates, starts, states, cells, inner, rule, None)
    return rows, gates, active, states, cells


def run_gradient(
    run: Run, weights: Weights, d_out: Array, d_state: Array, d_cell: Array
) -> tuple[Array, Array, Array, Weights]:
    """The gradients of a layer's input, of its initial state and cell, and of its weights.

    `d_out` [length, batch, hidden] is the gradient of the output, `d_state` and `d_cell` those of
    the final state and cell.
    """
    rows, gates, active, states, cells = run
    length, batch, hidden = d_out.shape
    d_states, d_cells = np.zeros_like(states), np.zeros_like(cells)
    d_states[batch:] = d_out.reshape(-1, hidden)
    d_states[len(rows) :] += d_state
    d_cells[len(rows) :] += d_cell
    rule = ("logistic", "tanh", "tanh"), None, 0.0
    d_gates = memory_gradient(
        d_states, step_starts(length, batch), states, cells, gates, active, weights[1], rule,
        None, d_cells,
    )  # fmt: skip
    d_weights = rows.T @ d_gates, states[: len(rows)].T @ d_gates, d_gates.sum(axis=0)
    d_seen = (d_gates @ weights[0].T).reshape(length, batch, len(weights[0]))
    return d_seen, d_states[:batch], d_cells[:batch], d_weights


def run_layers(
    Input: Array,
    InitH: Array,
    InitC: Array,
    W: Array,
    sizes: tuple[int, int, int],
    kept: Array | None,
) -> tuple[Array, list[Run]]:
    """The output of the last layer, and the saved values of each layer and direction.

    `sizes` are hidden size, layers and directions; `kept` multiplies the output of all layers but
    the last. The second direction processes the steps in reverse.
    """
    hidden, layers, directions = sizes
    below, runs = Input, list[Run]()
    for index, place in enumerate(weight_places(Input.shape[2], hidden, layers, directions)):
        layer, way = divmod(index, directions)
        seen = below[::-1] if way else below
        runs.append(run_layer(seen, InitH[index], InitC[index], weights_at(W, place, hidden)))
        if way < directions - 1:
            continue
        states = [
            run[3][len(InitH[0]) :].reshape(*seen.shape[:2], hidden) for run in runs[-directions:]
        ]
        below = np.concatenate([*states[:1], *(state[::-1] for state in states[1:])], axis=2)
        if kept is not None and layer < layers - 1:
            below = below * kept[layer]
    return below, runs


class CudnnLstm(OpDef, op="cudnn_lstm"):
    """Multi-layer LSTM: Out [length, batch, hidden · directions] of Input [length, batch, size].

    InitH, InitC, last_h and last_c are [layers · directions, batch, hidden]; W holds all weights in
    the module's layout. In training, each output of a layer below another is dropped with
    probability `dropout_prob`, and otherwise divided by 1 - dropout_prob; see DropoutMask. A
    `seed` of -1 draws new numbers in every step. Reference: cudnn_lstm_op.cu.cc.
    """

    is_random = True
    lod_source = ""

    Input = reads()
    InitH = reads()
    InitC = reads()
    W = reads()
    Cache = reads(optional=True, no_grad=True)
    Out = writes()
    last_h = writes()
    last_c = writes()
    DropoutMask = writes(optional=True)
    max_len = attr(20)
    dropout_prob = attr(0.0)
    is_bidirec = attr(False)
    input_size = attr(10)
    hidden_size = required(int, at_least(1))
    num_layers = attr(1, between(1, 1024))
    is_test = attr(False)
    seed = attr(-1)

    def weight_places(self, size: int) -> list[tuple[int, int, int]]:
        """The offsets of matrices and biases in W, by layer and direction, for an input size."""
        return weight_places(size, self.hidden_size, self.num_layers, 2 if self.is_bidirec else 1)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Input, InitH, InitC = s.Input, s.InitH, s.InitC
        require_same_dtype("cudnn_lstm", Input=Input, InitH=InitH, InitC=InitC, W=s.W)
        if Input.rank != 3:
            raise ShapeError(f"cudnn_lstm: Input is {Input}, expected [length, batch, size]")
        if not 0.0 <= self.dropout_prob < 1.0:
            raise BadAttribute(
                f"cudnn_lstm: 'dropout_prob' is {self.dropout_prob}, expected 0 or more, below 1"
            )
        directions = 2 if self.is_bidirec else 1
        length, batch, size = Input.shape
        width = self.hidden_size * directions
        for slot, type in (("InitH", InitH), ("InitC", InitC)):
            layers = self.num_layers * directions
            require_shape("cudnn_lstm", slot, type, layers, batch, self.hidden_size)
        if isinstance(size, int):
            *_, last = self.weight_places(size)
            require_shape("cudnn_lstm", "W", s.W, last[1] + 8 * self.hidden_size)
        mask = TensorType(DType.UINT8, (self.num_layers - 1, length, batch, width))
        out = Input.with_shape((length, batch, width))
        return {"Out": out, "last_h": InitH, "last_c": InitC, "DropoutMask": mask}

    def numpy(self, Input: Array, InitH: Array, InitC: Array, W: Array) -> dict[str, Array]:
        sizes = (self.hidden_size, self.num_layers, 2 if self.is_bidirec else 1)
        shape = (self.num_layers - 1, *Input.shape[:2], sizes[0] * sizes[2])
        mask, keep_scale = np.ones(shape, np.uint8), None
        if self.dropout_prob > 0.0 and not self.is_test:
            source = generator(0 if self.seed == -1 else self.seed)
            mask = (source.random(shape) >= self.dropout_prob).astype(np.uint8)
            keep_scale = mask * Input.dtype.type(1.0 / (1.0 - self.dropout_prob))
        Out, runs = run_layers(Input, InitH, InitC, W, sizes, keep_scale)
        last = slice(Input.shape[0] * Input.shape[1], None)
        last_h, last_c = (np.stack([run[part][last] for run in runs]) for part in (3, 4))
        return {"Out": Out, "last_h": last_h, "last_c": last_c, "DropoutMask": mask}

    def grad(
        self,
        Input: Array,
        InitH: Array,
        InitC: Array,
        W: Array,
        DropoutMask: Array | None,
        d_Out: Array,
        d_last_h: Array,
        d_last_c: Array,
    ) -> dict[str, Array]:
        directions = 2 if self.is_bidirec else 1
        sizes, keep_scale = (self.hidden_size, self.num_layers, directions), None
        if self.dropout_prob > 0.0 and not self.is_test:
            if DropoutMask is None:
                raise ValueError("cudnn_lstm: its gradient needs DropoutMask, and that is empty")
            keep_scale = DropoutMask * Input.dtype.type(1.0 / (1.0 - self.dropout_prob))
        runs = run_layers(Input, InitH, InitC, W, sizes, keep_scale)[1]
        places, d_above = weight_places(Input.shape[2], *sizes), d_Out
        d_W, d_InitH, d_InitC = (np.zeros_like(array) for array in (W, InitH, InitC))
        for layer in reversed(range(self.num_layers)):
            if keep_scale is not None and layer < self.num_layers - 1:
                d_above = d_above * keep_scale[layer]
            ways = np.split(d_above, directions, axis=2)
            d_above = np.zeros((*d_Out.shape[:2], places[layer * directions][2]), d_Out.dtype)
            for way, d_out in enumerate(ways):
                index, turn = layer * directions + way, slice(None, None, -1 if way else 1)
                weights = weights_at(W, places[index], self.hidden_size)
                d_seen, d_InitH[index], d_InitC[index], d_weights = run_gradient(
                    runs[index], weights, d_out[turn], d_last_h[index], d_last_c[index]
                )
                put_weights(d_W, places[index], d_weights)
                d_above = d_above + d_seen[turn]
        return {"Input": d_above, "InitH": d_InitH, "InitC": d_InitC, "W": d_W}
