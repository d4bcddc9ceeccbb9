"""Gradient clipping by value, by norm, or by global norm."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Any, TypeAlias

from compiler.ir.autodiff.append_backward import PART
from compiler.support.dataclass import dataclass
from fluid import layers
from fluid.framework import (
    Block,
    Parameter,
    Program,
    Variable,
    default_main_program,
    in_dygraph_mode,
    name_scope,
)
from fluid.recording.annotations import AttributeValue
from fluid.recording.arguments import typed
from fluid.recording.var_types import VarDesc
from fluid.recording.variable import AbstractBlock, ParameterAndGradient

__all__ = [
    "ErrorClipByValue",
    "GradientClipByGlobalNorm",
    "GradientClipByNorm",
    "GradientClipByValue",
    "set_gradient_clip",
]

Pair = tuple[Parameter, Variable]
Pairs = list[Pair]
"""Parameters with their gradients; a gradient may be None."""
ClipContext: TypeAlias = dict[str, Any]
"""What clips of one program share: those by a global norm have their groups by name."""


class BaseErrorClipAttr:
    """Base class of error clips, which clip the gradient of one variable."""

    def append_clip_op(self, block: AbstractBlock, grad_name: str) -> None:
        """Append the ops that clip a gradient."""
        self._append_clip_op(block, grad_name)

    def _append_clip_op(self, block: AbstractBlock, grad_name: str) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not define _append_clip_op")


class ErrorClipByValue(BaseErrorClipAttr):
    """Clips the gradient of one variable in the backward pass, see `Variable._set_error_clip`."""

    @typed
    def __init__(self, max: float, min: float | None = None) -> None:
        self.max = float(max)
        self.min = -self.max if min is None else float(min)

    def __str__(self) -> str:
        return f"ByValue, min={self.min:f}, max={self.max:f}"

    def _append_clip_op(self, block: AbstractBlock, grad_name: str) -> None:
        with block.program.backward_role_guard():
            block.append_op(
                "clip",
                inputs={"X": grad_name},
                outputs={"Out": grad_name},
                attrs={"min": self.min, "max": self.max},
            )


def error_clip_callback(block: AbstractBlock, context: Mapping[str, AttributeValue]) -> None:
    """Clip each gradient that the last op completed if its variable has an error clip.

    Raises TypeError if the attribute is no error clip.
    """
    for gradient in context["__current_op_desc__"].output_arg_names():
        variable = block.find_var_recursive(context.get(gradient, ""))
        error_clip = None if variable is None else variable.error_clip
        if variable is None or error_clip is None or PART in gradient:
            continue
        if not isinstance(error_clip, BaseErrorClipAttr):
            kind = type(error_clip).__name__
            raise TypeError(f"error_clip of {variable.name!r} must be an ErrorClip, not {kind}")
        error_clip.append_clip_op(block, gradient)


class GradientClipBase:
    """Base class of gradient clips: callables that append ops and return new pairs.

    `need_clip` takes a parameter and returns whether its gradient is clipped. A clip of your own
    defines `_static_clip`, and `_dygraph_clip` for eager mode, which return the clipped pairs.
    """

    @typed
    def __init__(self, need_clip: Callable[[Parameter], bool] | None = None) -> None:
        self._need_clip_func = need_clip

    def __call__(self, params_grads: Iterable[ParameterAndGradient]) -> Pairs:
        """Return the pairs with clipped gradients; pairs without a gradient are omitted."""
        pairs = list(params_grads)
        if any(param.gradient_clip_attr is not None for param, _ in _with_gradients(pairs)):
            warnings.warn(
                "set_gradient_clip has no effect, since the optimizer has a grad_clip",
                stacklevel=2,
            )
        clip = self._dygraph_clip if in_dygraph_mode() else self._static_clip
        with name_scope("gradient_clip"):
            return clip(pairs)

    def _static_clip(self, params_grads: Iterable[ParameterAndGradient]) -> Pairs:
        """Return the pairs with clipped gradients, for a program."""
        return self.clipped_pairs(_with_gradients(params_grads))

    def _dygraph_clip(self, params_grads: Iterable[ParameterAndGradient]) -> Pairs:
        """Return the pairs with clipped gradients, in eager mode."""
        return self.clipped_pairs(_with_gradients(params_grads))

    def _needed(self, param: Parameter) -> bool:
        return self._need_clip_func is None or self._need_clip_func(param)

    def clipped_pairs(self, pairs: Pairs) -> Pairs:
        """Return the pairs with clipped gradients."""
        return [self._clip_pair(param, grad, self._clipped) for param, grad in pairs]

    def _process_context(self, context: ClipContext, param: Parameter, grad: Variable) -> None:
        """Note a gradient before any is clipped, in a dict that all clips of a program share.

        `append_gradient_clip_ops` calls it for each gradient, then `_create_operators`.
        """

    def _create_operators(self, param: Parameter, grad: Variable) -> Pair:
        """Append the ops that clip a gradient; returns the parameter with the new one."""
        return param, self._clipped(grad)

    def _clip_pair(
        self, param: Parameter, grad: Variable, clipped: Callable[[Variable], Variable]
    ) -> Pair:
        """Return the parameter with its clipped gradient, if it needs clipping."""
        if not self._needed(param):
            return param, grad
        with _update_guard(param, grad):
            return param, clipped(grad)

    def _clipped(self, grad: Variable) -> Variable:
        """Return the clipped gradient."""
        raise NotImplementedError(f"{type(self).__name__} does not define _clipped")


class GradientClipByValue(GradientClipBase):
    """Clamp each element to [`min`, `max`]; the default of `min` is `-max`."""

    @typed
    def __init__(
        self,
        max: float,
        min: float | None = None,
        need_clip: Callable[[Parameter], bool] | None = None,
    ) -> None:
        super().__init__(need_clip)
        if min is None and max <= 0.0:
            raise ValueError(f"GradientClipByValue without min needs max > 0, not {max}")
        self.max = float(max)
        self.min = -self.max if min is None else float(min)

    def __str__(self) -> str:
        return f"Gradient Clip By Value, min = {self.min:f}, max={self.max:f}"

    def _clipped(self, grad: Variable) -> Variable:
        return layers.clip(grad, self.min, self.max)


class GradientClipByNorm(GradientClipBase):
    """Scale each gradient to an L2 norm of at most `clip_norm`."""

    @typed
    def __init__(
        self, clip_norm: float, need_clip: Callable[[Parameter], bool] | None = None
    ) -> None:
        super().__init__(need_clip)
        self.clip_norm = float(clip_norm)

    def __str__(self) -> str:
        return f"Gradient Clip By Norm, clip_norm={self.clip_norm:f}"

    def _clipped(self, grad: Variable) -> Variable:
        return layers.clip_by_norm(grad, self.clip_norm)


class GradientClipByGlobalNorm(GradientClipBase):
    """Scale all gradients together to a global L2 norm of at most `clip_norm`."""

    @typed
    def __init__(
        self,
        clip_norm: float,
        group_name: str = "default_group",
        need_clip: Callable[[Parameter], bool] | None = None,
    ) -> None:
        super().__init__(need_clip)
        self.clip_norm = float(clip_norm)
        self.group_name = group_name
        self._group: _Group | None = None

    def __str__(self) -> str:
        return f"Gradient Clip By GlobalNorm, global_norm={self.clip_norm:f}"

    def clipped_pairs(self, pairs: Pairs) -> Pairs:
        """Return the scaled pairs."""
        needed = [pair for pair in pairs if self._needed(pair[0])]
        if not needed:
            return pairs
        squares = [_square(*pair) for pair in needed]
        with _update_guard(*needed[-1]):
            norm = layers.sqrt(layers.sums(squares))
            factor = _factor(self._limit(), norm)
        rescale = functools.partial(layers.elementwise_mul, y=factor)
        return [self._clip_pair(param, grad, rescale) for param, grad in pairs]

    def _process_context(self, context: ClipContext, param: Parameter, grad: Variable) -> None:
        """Note the square of a gradient; ValueError if another of its group has another norm."""
        if self.group_name not in context:
            context[self.group_name] = _Group(self.clip_norm, self._limit())
        group = context[self.group_name]
        if group.clip_norm != self.clip_norm:
            raise ValueError(f"all clips of group {self.group_name!r} should have one 'clip_norm'")
        group.squares.append(_square(param, grad))
        self._group = group

    def _create_operators(self, param: Parameter, grad: Variable) -> Pair:
        """Append the ops that scale a gradient by the norm of those noted before."""
        assert self._group is not None, "_create_operators follows _process_context"
        return param, layers.elementwise_mul(grad, self._group.factor())

    def _limit(self) -> Variable:
        return layers.fill_constant([1], "float32", self.clip_norm)


@dataclass
class _Group:
    """The gradients that are scaled together, while a program is recorded."""

    clip_norm: float
    limit: Variable
    squares: list[Variable] = field(default_factory=list[Variable])
    known_factor: Variable | None = None

    def factor(self) -> Variable:
        """The factor of all gradients, whose ops are appended at the first call."""
        if self.known_factor is None:
            norm = layers.sqrt(layers.sums(self.squares))
            self.known_factor = _factor(self.limit, norm)
        return self.known_factor


def _factor(limit: Variable, norm: Variable) -> Variable:
    return layers.elementwise_div(limit, layers.elementwise_max(limit, norm))


def _with_gradients(params_grads: Iterable[ParameterAndGradient]) -> Pairs:
    """Return the pairs that have a gradient."""
    return [(param, grad) for param, grad in params_grads if grad is not None]


def _square(param: Parameter, grad: Variable) -> Variable:
    """Return the sum of a gradient's squares; duplicate rows of a sparse one are merged."""
    with _update_guard(param, grad):
        if grad.type == VarDesc.VarType.SELECTED_ROWS:
            grad = layers.get_tensor_from_selected_rows(layers.merge_selected_rows(grad))
        return layers.reduce_sum(layers.square(grad))


