"""A cell with named inputs and states, whose states a decoder carries between steps.

    cell = StateCell(inputs={"x": None}, states={"h": InitState(encoded)}, out_state="h")

    @cell.state_updater
    def step(cell):
        h, x = cell.get_state("h"), cell.get_input("x")
        cell.set_state("h", fluid.layers.fc([h, x], size, act="tanh"))

The names and the checks of each call are those of fluid 1.8.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

from fluid import layers
from fluid.recording.annotations import DTypeLike
from fluid.recording.variable import Variable

__all__ = ["LoopState", "Decoder", "InitState", "StateCell"]


class InitState:
    """The initial value of a state.

    It is `init`, or `value` in `shape` with the batch size of `init_boot`. With `need_reorder` rows
    are reordered to the rank order of `DynamicRNN`.
    """

    def __init__(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        value: float = 0.0,
        init_boot: Variable | None = None,
        need_reorder: bool = False,
        dtype: DTypeLike = "float32",
    ) -> None:
        if init is None:
            if init_boot is None:
                raise ValueError("init_boot must be provided to infer the shape of InitState")
            init = layers.fill_constant_batch_size_like(
                init_boot, cast(Sequence[int], shape), dtype, value
            )
        self._init, self._need_reorder = init, need_reorder

    @property
    def value(self) -> Variable:
        """The initial state as a variable."""
        return self._init

    @property
    def need_reorder(self) -> bool:
        """Whether rows must be reordered."""
        return self._need_reorder


def _expect_initial(state: object) -> None:
    if not isinstance(state, InitState):
        raise ValueError(f"state must be an InitState object, not {type(state).__name__}")


class LoopState(Protocol):
    """Interface of a state that a decoder carries between steps."""

    def get_state(self) -> Variable:
        """Return the state after the previous step."""
        ...

    def update_state(self, state: Variable) -> None:
        """Set the state for the next step."""
        ...


class Decoder(Protocol):
    """Interface of the decoders that run a cell."""

    def create_state(self, init: InitState) -> LoopState:
        """Create a loop-carried state with this initial value."""
        ...


class StateCell:
    """One step of a recurrent network: named inputs, named states and an update function.

    Inputs may be None until a step sets them; `out_state` names the state from which scores are
    computed.
    """

    def __init__(
        self,
        inputs: dict[str, Variable | None],
        states: Mapping[str, InitState],
        out_state: str,
        name: str | None = None,
    ) -> None:
        for state in states.values():
            _expect_initial(state)
        if out_state not in states:
            raise ValueError(f"out_state is {out_state!r}, expected one of {', '.join(states)}")
        self._inputs, self._out_state = inputs, out_state
        self._states: dict[str, InitState | Variable] = dict(states)
        self._initial = dict(states)
        self._carried: dict[str, LoopState] = {}
        self._decoder: Decoder | None = None
        self._updater: Callable[[StateCell], None] | None = None

    @property
    def state_names(self) -> list[str]:
        """Return the names of all states."""
        return list(self._initial)

    @property
    def input_names(self) -> list[str]:
        """Return the names of all inputs."""
        return list(self._inputs)

    def enter(self, decoder: Decoder) -> None:
        """Attach a decoder that runs the cell; ValueError if another one is attached."""
        if self._decoder is not None:
            raise ValueError("StateCell has already entered a decoder")
        self._decoder, self._carried = decoder, {}

    def leave(self) -> None:
        """Detach the complete decoder; the next one begins with the initial states."""
        self._decoder, self._carried = None, {}
        self._states = dict(self._initial)

    def _load_states(self) -> None:
        """Replace the initial states by those the decoder carries, on first access in a step."""
        if self._decoder is not None and not self._carried:
            for name, init in self._initial.items():
                self._carried[name] = self._decoder.create_state(init)
                self._states[name] = self._carried[name].get_state()

    def get_state(self, state_name: str) -> Variable:
        """Return a state by name; ValueError if unknown."""
        self._load_states()
        if state_name not in self._states:
            raise ValueError(f"unknown state {state_name!r}, there are {', '.join(self._states)}")
        return cast(Variable, self._states[state_name])

    def get_input(self, input_name: str) -> Variable:
        """Return an input by name; ValueError if unknown or not set."""
        value = self._inputs.get(input_name)
        if value is None:
            raise ValueError(f"invalid input {input_name!r}: it is not set")
        return value

    def set_state(self, state_name: str, state_value: Variable) -> None:
        """Set a state to another variable."""
        self._states[state_name] = state_value

    def state_updater(self, updater: Callable[[StateCell], None]) -> Callable[[StateCell], None]:
        """Decorator that sets the function computing the next step's states."""
        self._updater = updater
        return updater

    def compute_state(self, inputs: Mapping[str, Variable]) -> None:
        """Set inputs by name and compute the states; ValueError for an unknown input."""
        self._load_states()
        for name, value in inputs.items():
            if name not in self._inputs:
                raise ValueError(f"unknown input {name!r}, there are {', '.join(self._inputs)}")
            self._inputs[name] = value
        if self._updater is None:
            raise ValueError("StateCell has no state_updater, which computes its states")
        self._updater(self)

    def update_states(self) -> None:
        """Store the states for the next step."""
        self._load_states()
        for name, carried in self._carried.items():
            carried.update_state(cast(Variable, self._states[name]))

    def out_state(self) -> Variable:
        """Return the state from which scores are computed."""
        return cast(Variable, self._states[self._out_state])
