"""Eager mode: what enables it, makes variables in it, and controls gradients (`fluid.eager`)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from fluid.eager.gradients import grad
from fluid.eager.mode import (
    disable_dygraph,
    disable_imperative,
    enable_dygraph,
    enable_imperative,
    guard,
    no_grad,
    to_variable,
)
from fluid.eager.tracers import (
    Tracer,
    param_guard,
    program_desc_tracing_guard,
    switch_to_static_graph,
)
from fluid.framework import in_dygraph_mode

__all__ = [
    "Tracer", "disable_dygraph", "disable_imperative", "enable_dygraph", "enable_imperative",
    "enabled", "grad", "guard", "no_grad", "param_guard", "program_desc_tracing_guard",
    "switch_to_static_graph", "to_variable",
]  # fmt: skip

enabled = in_dygraph_mode
_no_grad_ = no_grad
_switch_to_static_graph_ = switch_to_static_graph


def _switch_tracer_mode_guard_(  # pyright: ignore[reportUnusedFunction] - a name of Paddle
    is_train: bool = True,
) -> AbstractContextManager[None]:
    """A context without gradients, or that changes nothing if `is_train`."""
    return nullcontext() if is_train else no_grad()
