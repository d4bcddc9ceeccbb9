"""Recurrent cells, which compute one time step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from fluid import unique_name
from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.layers.control.nested import Structure, flatten, is_dict, map_structure
from fluid.layers.mathematics.arithmetic import elementwise_add, elementwise_mul
from fluid.layers.mathematics.linalg import matmul
from fluid.layers.mathematics.shapes import concat, split
from fluid.layers.ops import sigmoid, tanh
from fluid.layers.tensor import fill_constant, fill_constant_batch_size_like
from fluid.param_attr import OneAttr, ParamAttr, ParamAttrLike
from fluid.recording.annotations import DTypeLike
from fluid.recording.checks import check_dtype, check_type, check_variable, check_variable_and_dtype

__all__ = ["GRUCell", "LSTMCell", "RNNCell"]

FLOATS = ("float32", "float64")
Activation = Callable[[Variable], Variable]


class RNNCell:
    """Base class of recurrent cells; subclasses implement `call` and `state_shape`."""

    def call(self, inputs: Structure, states: Structure, **kwargs: object) -> Structure:
        """Compute one step; returns (outputs, new states)."""
        raise NotImplementedError("RNNCell must implement the call function.")

    def __call__(self, inputs: Structure, states: Structure, **kwargs: object) -> Structure:
        """Call `call`."""
        return self.call(inputs, states, **kwargs)

    def get_initial_states(
        self,
        batch_ref: Structure,
        shape: Structure = None,
        dtype: Structure = "float32",
        init_value: float = 0,
        batch_dim_idx: int = 0,
    ) -> Structure:
        """Return states filled with `init_value`, with the batch size of `batch_ref`.

        `shape` is a shape without the batch axis, or a structure of shapes; default: `state_shape`.
        `dtype` is one dtype or a matching structure. The batch size is axis `batch_dim_idx` of
        `batch_ref`. Raises TypeError for other arguments.
        """
        first = flatten(batch_ref)[0]
        kinds = ["float32", "float64", "int32", "int64"]
        check_variable_and_dtype(first, "batch_ref", kinds, "RNNCell")
        check_type(shape, "shape", (list, tuple, type(None), int), "RNNCell")
        shapes = _with_batch_axis(self.state_shape if shape is None else shape)
        kind = self._state_dtypes() if dtype is None else dtype
        if len(flatten(kind)) == 1:
            only = flatten(kind)[0]
            check_dtype(only, "dtype", FLOATS, "RNNCell")
            kind = map_structure(lambda _: only, shapes)

        def filled(shape: _Shape, dtype: DTypeLike) -> Variable:
            return fill_constant_batch_size_like(
                first, shape.sizes, dtype, init_value, input_dim_idx=batch_dim_idx
            )

        return map_structure(filled, shapes, kind)

    def _state_dtypes(self) -> Structure:
        try:
            return self.state_dtype
        except NotImplementedError:
            return "float32"

    @property
    def state_shape(self) -> Structure:
        """Shape of the states without the batch axis, or a structure of shapes."""
        raise NotImplementedError("Please add implementation for `state_shape` in the used cell.")

    @property
    def state_dtype(self) -> Structure:
        """Dtype of the states, or a structure of dtypes."""
        raise NotImplementedError("Please add implementation for `state_dtype` in the used cell.")


class _Shape:
    """A shape treated as a single leaf of a structure, although it is a list."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = list(sizes) if sizes[0] == -1 else [-1, *sizes]


def _with_batch_axis(shape: Structure) -> Structure:
    """Prepend the batch axis to each shape of a structure."""
    if isinstance(shape, int):
        return _Shape([shape])
    if is_dict(shape):
        return {key: _with_batch_axis(item) for key, item in shape.items()}
    if all(isinstance(size, int) for size in shape):
        return _Shape(shape)
    parts = [_with_batch_axis(item) for item in shape]
    return type(shape)(*parts) if hasattr(shape, "_fields") else type(shape)(parts)


class _Weights:
    """The parameters of a cell, created on the first call, when the input size is known."""

    def __init__(
        self,
        name: str,
        kind: str,
        param_attr: ParamAttrLike,
        bias_attr: ParamAttrLike,
        dtype: DTypeLike,
    ) -> None:
        self.helper = LayerHelper(kind, name=unique_name.generate(f"{name}/{kind}"))
        self.attrs = ParamAttr.to_attr(param_attr), ParamAttr.to_attr(bias_attr)
        self.dtype = dtype
        self.made: list[Variable] = []

    def get(self, sizes: Sequence[tuple[int, int]], suffixes: Sequence[str]) -> list[Variable]:
        """Return a weight of each size, then a bias for each; `suffixes` make the names unique."""
        if not self.made:
            for is_bias, attr in enumerate(self.attrs):
                for size, suffix in zip(sizes, suffixes, strict=True):
                    shape = list(size[1:] if is_bias else size)
                    self.made.append(self._create(attr, suffix, shape, bool(is_bias)))
        return self.made

    def _create(
        self, attr: OneAttr | list[OneAttr], suffix: str, shape: list[int], is_bias: bool
    ) -> Variable:
        attr = copy.copy(attr)
        if isinstance(attr, ParamAttr) and attr.name is not None:
            attr.name += suffix
        made = self.helper.create_parameter(attr, shape, self.dtype, is_bias)
        return check_variable(made, "bias" if is_bias else "weight", self.helper.layer_type)


