"""Which slices of which variables go when filters of convolutions are removed."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from fluid.contrib.slim.graph.graph_wrapper import GraphWrapper, OpWrapper, VarWrapper

__all__ = ["PrunedSlices"]

_CHANNELWISE = frozenset(
    (
        "relu relu6 leaky_relu elu sigmoid tanh swish hard_swish hard_sigmoid pool2d dropout scale "
        "affine_channel"
    ).split()
)
"""Ops whose output has the channels of the input."""


class PrunedSlices:
    """Indices to remove, by name of a variable and axis, as they are before anything is removed."""

    def __init__(self, graph: GraphWrapper) -> None:
        self._graph = graph
        self._ops = [op for op in graph.ops() if not op.is_bwd_op()]
        self.indices: dict[str, dict[int, set[int]]] = {}

    def prune_filters(self, param: VarWrapper, indices: Iterable[int]) -> None:
        """Remove filters of a convolution, and what reads their outputs.

        Raises ValueError where the channels reach an op through which they cannot be followed.
        """
        removed = set(indices)
        self._remove(param, 0, removed)
        for op in self._ops:
            if op.type() in ("conv2d", "depthwise_conv2d") and param in op.inputs("Filter"):
                self._follow(op.outputs("Output")[0], removed)

    def _remove(self, var: VarWrapper, axis: int, removed: set[int]) -> None:
        """Remove slices of a parameter, and of what an optimizer keeps for it."""
        kept = [var]
        for op in var.inputs():
            if op.is_opt_op():
                kept += [v for v in op.all_outputs() if v != var and v.shape() == var.shape()]
        for each in kept:
            self.indices.setdefault(each.name(), {}).setdefault(axis, set()).update(removed)

    def _follow(self, var: VarWrapper, removed: set[int]) -> None:
        """Remove channels of a variable from what reads it."""
        for op in self._ops:
            if var in op.all_inputs():
                self._follow_through(op, var, removed)

    def _follow_through(self, op: OpWrapper, var: VarWrapper, removed: set[int]) -> None:
        kind = op.type()
        if kind in ("conv2d", "depthwise_conv2d"):
            self._reach_convolution(op, var, removed)
        elif kind == "batch_norm":
            for slot in ("Scale", "Bias", "Mean", "Variance"):
                self._remove(op.inputs(slot)[0], 0, removed)
            self._follow(op.outputs("Y")[0], removed)
        elif kind == "elementwise_add" and self._graph.is_parameter(op.inputs("Y")[0]):
            self._remove(op.inputs("Y")[0], 0, removed)
            self._follow(op.outputs("Out")[0], removed)
        elif kind == "mul" and op.attr("x_num_col_dims") == 1:
            size = prod(var.shape()[2:])
            rows = {channel * size + offset for channel in removed for offset in range(size)}
            self._remove(op.inputs("Y")[0], 0, rows)
        elif kind == "concat" and op.attr("axis") == 1:
            inputs = op.inputs("X")
            before = sum(each.shape()[1] for each in inputs[: inputs.index(var)])
            self._follow(op.outputs("Out")[0], {before + channel for channel in removed})
        elif kind in _CHANNELWISE:
            self._follow(op.outputs("Out")[0], removed)
        else:
            raise ValueError(
                f"channels of {var.name()!r} cannot be removed: {kind} reads them, through which "
                "pruning does not follow. Leave the convolution before it out of pruned_params"
            )

    def _reach_convolution(self, op: OpWrapper, var: VarWrapper, removed: set[int]) -> None:
        weight = op.inputs("Filter")[0]
        if var not in op.inputs("Input"):
            return
        if op.attr("groups") == 1 and op.type() == "conv2d":
            self._remove(weight, 1, removed)
        elif op.attr("groups") == var.shape()[1] == weight.shape()[0]:
            self._remove(weight, 0, removed)
            self._follow(op.outputs("Output")[0], removed)
        else:
            raise ValueError(
                f"channels of {var.name()!r} cannot be removed: {op.type()} reads them in groups"
            )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the variables of which slices are removed, after that."""
        shapes: dict[str, tuple[int, ...]] = {}
        for name, by_axis in self.indices.items():
            sizes = list(self._graph.var(name).shape())
            for axis, removed in by_axis.items():
                sizes[axis] -= len(removed)
            shapes[name] = tuple(sizes)
        return shapes
