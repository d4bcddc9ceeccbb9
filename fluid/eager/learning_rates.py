"""Learning rates of eager mode: objects that compute the next rate in each `minimize`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from fluid import unique_name
from fluid.eager.mode import to_variable
from fluid.eager.variables import VarBase
from fluid.framework import Variable
from fluid.recording.annotations import DTypeLike
from fluid.recording.checks import check_type, convert_dtype

__all__ = [
    "CosineDecay", "ExponentialDecay", "InverseTimeDecay", "LambdaDecay", "LearningRateDecay",
    "LearningRateEpochDecay", "LinearLrWarmup", "MultiStepDecay", "NaturalExpDecay", "NoamDecay",
    "PiecewiseDecay", "PolynomialDecay", "ReduceLROnPlateau", "StepDecay",
]  # fmt: skip


class LearningRateDecay:
    """Base class: `step` computes the rate of `step_num`, which each call increases."""

    def __init__(self, begin: int = 0, step: int = 1, dtype: DTypeLike = "float32") -> None:
        self.step_num = begin
        self.step_size = step
        self.dtype = dtype

    def __call__(self) -> Variable:
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

    def step(self) -> float | Variable:
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
        self.learning_rate: float | Variable = self.base_lr
        self.epoch()

    def _state_keys(self) -> None:
        self.keys = ["epoch_num", "learning_rate"]

    def __call__(self) -> Variable:
        """Return the rate as a variable."""
        if not isinstance(self.learning_rate, Variable):
            self.learning_rate = self.create_lr_var(float(self.learning_rate))
        return self.learning_rate

    def epoch(self, epoch: int | None = None) -> None:
        """Begin the next epoch, or the one of this number."""
        self.epoch_num = self.epoch_num + 1 if epoch is None else epoch
        self.learning_rate = self.get_lr()

    def get_lr(self) -> float | Variable:
        """Return the rate of the current epoch: a number or a variable."""
        raise NotImplementedError


class PiecewiseDecay(LearningRateDecay):
    """`values[i]` until step `boundaries[i]`."""

    def __init__(
        self,
        boundaries: Sequence[int],
        values: Sequence[float],
        begin: int,
        step: int = 1,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(begin, step, dtype)
        self.boundaries, self.values = boundaries, values
        self.vars = list(values)

    def step(self) -> float | VarBase:
        """Return the rate of the current step."""
        for boundary, value in zip(self.boundaries, self.vars, strict=False):
            if self.step_num < boundary:
                return value
        return self.create_lr_var(self.vars[len(self.values) - 1])


class _StepwiseDecay(LearningRateDecay):
    """A rate that decays every `decay_steps` steps, gradually or by `staircase`."""

    def __init__(
        self,
        learning_rate: float,
        decay_steps: int,
        decay_rate: float,
        staircase: bool = False,
        begin: int = 0,
        step: int = 1,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(begin, step, dtype)
        self.learning_rate = learning_rate
        self.decay_steps, self.decay_rate, self.staircase = decay_steps, decay_rate, staircase

    def _decays(self) -> float:
        decays = self.step_num / self.decay_steps
        return math.floor(decays) if self.staircase else decays


class NaturalExpDecay(_StepwiseDecay):
    """`learning_rate * exp(-decay_rate * step / decay_steps)`."""

    def step(self) -> VarBase:
        """Return the rate of the current step."""
        return self.create_lr_var(self.learning_rate * math.exp(-self.decay_rate * self._decays()))


class ExponentialDecay(_StepwiseDecay):
    """`learning_rate * decay_rate ** (step / decay_steps)`."""

    def step(self) -> VarBase:
        """Return the rate of the current step."""
        return self.create_lr_var(self.learning_rate * self.decay_rate ** self._decays())


class InverseTimeDecay(_StepwiseDecay):
    """`learning_rate / (1 + decay_rate * step / decay_steps)`."""

    def step(self) -> VarBase:
        """Return the rate of the current step."""
        return self.create_lr_var(self.learning_rate / (1 + self.decay_rate * self._decays()))


class PolynomialDecay(LearningRateDecay):
    """A polynomial from `learning_rate` to `end_learning_rate` over `decay_steps` steps.

    With `cycle`, the number of steps grows to the next multiple of `decay_steps`.
    """

    def __init__(
        self,
        learning_rate: float,
        decay_steps: int,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        begin: int = 0,
        step: int = 1,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(begin, step, dtype)
        self.learning_rate, self.end_learning_rate = learning_rate, end_learning_rate
        self.decay_steps, self.power, self.cycle = decay_steps, power, cycle

    def step(self) -> VarBase:
        """Return the rate of the current step."""
        if self.cycle:
            cycles = math.ceil(self.step_num / self.decay_steps) if self.step_num else 1
            part = self.step_num / (self.decay_steps * cycles)
        else:
            part = min(self.step_num, self.decay_steps) / self.decay_steps
        span = self.learning_rate - self.end_learning_rate
        return self.create_lr_var(span * (1 - part) ** self.power + self.end_learning_rate)


class CosineDecay(LearningRateDecay):
    """Half a cosine over `epochs` of `step_each_epoch` steps; constant within an epoch."""

    def __init__(
        self,
        learning_rate: float,
        step_each_epoch: int,
        epochs: int,
        begin: int = 0,
        step: int = 1,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(begin, step, dtype)
        self.learning_rate = learning_rate
        self.step_each_epoch, self.epochs = step_each_epoch, epochs

    def step(self) -> VarBase:
        """Return the rate of the current step."""
        epoch = math.floor(self.step_num / self.step_each_epoch)
        factor = math.cos(epoch * math.pi / self.epochs) + 1
        return self.create_lr_var(self.learning_rate * 0.5 * factor)


class NoamDecay(LearningRateDecay):
    """A linear warmup, then a decay by the root of the step (Vaswani et al., 2017)."""

    def __init__(
        self,
        d_model: float,
        warmup_steps: int,
        begin: int = 1,
        step: int = 1,
        dtype: DTypeLike = "float32",
        learning_rate: float = 1.0,
    ) -> None:
        super().__init__(begin, step, dtype)
        self.learning_rate = learning_rate
        self.d_model, self.warmup_steps = d_model, warmup_steps

    def step(self) -> VarBase:
        """Return the rate of the current step."""
        rate = min(self.step_num**-0.5, self.warmup_steps**-1.5 * self.step_num)
        return self.create_lr_var(self.learning_rate * self.d_model**-0.5 * rate)


class LinearLrWarmup(LearningRateDecay):
    """A linear increase from `start_lr` to `end_lr`, then another rate or decay.

    As in release 1.8.5, the increase begins at 0. Raises TypeError for a rate of another type and
    AssertionError unless `end_lr` is greater than `start_lr`.
    """

    def __init__(
        self,
        learning_rate: float | LearningRateDecay,
        warmup_steps: int,
        start_lr: float,
        end_lr: float,
        begin: int = 1,
        step: int = 1,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(begin, step, dtype)
        check_type(
            learning_rate, "learning_rate", (float, int, LearningRateDecay), "LinearLrWarmup"
        )
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps
        assert end_lr > start_lr, f"end_lr {end_lr} must be greater than start_lr {start_lr}"
        self.lr_ratio_before_warmup = (float(end_lr) - float(start_lr)) / float(warmup_steps)

    def step(self) -> float | Variable:
        """Return the rate of the current step."""
        base = self.learning_rate
        rate = base() if isinstance(base, LearningRateDecay) else base
        if self.step_num < self.warmup_steps:
            return self.lr_ratio_before_warmup * self.step_num
        return rate


class ReduceLROnPlateau(LearningRateDecay):
    """A rate that is multiplied by `decay_rate` once a loss has not improved for `patience` epochs.

    Raises ValueError for another mode and for a `decay_rate` of 1 or more.
    """

    def __init__(
        self,
        learning_rate: float | Variable,
        mode: str = "min",
        decay_rate: float = 0.1,
        patience: int = 10,
        verbose: bool = False,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0,
        eps: float = 1e-8,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self.mode, self.threshold_mode = mode.lower(), threshold_mode.lower()
        if self.mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if self.threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        if decay_rate >= 1.0:
            raise ValueError("new_lr = origin_lr * decay_rate and decay_rate should be < 1.0.")
        check_type(learning_rate, "learning_rate", (float, int, Variable), "ReduceLROnPlateau")
        self.decay_rate, self.min_lr, self.eps = decay_rate, min_lr, eps
        self.learning_rate: float | Variable = learning_rate
        self.verbose, self.patience, self.cooldown = verbose, patience, cooldown
        self.threshold = threshold
        self.cooldown_counter = self.num_bad_epochs = self.epoch_num = 0
        self.best_loss: Variable | None = None

    def _state_keys(self) -> None:
        self.keys = ["cooldown_counter", "best_loss", "num_bad_epochs", "epoch_num",
                     "learning_rate"]  # fmt: skip

    def __call__(self) -> Variable:
        """Return the rate as a variable."""
        if not isinstance(self.learning_rate, Variable):
            self.learning_rate = self.create_lr_var(float(self.learning_rate))
        return self.learning_rate

    # Paddle's class takes the loss here.
    def step(self, loss: Variable) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update the rate after an epoch with this loss, of shape [1]."""
        check_type(loss, "loss", Variable, "ReduceLROnPlateau.step")
        assert len(loss.shape) == 1 and loss.shape[0] == 1, (
            f"the loss.shape should be (1L,), but the current loss.shape is {loss.shape}. "
            "Maybe that you should call fluid.layers.mean to process it first."
        )
        self.epoch_num += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            return
        if self.best_loss is None or self._is_better(float(loss), float(self.best_loss)):  # pyright: ignore[reportArgumentType] - a VarBase
            self.best_loss = loss
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.num_bad_epochs > self.patience:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
            self._reduce()

    def _reduce(self) -> None:
        old = float(self.learning_rate)  # pyright: ignore[reportArgumentType] - a VarBase
        new = max(old * self.decay_rate, float(self.min_lr))
        if old - new > self.eps:
            if self.verbose:
                print(f"Epoch {self.epoch_num}: reducing learning rate from {old} to {new}.")
            self.learning_rate = self.create_lr_var(new)

    def _is_better(self, current: float, best: float) -> bool:
        margin = best * self.threshold if self.threshold_mode == "rel" else self.threshold
        if self.mode == "min":
            return current < best - margin
        return current > best + self.threshold