def _check_cell(hidden_size: object, dtype: DTypeLike, cell: str) -> None:
    check_type(hidden_size, "hidden_size", int, cell)
    check_dtype(dtype, "dtype", FLOATS, cell)


class GRUCell(RNNCell):
    """Gated recurrent unit; output and state are the hidden state [rows, hidden_size].

    `r, u = gate([x, h] W + b)`, `c = act([x, r h] V + d)`, `h = u h + (1 - u) c`.

    >>> import fluid
    >>> cell = fluid.layers.GRUCell(8)
    >>> out, state = cell(fluid.data("x", [None, 4]), fluid.data("h", [None, 8]))
    >>> out.shape
    (-1, 8)
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        dtype: DTypeLike = "float32",
        name: str = "GRUCell",
    ) -> None:
        _check_cell(hidden_size, dtype, "GRUCell")
        self.hidden_size = hidden_size
        self._gate_activation = gate_activation or sigmoid
        self._activation = activation or tanh
        self._weights = _Weights(name, "BasicGRUUnit", param_attr, bias_attr, dtype)

    # The parameters and their names are Paddle's.
    def call(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, inputs: Variable, states: Variable
    ) -> tuple[Variable, Variable]:
        """Return the new hidden state as output and as state."""
        check_variable_and_dtype(inputs, "inputs", FLOATS, "GRUCell")
        check_variable_and_dtype(states, "states", FLOATS, "GRUCell")
        hidden = self._step(inputs, states)
        return hidden, hidden

    def _step(self, inputs: Variable, before: Variable) -> Variable:
        size = self.hidden_size
        rows = inputs.shape[-1] + size
        weights = self._weights.get([(rows, 2 * size), (rows, size)], ["_gate", "_candidate"])
        gate_weight, weight, gate_bias, bias = weights
        gates = elementwise_add(matmul(concat([inputs, before], 1), gate_weight), gate_bias)
        reset, update = split(self._gate_activation(gates), num_or_sections=2, dim=1)
        reset_state = reset * before
        candidate = elementwise_add(matmul(concat([inputs, reset_state], 1), weight), bias)
        fresh = self._activation(candidate)
        return update * before + (1 - update) * fresh

    @property
    def state_shape(self) -> list[int]:
        """[hidden_size]."""
        return [self.hidden_size]


class LSTMCell(RNNCell):
    """Long short-term memory cell; states are [hidden, cell], each [rows, hidden_size].

    `i, j, f, o = [x, h] W + b`, `c = c s(f + forget_bias) + s(i) tanh(j)`, `h = tanh(c) s(o)`.

    >>> import fluid
    >>> cell = fluid.layers.LSTMCell(8)
    >>> states = [fluid.data(name, [None, 8]) for name in ("h", "c")]
    >>> out, (hidden, cell_state) = cell(fluid.data("x", [None, 4]), states)
    >>> out.shape
    (-1, 8)
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        forget_bias: float = 1.0,
        dtype: DTypeLike = "float32",
        name: str = "LSTMCell",
    ) -> None:
        _check_cell(hidden_size, dtype, "LSTMCell")
        self.hidden_size = hidden_size
        self._weights = _Weights(name, "BasicLSTMUnit", param_attr, bias_attr, dtype)
        self._forget_bias = fill_constant([1], dtype=dtype, value=forget_bias)
        self._forget_bias.stop_gradient = False

    # The parameters and their names are Paddle's.
    def call(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, inputs: Variable, states: list[Variable]
    ) -> tuple[Variable, list[Variable]]:
        """Return the new hidden state and both new states."""
        check_variable_and_dtype(inputs, "inputs", FLOATS, "LSTMCell")
        check_type(states, "states", list, "LSTMCell")
        for index, state in enumerate(states):
            check_variable_and_dtype(state, f"state[{index}]", FLOATS, "LSTMCell")
        hidden, cell = self._step(inputs, *states)
        return hidden, [hidden, cell]

    def _step(
        self, inputs: Variable, hidden: Variable, cell: Variable
    ) -> tuple[Variable, Variable]:
        size = self.hidden_size
        weight, bias = self._weights.get([(inputs.shape[-1] + size, 4 * size)], [""])
        gates = elementwise_add(matmul(concat([inputs, hidden], 1), weight), bias)
        i, j, f, o = split(gates, num_or_sections=4, dim=-1)
        retained = elementwise_mul(cell, sigmoid(elementwise_add(f, self._forget_bias)))
        cell = elementwise_add(retained, elementwise_mul(sigmoid(i), tanh(j)))
        return tanh(cell) * sigmoid(o), cell

    @property
    def state_shape(self) -> list[list[int]]:
        """[[hidden_size], [hidden_size]]."""
        return [[self.hidden_size], [self.hidden_size]]
