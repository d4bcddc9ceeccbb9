"""`attention_lstm`: an LSTM with attention over its sequence in each step. Reference: its op.cc."""

from __future__ import annotations

import numpy as np

from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, writes
from compiler.ir.opdef.composite import Composite, CompositeSteps
from compiler.ir.types import Array, TensorType
from compiler.ops.sequence.offsets import count_of, require_one_level, require_rank, run_rows
from compiler.ops.sequence.time_steps import (
    activate,
    by_time_step,
    parts,
    require_activations,
    require_shape,
)
from compiler.ops.type_checks import require_same_dtype

LONG_SEQUENCE = 64
"""The length from which on the mean over a sequence is a matrix product of its own."""


def attention_weights(
    scores: Array, offsets: Array, scalar: Array | None, bias: Array | None
) -> Array:
    """Return the softmax of relu(scores) [rows] within each sequence; none may be empty."""
    weights, starts, lengths = np.maximum(scores, 0.0), offsets[:-1], np.diff(offsets)
    if scalar is not None:
        weights = weights * scalar.reshape(())
        weights = np.maximum(weights + (0.0 if bias is None else bias.reshape(())), 0.0)
    powers = np.exp(weights - np.repeat(np.maximum.reduceat(weights, starts), lengths))
    sums = np.add.reduceat(powers, starts, dtype=np.float64).astype(powers.dtype)
    return powers / np.repeat(sums, lengths)


def weighted_sums(rows: Array, weights: Array, offsets: Array) -> Array:
    """Return the weighted sum of the rows [rows, m] of each sequence: [sequences, m].

    Sequences are sorted by descending length, and none is empty.
    """
    result = np.empty((len(offsets) - 1, rows.shape[1]), rows.dtype)
    long = np.count_nonzero(np.diff(offsets) >= LONG_SEQUENCE)
    for index in range(long):
        one = slice(offsets[index], offsets[index + 1])
        np.matmul(weights[one], rows[one], out=result[index])
    if long < len(result):
        first = offsets[long]
        products = rows[first:] * weights[first:, None]
        np.add.reduceat(products, offsets[long:-1] - first, axis=0, out=result[long:])
    return result


def attend_sequences(
    rows: Array,
    offsets: Array,
    state: Array,
    cell: Array,
    attention: tuple[Array, Array | None, Array | None, Array | None],
    memory: tuple[Array, Array],
    kinds: tuple[str, str, str],
) -> tuple[Array, Array]:
    """Return hidden states and cells [rows, width] for each row of the sequences [rows, m].

    Each step computes the sequences that are long enough for it all at once.
    """
    (weight, bias, scalar, scalar_bias), (matrix, gate_bias) = attention, memory
    (by_row, by_cell), width = np.split(weight.reshape(-1), [rows.shape[1]]), cell.shape[1]
    order, steps, _ = by_time_step(offsets, False)
    begins, ends = offsets[order], np.append(0, np.cumsum(np.diff(offsets)[order]))
    rows = rows[run_rows(begins, np.diff(ends))]  # the rows of the longest sequence first
    state, cell = state[order], cell[order]
    hidden, cells = np.empty((2, len(rows), width), rows.dtype)
    scores = rows @ by_row + (0.0 if bias is None else bias.reshape(()))
    for step, live in enumerate(np.diff(steps).tolist()):
        bounds, state, cell = ends[: live + 1], state[:live], cell[:live]
        added = np.repeat(cell @ by_cell, np.diff(bounds))
        weights = attention_weights(scores[: bounds[-1]] + added, bounds, scalar, scalar_bias)
        attended = weighted_sums(rows[: bounds[-1]], weights, bounds)
        gates = state @ matrix[:width] + attended @ matrix[width:] + gate_bias.reshape(-1)
        activate(gates[:, : 3 * width], kinds[0])
        activate(gates[:, 3 * width :], kinds[2])
        forget, inlet, outlet, candidate = parts(gates, 4)
        cell = forget * cell + inlet * candidate
        active = cell.copy()
        activate(active, kinds[1])
        state = active * outlet
        hidden[begins[:live] + step], cells[begins[:live] + step] = state, cell
    return hidden, cells


