"""Base classes of learning rates of eager mode, which optimizers call in each `minimize`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from fluid import unique_name
from fluid.eager.mode import to_variable
from fluid.eager.variables import VarBase
from fluid.framework import Variable
from fluid.recording.annotations import DTypeLike
from fluid.recording.checks import check_type, convert_dtype

__all__ = ["LearningRateDecay", "LearningRateEpochDecay"]


class LearningRateDecay:
    """Base class: `step` computes the rate of `step_num`, which each call increases."""

    def __init__(self, begin: int = 0, step: int = 1, dtype: DTypeLike = "float32") -> None:
        self.step_num = begin
        self.step_size = step
        self.dtype = dtype

    def __call__(self) -> Any:
        """Return the rate as a variable, and go on to the next step."""
        rate = self.step()
        if isinstance(rate, float | int):
            rate = self.create_lr_var(rate)
        self.step_num += self.step_size
        return rate

    def create_lr_var(self, lr: float) -> VarBase:
        """Return a number as a variable of shape [1]."""
        array = np.array([lr], convert_dtype(self.dtype or "float32"))
        return to_variable(array, unique_name.generate("learning_rate"))

    def state_dict(self) -> dict[str, object]:
        """Return what `set_dict` restores, as numbers."""
        self._state_keys()
        state = {key: vars(self)[key] for key in self.keys if key in vars(self)}
        return {key: _number(value) for key, value in state.items()}

    def _state_keys(self) -> None:
        self.keys = ["step_num"]

    def set_dict(self, state_dict: Mapping[str, object]) -> None:
        """Restore a state; RuntimeError if a value of it is missing."""
        self._state_keys()
        for key in self.keys:
            if key not in state_dict:
                raise RuntimeError(
                    "Please check whether state_dict is correct for optimizer. "
                    f"Can't find [ {key} ] in state_dict"
                )
            vars(self)[key] = state_dict[key]
        if len(state_dict) > len(self.keys):
            warnings.warn(
                "There are some unused values in state_dict. Maybe the optimizer have different "
                "'LearningRateDecay' when invoking state_dict and set_dict",
                stacklevel=2,
            )

    def step(self) -> Any:
        """Return the rate of the current step: a number or a variable."""
        raise NotImplementedError


def _number(value: object) -> object:
    if not isinstance(value, VarBase):
        return value
    assert value.shape == [1], f"shape of Variable in state_dict must be [1] {value.shape}"
    return value.numpy()[0]


class LearningRateEpochDecay(LearningRateDecay):
    """Base class of rates that change with epochs, in `epoch()`."""

    def __init__(self, learning_rate: float, dtype: DTypeLike | None = None) -> None:
        check_type(learning_rate, "learning_rate", (float, int), type(self).__name__)
        if learning_rate < 0:
            raise ValueError(f"Invalid learning rate: {learning_rate}")
        super().__init__(dtype=dtype or "float32")
        self.base_lr = float(learning_rate)
        self.epoch_num = -1
        self.learning_rate: Any = self.base_lr
        self.epoch()

    def _state_keys(self) -> None:
        self.keys = ["epoch_num", "learning_rate"]

    def __call__(self) -> Any:
        """Return the rate as a variable."""
        if not isinstance(self.learning_rate, Variable):
            self.learning_rate = self.create_lr_var(float(self.learning_rate))
        return self.learning_rate

    def epoch(self, epoch: int | None = None) -> None:
        """Begin the next epoch, or the one of this number."""
        self.epoch_num = self.epoch_num + 1 if epoch is None else epoch
        self.learning_rate = self.get_lr()

    def get_lr(self) -> Any:
        """Return the rate of the current epoch: a number or a variable."""
        raise NotImplementedError
