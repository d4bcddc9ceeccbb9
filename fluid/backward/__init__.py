"""Public gradient functions, implemented by `compiler.ir.autodiff.append_backward`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import cast

from compiler.ir import program as ir
from compiler.ir.autodiff import append_backward as autodiff
from compiler.support.tracebacks import entry_point
from fluid.backward import paths as backward_paths
from fluid.backward.recompute import recompute_segments, seed_dropouts
from fluid.compat.descs import BlockDesc, OpDesc
from fluid.framework import Parameter, Variable, block_of
from fluid.recording.atomic import atomic
from fluid.recording.checks import check_type, check_variable
from fluid.recording.narrowing import is_sequence
from fluid.recording.variable import AbstractBlock

__all__ = ["append_backward", "calc_gradient", "gradients"]

_all_in_set_ = backward_paths.all_in_set
_as_list = backward_paths.as_list
_find_no_grad_vars = backward_paths.find_no_grad_vars
_find_op_path_ = find_op_path = backward_paths.find_op_path
_get_no_grad_set_name = backward_paths.no_grad_set_names
_get_stop_gradients_ = backward_paths.stop_gradients
_is_grad_var_ = backward_paths.is_grad_var
_some_in_set_ = backward_paths.some_in_set
_strip_grad_suffix_ = backward_paths.strip_grad_suffix


@entry_point
@atomic
def append_backward(
    loss: Variable,
    parameter_list: Iterable[Variable | str] | None = None,
    no_grad_set: Collection[Variable | str] | None = None,
    callbacks: list[Callable[..., object]] | None = None,
    checkpoints: list[Variable | str] | None = None,
) -> list[tuple[Parameter, Variable]]:
    """Append the gradient ops of `loss`; return (parameter, gradient) pairs.

    Pairs are in order of creation, for trainable parameters or those listed, if they have a
    gradient. Variables that stop gradients and those of `no_grad_set` have none. Each callback is
    called after each op with `block` and `context`, which maps gradients to variables and
    "__current_op_desc__" to the description of the op. Between `checkpoints`, forward values are
    recomputed instead of stored, see `recompute`. Raises TypeError for arguments of other types.
    """
    check_variable(loss, "loss", "append_backward")
    check_type(callbacks, "callbacks", (list, type(None)), "append_backward")
    check_type(checkpoints, "checkpoints", (list, type(None)), "append_backward")
    for callback in callbacks or ():
        if not callable(callback):
            raise ValueError("'callback' must be a callable object.")
    wanted = _parameters(loss, parameter_list)
    loss.block.program.prepare_append()
    checkpoint_names = [_name(checkpoint, "checkpoints") for checkpoint in checkpoints or ()]
    path: list[ir.OpDesc] = []
    if checkpoint_names:
        no_grad = no_grad_names(no_grad_set)
        path = seed_dropouts(loss.block, find_op_path(block_of(loss), [loss], [], no_grad))
    forward_count = len(loss.block.ops)

    def call_back(block: ir.Block, op: ir.OpDesc, context: Mapping[str, str]) -> None:
        for callback in callbacks or ():
            callback(
                block=block,
                context={**context, "__current_op_desc__": OpDesc(op, BlockDesc(block))},
            )

    gradients_by_name = autodiff.append_backward(
        loss.block, loss.name, no_grad_names(no_grad_set), call_back
    )
    pairs = [(name, gradients_by_name[name]) for name in wanted if name in gradients_by_name]
    autodiff.note_parameters(loss.block, pairs)
    recompute_segments(loss.block, path, forward_count, checkpoint_names)
    block = loss.block.program.global_block()
    return [(_parameter(block, param), loss.block.var(gradient)) for param, gradient in pairs]


def _parameter(block: AbstractBlock, name: str) -> Parameter:
    """Return a variable that a loss is minimized by: a Parameter, or one that scripts list."""
    return cast(Parameter, block.var(name))


@entry_point
@atomic
def gradients(
    targets: Variable | list[Variable],
    inputs: Variable | list[Variable],
    target_gradients: Variable | list[Variable | None] | None = None,
    no_grad_set: Collection[Variable | str] | None = None,
) -> list[Variable | None]:
    """Append the ops that compute the gradients of `targets` with respect to `inputs`.

    `target_gradients` are the gradients of the targets themselves, ones where None. The result is
    None for an input on which no target depends. Raises TypeError for arguments of other types and
    ValueError if targets and their gradients do not match.
    """
    targets = _listed(targets, "targets")
    inputs = _listed(inputs, "inputs")
    seed_gradients = target_gradients if isinstance(target_gradients, list) else [target_gradients]
    seed_gradients = seed_gradients * len(targets) if target_gradients is None else seed_gradients
    for seed in seed_gradients:
        check_type(seed, "target_gradients", (Variable, type(None)), "gradients")
    if len(seed_gradients) != len(targets):
        raise ValueError("Should have the same number of target_gradients as targets")
    seeds: dict[str, str | None] = {}
    for target, seed in zip(targets, seed_gradients, strict=True):
        if seed is not None and seed.shape != target.shape:
            raise ValueError(
                f"the gradient {seed.name!r} has shape {seed.shape}, but its target "
                f"{target.name!r} has {target.shape}"
            )
        seeds[target.name] = None if seed is None else seed.name
    block = targets[0].block
    names = [variable.name for variable in inputs]
    block.program.prepare_append()
    gradients_by_name = autodiff.append_gradients(block, seeds, names, no_grad_names(no_grad_set))
    return [
        block.var(gradients_by_name[name]) if name in gradients_by_name else None for name in names
    ]


@entry_point
def calc_gradient(
    targets: Variable | list[Variable],
    inputs: Variable | list[Variable],
    target_gradients: Variable | list[Variable | None] | None = None,
    no_grad_set: Collection[Variable | str] | None = None,
) -> Variable | list[Variable | None] | None:
    """`gradients`; returns a single variable for a single input."""
    results = gradients(targets, inputs, target_gradients, no_grad_set)
    return results[0] if len(results) == 1 else results


def _append_grad_suffix_(name: str) -> str:  # pyright: ignore[reportUnusedFunction]
    """Return the name of a variable's gradient: `x@GRAD`."""
    return f"{name}@GRAD"


def no_grad_names(no_grad_set: Collection[Variable | str] | None) -> set[str]:
    """Return the names of variables without gradient; TypeError for other types."""
    check_type(
        no_grad_set, "no_grad_set", (set, frozenset, list, tuple, type(None)), "append_backward"
    )
    return {_name(variable, "no_grad_set") for variable in no_grad_set or ()}


def _name(item: Variable | str, argument: str) -> str:
    check_type(item, argument, (Variable, str), "append_backward")
    return item if isinstance(item, str) else item.name


def _parameters(loss: Variable, listed: Iterable[Variable | str] | None) -> list[str]:
    if listed is None:
        params = loss.block.program.all_parameters()
        return [param.name for param in params if param.trainable]
    check_type(listed, "parameter_list", (list, tuple, set), "append_backward")
    return [_name(parameter, "parameter_list") for parameter in listed]


def _listed(value: object, argument: str) -> list[Variable]:
    items = value if is_sequence(value) else [value]
    return [check_variable(item, argument, "gradients") for item in items]