class StepDecay(LearningRateEpochDecay):
    """A rate that is multiplied by `decay_rate` every `step_size` epochs."""

    def __init__(self, learning_rate: float, step_size: int, decay_rate: float = 0.1) -> None:
        check_type(step_size, "step_size", int, "StepDecay")
        _check_decay(decay_rate)
        self.decay_rate = decay_rate
        self._epochs = step_size
        super().__init__(learning_rate)
        self.step_size = step_size

    def get_lr(self) -> VarBase:
        """Return the rate of the current epoch."""
        decays = self.epoch_num // self._epochs
        return self.create_lr_var(self.base_lr * self.decay_rate**decays)


class MultiStepDecay(LearningRateEpochDecay):
    """A rate that is multiplied by `decay_rate` at each epoch of `milestones`."""

    def __init__(
        self, learning_rate: float, milestones: Sequence[int], decay_rate: float = 0.1
    ) -> None:
        check_type(milestones, "milestones", (tuple, list), "MultiStepDecay")
        if any(a >= b for a, b in pairwise(milestones)):
            raise ValueError("The elements of milestones must be incremented")
        _check_decay(decay_rate)
        self.milestones, self.decay_rate = milestones, decay_rate
        super().__init__(learning_rate)

    def get_lr(self) -> VarBase:
        """Return the rate of the current epoch."""
        decays = next(
            (i for i, epoch in enumerate(self.milestones) if self.epoch_num < epoch),
            len(self.milestones),
        )
        return self.create_lr_var(self.base_lr * self.decay_rate**decays)


class LambdaDecay(LearningRateEpochDecay):
    """`learning_rate` times a function of the epoch."""

    def __init__(self, learning_rate: float, lr_lambda: Callable[[int], float]) -> None:
        if not callable(lr_lambda):
            kind = type(lr_lambda)
            raise TypeError(
                f"The type of 'lr_lambda' in 'LambdaDecay' must be 'function', but received {kind}."
            )
        self.lr_lambda = lr_lambda
        super().__init__(learning_rate)

    def get_lr(self) -> VarBase:
        """Return the rate of the current epoch."""
        return self.create_lr_var(self.base_lr * self.lr_lambda(self.epoch_num))


def _check_decay(decay_rate: float) -> None:
    if decay_rate >= 1.0:
        raise ValueError("decay_rate should be < 1.0.")


_LearningRateEpochDecay = LearningRateEpochDecay
