"""A cell with named inputs and states, which a decoder carries from step to step.

    cell = StateCell(inputs={"x": None}, states={"h": InitState(encoded)}, out_state="h")

    @cell.state_updater
    def step(cell):
        h, x = cell.get_state("h"), cell.get_input("x")
        cell.set_state("h", fluid.layers.fc([h, x], size, act="tanh"))

The names, and what each call checks, are those of fluid 1.8.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fluid import layers
from fluid.recording.variable import Variable

__all__ = ["Carried", "Decoder", "InitState", "StateCell"]


class InitState:
    """What a state is before the first step.

    `init` itself, or `value` in `shape`, with as many rows as `init_boot` has. With `need_reorder`
    rows are brought into the order in which `DynamicRNN` runs sequences.
    """

    def __init__(
        self,
        init: Variable | None = None,
        shape: Any = None,
        value: float = 0.0,
        init_boot: Variable | None = None,
        need_reorder: bool = False,
        dtype: Any = "float32",
    ) -> None:
        if init is None and init_boot is None:
            raise ValueError("init_boot must be provided to infer the shape of InitState")
        if init is None:
            init = layers.fill_constant_batch_size_like(init_boot, shape, dtype, value)
        self._init, self._need_reorder = init, need_reorder

    @property
    def value(self) -> Variable:
        """The variable that the first step reads."""
        return self._init

    @property
    def need_reorder(self) -> bool:
        """Whether its rows are to be reordered."""
        return self._need_reorder


class Carried(Protocol):
    """A state as a decoder carries it from step to step."""

    def get_state(self) -> Variable:
        """The state behind the last step."""
        ...

    def update_state(self, state: Variable) -> None:
        """Keep a state for the next step."""
        ...


class Decoder(Protocol):
    """What runs the steps of a cell."""

    def carry(self, init: InitState) -> Carried:
        """A state that starts so."""
        ...


class StateCell:
    """A step of a recurrent network: named inputs, named states, and a function that updates them.

    `inputs` may be None until a step sets them; `out_state` names the state that scores are
    computed from.
    """

    def __init__(
        self,
        inputs: dict[str, Variable | None],
        states: Mapping[str, InitState],
        out_state: str,
        name: str | None = None,
    ) -> None:
        for state in states.values():
            if not isinstance(state, InitState):
                raise ValueError(f"state must be an InitState object, not {type(state).__name__}")
        if out_state not in states:
            raise ValueError(f"out_state is {out_state!r}, expected one of {', '.join(states)}")
        self._inputs, self._out_state = inputs, out_state
        self._states: dict[str, Any] = dict(states)
        self._initial = dict(states)
        self._carried: dict[str, Carried] = {}
        self._decoder: Decoder | None = None
        self._updater: Callable[[StateCell], None] | None = None

    @property
    def state_names(self) -> list[str]:
        """The names of all states."""
        return list(self._initial)

    @property
    def input_names(self) -> list[str]:
        """The names of all inputs."""
        return list(self._inputs)

    def enter(self, decoder: Decoder) -> None:
        """Let a decoder run the cell; ValueError while another one does."""
        if self._decoder is not None:
            raise ValueError("StateCell has already entered a decoder")
        self._decoder, self._carried = decoder, {}

    def leave(self) -> None:
        """The decoder that runs the cell is complete: another one starts where this one did."""
        self._decoder, self._carried = None, {}
        self._states = dict(self._initial)

    def _switch(self) -> None:
        """Let the states be those that the decoder carries, when a step first asks for one."""
        if self._decoder is not None and not self._carried:
            for name, init in self._initial.items():
                self._carried[name] = self._decoder.carry(init)
                self._states[name] = self._carried[name].get_state()

    def get_state(self, state_name: str) -> Variable:
        """A state by its name; ValueError for one that is not there."""
        self._switch()
        if state_name not in self._states:
            raise ValueError(f"unknown state {state_name!r}, there are {', '.join(self._states)}")
        return self._states[state_name]

    def get_input(self, input_name: str) -> Variable:
        """An input by its name; ValueError where it is not there, or not set."""
        found = self._inputs.get(input_name)
        if found is None:
            raise ValueError(f"invalid input {input_name!r}: it is not set")
        return found

    def set_state(self, state_name: str, state_value: Variable) -> None:
        """Let a state be another variable."""
        self._states[state_name] = state_value

    def state_updater(self, updater: Callable[[StateCell], None]) -> Callable[[StateCell], None]:
        """Set the function that computes the states of the next step; a decorator."""
        self._updater = updater
        return updater

    def compute_state(self, inputs: Mapping[str, Variable]) -> None:
        """Set inputs by name and compute the states; ValueError for an unknown input."""
        self._switch()
        for name, value in inputs.items():
            if name not in self._inputs:
                raise ValueError(f"unknown input {name!r}, there are {', '.join(self._inputs)}")
            self._inputs[name] = value
        if self._updater is None:
            raise ValueError("StateCell has no state_updater, which computes its states")
        self._updater(self)

    def update_states(self) -> None:
        """Keep the states for the next step."""
        self._switch()
        for name, carried in self._carried.items():
            carried.update_state(self._states[name])

    def out_state(self) -> Variable:
        """The state that scores are computed from."""
        return self._states[self._out_state]