ClipByValue = GradientClipByValue
ClipByNorm = GradientClipByNorm
ClipByGlobalNorm = GradientClipByGlobalNorm


@typed
def set_gradient_clip(
    clip: GradientClipBase,
    param_list: Sequence[Parameter | str] | None = None,
    program: Program | None = None,
) -> None:
    """Set the clip of parameters (default: all of a program) for the next `minimize`.

    Raises TypeError unless `clip` is a gradient clip and the list has parameters; warns if
    `minimize` was called before.
    """
    block = (program or default_main_program()).global_block()
    if any(op.is_optimize_op() for op in block.ops):
        warnings.warn("set_gradient_clip has no effect after minimize", stacklevel=3)
    named = block.all_parameters() if param_list is None else param_list
    params = [block.var(param) if isinstance(param, str) else param for param in named]
    for param in params:
        if not isinstance(param, Parameter):
            raise TypeError(f"param_list takes Parameters or names, not {type(param).__name__}")
    for param in params:
        vars(param)["gradient_clip_attr"] = clip


def append_gradient_clip_ops(params_grads: Iterable[ParameterAndGradient]) -> Pairs:
    """Append the clips set by `set_gradient_clip`; the pairs keep their order.

    Global norms are computed per group: parameters whose clips have the same `group_name`. Raises
    ValueError if clips of a group differ in their norm.
    """
    pairs = _with_gradients(params_grads)
    context: ClipContext = {}
    renewed: dict[str, Variable] = {}
    with name_scope("gradient_clip_@CLIP"):
        clipped = [(clip, pair) for pair in pairs if (clip := _clip_of(pair[0]))]
        for clip, (param, grad) in clipped:
            with _update_guard(param, grad):
                clip._process_context(context=context, param=param, grad=grad)  # pyright: ignore[reportPrivateUsage] - users override it
        for clip, (param, grad) in clipped:
            with _update_guard(param, grad):
                _, renewed[param.name] = clip._create_operators(param=param, grad=grad)  # pyright: ignore[reportPrivateUsage]
    return [(param, renewed.get(param.name, grad)) for param, grad in pairs]


def _clip_of(param: Parameter) -> GradientClipBase | None:
    """The clip of a parameter, if it needs one."""
    clip = param.gradient_clip_attr
    return clip if isinstance(clip, GradientClipBase) and clip._needed(param) else None  # pyright: ignore[reportPrivateUsage]


def _update_guard(param: Parameter, grad: Variable) -> AbstractContextManager[None]:
    """Context manager in which appended ops belong to the update of this parameter."""
    return param.block.program.optimized_guard([param, grad])


def correct_role_vars(block: Block, start: int, params_grads: Iterable[Pair]) -> None:
    """Set the role variables of clip ops, from index `start`, to the final gradients."""
    used = {param.name: grad.name for param, grad in params_grads}
    for op in block.ops[start:]:
        named = op.attr("op_role_var")
        if named and named[0] in used:
            op.set_attr("op_role_var", [named[0], used[named[0]]])