class AttentionLstmBase(OpDef):
    """Slots and attributes shared by the program op and the graph op."""

    X = reads()
    X_lod = reads_lod("X")
    C0 = reads()
    H0 = reads(optional=True)
    AttentionWeight = reads()
    AttentionBias = reads(optional=True)
    AttentionScalar = reads(optional=True)
    AttentionScalarBias = reads(optional=True)
    LSTMWeight = reads()
    LSTMBias = reads()
    Hidden = writes()
    Cell = writes()
    gate_activation = attr("sigmoid")
    cell_activation = attr("tanh")
    candidate_activation = attr("tanh")


class AttentionLstmSteps(AttentionLstmBase, op="attention_lstm_steps"):
    """Hidden and Cell [rows, width] for each row of X [rows, m]; sequences start from H0, C0.

    In each step all rows of the sequence are scored by relu(row · u + cell · v), u and v being the
    parts of AttentionWeight [m + width, 1]; with AttentionScalar by relu(score * scalar + its
    bias). The mean of the rows, weighted by the softmax of the scores, enters the LSTM with the
    previous state: gates forget, input, output, candidate by LSTMWeight [width + m, 4 · width].
    """

    no_kernel_reason = "its attention over the sequence is sequential"

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X, C0 = s.X, s.C0
        X_lod = s.all("X_lod")
        kind = "attention_lstm"
        require_one_level(kind, "X", X_lod)
        require_rank(kind, "X", X, 2)
        require_rank(kind, "C0", C0, 2)
        require_same_dtype(kind, X=X, C0=C0, LSTMWeight=s.LSTMWeight)
        inner, width = X.shape[1], C0.shape[1]
        require_shape(kind, "C0", C0, count_of(X_lod[0]), width)
        require_shape(kind, "AttentionWeight", s.AttentionWeight, inner + width, 1)
        require_shape(kind, "LSTMWeight", s.LSTMWeight, inner + width, 4 * width)
        require_shape(kind, "LSTMBias", s.LSTMBias, 1, 4 * width)
        singles = {
            "AttentionBias": s.get("AttentionBias"),
            "AttentionScalar": s.get("AttentionScalar"),
        }
        for slot, tensor_type in {
            **singles,
            "AttentionScalarBias": s.get("AttentionScalarBias"),
        }.items():
            if tensor_type is not None:
                require_shape(kind, slot, tensor_type, 1, 1)
        if (H0 := s.get("H0")) is not None:
            require_shape(kind, "H0", H0, count_of(X_lod[0]), width)
        self.check_activations()
        hidden = X.with_shape((X.shape[0], width))
        return {"Hidden": hidden, "Cell": hidden}

    def check_activations(self) -> None:
        """Raise BadAttribute for an activation that recurrent ops do not support."""
        names = ("gate_activation", "cell_activation", "candidate_activation")
        require_activations("attention_lstm", **{name: self.attributes[name] for name in names})

    def numpy(
        self,
        X: Array,
        X_lod: list[Array],
        C0: Array,
        H0: Array | None,
        AttentionWeight: Array,
        AttentionBias: Array | None,
        AttentionScalar: Array | None,
        AttentionScalarBias: Array | None,
        LSTMWeight: Array,
        LSTMBias: Array,
    ) -> dict[str, Array]:
        offsets = X_lod[0]
        attention = AttentionWeight, AttentionBias, AttentionScalar, AttentionScalarBias
        kinds = self.gate_activation, self.cell_activation, self.candidate_activation
        memory = LSTMWeight, LSTMBias
        states = np.zeros_like(C0) if H0 is None else H0
        hidden, cells = attend_sequences(X, offsets, states, C0, attention, memory, kinds)
        return {"Hidden": hidden, "Cell": cells}


class AttentionLstm(AttentionLstmBase, Composite, op="attention_lstm"):
    """`attention_lstm_steps`; the reference's other intermediate outputs are not computed."""

    AttentionedX = writes(optional=True)
    AttentionFCOut = writes(optional=True)
    LSTMX = writes(optional=True)
    LSTMOUT = writes(optional=True)

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to `attention_lstm_steps`."""
        slots = [name for name, slot in self.inputs().items() if not slot.companion]
        outputs = steps.outputs("attention_lstm_steps", {}, self.attributes, **steps.given(*slots))
        for slot, names in outputs.items():
            steps.write(slot, *names)
