"""Decoder for training, which reads the ground-truth words (teacher forcing)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from fluid import layers
from fluid.contrib.decoder.states import InitState, StateCell
from fluid.recording.variable import Variable

__all__ = ["TrainingDecoder"]


class _Memory:
    """A state stored as a memory of a `DynamicRNN`."""

    def __init__(self, rnn: layers.DynamicRNN, init: InitState) -> None:
        self._rnn = rnn
        self._memory = rnn.memory(init=init.value, need_reorder=init.need_reorder)

    def get_state(self) -> Variable:
        """Return the memory after the previous step."""
        return self._memory

    def update_state(self, state: Variable) -> None:
        """Set the memory for the next step."""
        self._rnn.update_memory(self._memory, state)


class TrainingDecoder:
    """Runs a `StateCell` over sequences, as `DynamicRNN` does.

    decoder = TrainingDecoder(cell)
    with decoder.block():
        word = decoder.step_input(words)
        decoder.state_cell.compute_state(inputs={"x": word})
        score = fluid.layers.fc(decoder.state_cell.get_state("h"), size, act="softmax")
        decoder.state_cell.update_states()
        decoder.output(score)
    scores = decoder()
    """

    BEFORE_DECODER, IN_DECODER, AFTER_DECODER = range(3)

    def __init__(self, state_cell: StateCell, name: str | None = None) -> None:
        self._status = self.BEFORE_DECODER
        self._rnn = layers.DynamicRNN()
        self._cell = state_cell
        state_cell.enter(self)

    def create_state(self, init: InitState) -> _Memory:
        """Return a state stored as a memory of the recurrent network."""
        return _Memory(self._rnn, init)

    @contextmanager
    def block(self) -> Generator[None]:
        """Context manager for the loop body; ValueError if used twice."""
        if self._status != self.BEFORE_DECODER:
            raise ValueError("decoder.block() can only be invoked once")
        self._status = self.IN_DECODER
        with self._rnn.block():
            yield
        self._status = self.AFTER_DECODER
        self._cell.leave()

    @property
    def state_cell(self) -> StateCell:
        """The cell, inside the block."""
        self._check_inside("state_cell")
        return self._cell

    @property
    def dynamic_rnn(self) -> layers.DynamicRNN:
        """The recurrent network that runs the steps."""
        return self._rnn

    def step_input(self, x: Variable) -> Variable:
        """Return one step of the sequences of `x`."""
        self._check_inside("step_input")
        return self._rnn.step_input(x)

    def static_input(self, x: Variable) -> Variable:
        """Return `x`, available as a whole in each step."""
        self._check_inside("static_input")
        return self._rnn.static_input(x)

    def output(self, *outputs: Variable) -> None:
        """Mark variables as outputs, collected over all steps."""
        self._check_inside("output")
        self._rnn.output(*outputs)

    def __call__(self) -> Variable | list[Variable]:
        """Return the collected outputs; ValueError before the block is complete."""
        if self._status != self.AFTER_DECODER:
            raise ValueError("the output of TrainingDecoder is available after its block only")
        return self._rnn()

    def _check_inside(self, method: str) -> None:
        if self._status != self.IN_DECODER:
            raise ValueError(f"{method} should be invoked inside block of TrainingDecoder object")
