"""Recurrent layers over sequences, and their single-step units."""

from __future__ import annotations

from compiler.errors import ShapeError
from fluid.framework import Variable
from fluid.initializer import Initializer
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.nn import fc
from fluid.param_attr import ParamAttrLike
from fluid.recording.annotations import DTypeLike
from fluid.recording.checks import SizesError, check_type, check_variable_and_dtype

__all__ = ["dynamic_gru", "dynamic_lstm", "dynamic_lstmp", "gru_unit", "lstm", "lstm_unit"]

FLOATS = ("float32", "float64")
UNIT_ACTIVATIONS = {"identity": 0, "sigmoid": 1, "tanh": 2, "relu": 3}


def _check_state(state: Variable | None, name: str, sequences: str, width: int, layer: str) -> None:
    """Raise TypeError or ValueError unless an initial state is None or [sequences, width]."""
    if state is None:
        return
    check_variable_and_dtype(state, name, FLOATS, layer)
    if len(state.shape) != 2 or state.shape[1] != width:
        raise SizesError(
            f"{name} of {layer} must be [{sequences}, {width}], but {state.name!r} is "
            f"{list(state.shape)}"
        )


def _check_lstm(
    layer: str,
    input: Variable,
    bias_attr: ParamAttrLike,
    h_0: Variable | None,
    c_0: Variable | None,
    widths: tuple[int, int],
) -> None:
    """Raise TypeError or ValueError for a bad input, a bias_attr of False and bad states; `widths`
    are those of the hidden state and the cell.
    """
    check_variable_and_dtype(input, "input", FLOATS, layer)
    if bias_attr is False:
        raise ValueError(f"bias_attr of {layer} cannot be False: it has a bias")
    _check_state(h_0, "h_0", "sequences", widths[0], layer)
    _check_state(c_0, "c_0", "sequences", widths[1], layer)


def _check_gates(layer: str, input: Variable, size: int) -> None:
    """Raise ShapeError for an input that is not the projection of four gates of width size / 4."""
    if size % 4 or input.shape[-1] not in (-1, size):
        raise ShapeError(
            f"{layer}: input {input.name!r} is {list(input.shape)} and size is {size}, expected "
            "input [rows, size] and a size that 4 divides",
            hint=f"fluid.layers.fc({input.name}, {size + -size % 4}) has the width of four gates",
        )


def _check_clip(name: str, value: float | None) -> None:
    """Raise ValueError for a negative bound of `dynamic_lstmp`."""
    if value is not None and value < 0:
        raise ValueError(f"{name} of dynamic_lstmp is {value}, but can not be negative")


def _create_outputs(helper: LayerHelper, dtype: DTypeLike, *slots: str) -> dict[str, Variable]:
    """Create a temporary for each output slot."""
    return {slot: helper.create_variable_for_type_inference(dtype) for slot in slots}


def dynamic_lstm(
    input: Variable,
    size: int,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    dtype: DTypeLike = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """LSTM over LoD sequences: hidden state and cell [rows, size / 4].

    `input` [rows, size] is the input projection of the four gates, usually from `fc`. `h_0` and
    `c_0` [count, size / 4] are the initial states. Raises ValueError for a bias_attr of False, and
    for states of other sizes.

    >>> import fluid
    >>> gates = fluid.data("lstm_gates", [None, 32], lod_level=1)
    >>> hidden, cell = fluid.layers.dynamic_lstm(gates, size=32)
    >>> hidden.shape, cell.lod_level
    ((-1, 8), 1)
    """
    width = size // 4
    _check_lstm("dynamic_lstm", input, bias_attr, h_0, c_0, (width, width))
    _check_gates("dynamic_lstm", input, size)
    helper = LayerHelper("lstm", param_attr=param_attr, bias_attr=bias_attr, name=name)
    weight = helper.create_parameter(helper.param_attr, [width, 4 * width], dtype)
    shape = [1, (7 if use_peepholes else 4) * width]
    bias = helper.create_parameter(helper.bias_attr, shape, dtype, is_bias=True)
    outputs = _create_outputs(helper, dtype, "Hidden", "Cell", "BatchGate", "BatchCellPreAct")
    helper.append_op(
        "lstm",
        inputs={"Input": input, "Weight": weight, "Bias": bias, "H0": h_0, "C0": c_0},
        outputs=outputs,
        attrs={
            "use_peepholes": use_peepholes,
            "is_reverse": is_reverse,
            "gate_activation": gate_activation,
            "cell_activation": cell_activation,
            "candidate_activation": candidate_activation,
        },
    )
    return outputs["Hidden"], outputs["Cell"]


def dynamic_lstmp(
    input: Variable,
    size: int,
    proj_size: int,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
    dtype: DTypeLike = "float32",
    name: str | None = None,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Variable, Variable]:
    """LSTM with recurrent projection: projected state [rows, proj_size] and cell [rows, size / 4].

    Like `dynamic_lstm`, but the recurrent state is a projection of the hidden state, `h_0` is
    [count, proj_size], and cell and projection are clamped to ± `cell_clip` and `proj_clip`. As in
    the reference, the projection's activation is `cell_activation`, unless `proj_activation` is
    "identity".
    """
    width = size // 4
    _check_lstm("dynamic_lstmp", input, bias_attr, h_0, c_0, (proj_size, width))
    _check_clip("cell_clip", cell_clip)
    _check_clip("proj_clip", proj_clip)
    helper = LayerHelper("lstmp", param_attr=param_attr, bias_attr=bias_attr, name=name)
    weight = helper.create_parameter(helper.param_attr, [proj_size, 4 * width], dtype)
    projection = helper.create_parameter(helper.param_attr, [width, proj_size], dtype)
    shape = [1, (7 if use_peepholes else 4) * width]
    bias = helper.create_parameter(helper.bias_attr, shape, dtype, is_bias=True)
    slots = ("Projection", "Cell", "BatchHidden", "BatchGate", "BatchCellPreAct")
    outputs = _create_outputs(helper, dtype, *slots)
    weights = {"Weight": weight, "ProjWeight": projection, "Bias": bias}
    inputs = {"Input": input, **weights, "H0": h_0, "C0": c_0}
    attrs = {
        "use_peepholes": use_peepholes, "cell_clip": cell_clip, "proj_clip": proj_clip,
        "is_reverse": is_reverse, "gate_activation": gate_activation,
        "cell_activation": cell_activation, "candidate_activation": candidate_activation,
        "proj_activation": proj_activation,
    }  # fmt: skip
    helper.append_op("lstmp", inputs=inputs, outputs=outputs, attrs=attrs)
    return outputs["Projection"], outputs["Cell"]


def dynamic_gru(
    input: Variable,
    size: int,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    h_0: Variable | None = None,
    origin_mode: bool = False,
) -> Variable:
    """GRU over LoD sequences: hidden state [rows, size].

    `input` [rows, 3 * size] is the input projection of the gates, usually from `fc`. The new state
    is `(1 - update) * previous + update * candidate`, with the weights exchanged if `origin_mode`.
    `h_0` [count, size] is the initial state; ValueError for another shape.

    >>> import fluid
    >>> gates = fluid.data("gru_gates", [None, 24], lod_level=1)
    >>> fluid.layers.dynamic_gru(gates, size=8).shape
    (-1, 8)
    """
    check_variable_and_dtype(input, "input", FLOATS, "dynamic_gru")
    _check_state(h_0, "h_0", "sequences", size, "dynamic_gru")
    helper = LayerHelper("gru", param_attr=param_attr, bias_attr=bias_attr)
    weight = helper.create_parameter(helper.param_attr, [size, 3 * size], input.dtype)
    bias = helper.create_parameter(helper.bias_attr, [1, 3 * size], input.dtype, is_bias=True)
    slots = ("Hidden", "BatchGate", "BatchResetHiddenPrev", "BatchHidden")
    outputs = _create_outputs(helper, input.dtype, *slots)
    helper.append_op(
        "gru",
        inputs={"Input": input, "Weight": weight, "Bias": bias, "H0": h_0},
        outputs=outputs,
        attrs={
            "is_reverse": is_reverse,
            "gate_activation": gate_activation,
            "activation": candidate_activation,
            "origin_mode": origin_mode,
        },
    )
    return outputs["Hidden"]


# ---- single steps -------------------------------------------------------------------------------


def gru_unit(
    input: Variable,
    hidden: Variable,
    size: int,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> tuple[Variable, Variable, Variable]:
    """One GRU step: new hidden state, reset hidden state and gates.

    `input` [n, size] is the input projection of the gates, `hidden` [n, size / 3] the previous
    state. Activations are "identity", "sigmoid", "tanh" or "relu"; ValueError for others.
    """
    check_variable_and_dtype(input, "input", FLOATS, "gru_unit")
    check_variable_and_dtype(hidden, "hidden", FLOATS, "gru_unit")
    check_type(size, "size", int, "gru_unit")
    helper = LayerHelper("gru_unit", param_attr=param_attr, bias_attr=bias_attr)
    width = size // 3
    weight = helper.create_parameter(helper.param_attr, [width, 3 * width], input.dtype)
    bias = helper.create_parameter(helper.bias_attr, [1, 3 * width], input.dtype, is_bias=True)
    outputs = _create_outputs(helper, input.dtype, "Gate", "ResetHiddenPrev", "Hidden")
    helper.append_op(
        "gru_unit",
        inputs={"Input": input, "HiddenPrev": hidden, "Weight": weight, "Bias": bias},
        outputs=outputs,
        attrs={
            "activation": _unit_activation(activation),
            "gate_activation": _unit_activation(gate_activation),
            "origin_mode": origin_mode,
        },
    )
    return outputs["Hidden"], outputs["ResetHiddenPrev"], outputs["Gate"]


def _unit_activation(name: str) -> int:
    """Return the enum value of an activation; ValueError if `gru_unit` does not support it."""
    if name not in UNIT_ACTIVATIONS:
        names = ", ".join(UNIT_ACTIVATIONS)
        raise ValueError(f"gru_unit has the activations {names}, but received {name!r}")
    return UNIT_ACTIVATIONS[name]


def lstm_unit(
    x_t: Variable,
    hidden_t_prev: Variable,
    cell_t_prev: Variable,
    forget_bias: float = 0.0,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """One LSTM step: hidden state and cell [n, width].

    `x_t` is [n, size], the previous state and cell are [n, width]; `forget_bias` is added to the
    forget gate. Raises ValueError for other shapes.
    """
    helper = LayerHelper("lstm_unit", name=name)
    states = {"x_t": x_t, "hidden_t_prev": hidden_t_prev, "cell_t_prev": cell_t_prev}
    for argument, value in states.items():
        check_variable_and_dtype(value, argument, FLOATS, "lstm_unit")
    _check_step(states)
    joined = append_simple_op("concat", {"X": [x_t, hidden_t_prev]}, {"axis": 1})
    width = cell_t_prev.shape[1]
    gates = fc(joined, 4 * width, param_attr=param_attr, bias_attr=bias_attr)
    outputs = _create_outputs(helper, x_t.dtype, "C", "H")
    helper.append_op(
        "lstm_unit",
        inputs={"X": gates, "C_prev": cell_t_prev},
        outputs=outputs,
        attrs={"forget_bias": float(forget_bias)},
    )
    return outputs["H"], outputs["C"]


def _check_step(states: dict[str, Variable]) -> None:
    """Raise ValueError unless input, state and cell have equal rows, the latter equal widths."""
    shapes = {name: tuple(value.shape) for name, value in states.items()}
    shown = ", ".join(f"{name} is {list(shape)}" for name, shape in shapes.items())
    if any(len(shape) != 2 for shape in shapes.values()):
        raise ValueError(f"lstm_unit takes matrices, but {shown}")
    if len({shape[0] for shape in shapes.values()}) > 1:
        raise ValueError(f"lstm_unit requires equal numbers of rows, but {shown}")
    if shapes["hidden_t_prev"][1] != shapes["cell_t_prev"][1]:
        raise ValueError(
            f"the state and the cell of lstm_unit must have the same width, but {shown}"
        )


# ---- sequences of equal length ------------------------------------------------------------------


def lstm(
    input: Variable,
    init_h: Variable,
    init_c: Variable,
    max_len: int,
    hidden_size: int,
    num_layers: int,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    is_test: bool = False,
    name: str | None = None,
    default_initializer: Initializer | None = None,
    seed: int = -1,
) -> tuple[Variable, Variable, Variable]:
    """Multi-layer LSTM over sequences of equal length: output, last hidden state, last cell.

    `input` is [length, batch, size], the output [length, batch, hidden_size], `init_h`, `init_c`,
    the last state and cell are [num_layers, batch, hidden_size]; `is_bidirec` doubles the
    `hidden_size` of the output and the layers of the states. All weights are one parameter. In
    training, dropout with `dropout_prob` is applied between layers; a `seed` of -1 draws a new mask
    in each step, unless the program has a seed. The length is not checked against `max_len`.

    >>> import fluid
    >>> steps = fluid.data("lstm_steps", [7, None, 5])
    >>> state = fluid.data("lstm_state", [2, None, 3])
    >>> out, last_h, last_c = fluid.layers.lstm(steps, state, state, 7, 3, num_layers=2)
    >>> out.shape, last_h.shape
    ((7, -1, 3), (2, -1, 3))
    """
    _check_variables("lstm", input=input, init_h=init_h, init_c=init_c)
    _check_integers("lstm", max_len=max_len, hidden_size=hidden_size, num_layers=num_layers)
    helper = LayerHelper("cudnn_lstm", name=name)
    count = _weight_count(input.shape[-1], hidden_size, num_layers, 2 if is_bidirec else 1)
    weight = helper.create_parameter(
        helper.param_attr, [count], input.dtype, default_initializer=default_initializer
    )
    outputs = _create_outputs(helper, input.dtype, "Out", "last_h", "last_c")
    if dropout_prob and not is_test:
        outputs["DropoutMask"] = helper.create_variable_for_type_inference(
            "uint8", stop_gradient=True
        )
        seed = helper.main_program.fresh_seed() or seed if seed == -1 else seed
    helper.append_op(
        "cudnn_lstm",
        inputs={"Input": input, "InitH": init_h, "InitC": init_c, "W": weight},
        outputs=outputs,
        attrs={
            "max_len": max_len, "is_bidirec": is_bidirec, "input_size": input.shape[-1],
            "hidden_size": hidden_size, "num_layers": num_layers, "is_test": is_test,
            "dropout_prob": float(dropout_prob), "seed": seed,
        },
    )  # fmt: skip
    return outputs["Out"], outputs["last_h"], outputs["last_c"]


def _check_variables(layer: str, **variables: Variable) -> None:
    """Raise TypeError unless all arguments are Variables of a floating-point dtype."""
    for argument, value in variables.items():
        check_variable_and_dtype(value, argument, FLOATS, layer)


def _check_integers(layer: str, **numbers: int) -> None:
    """Raise TypeError unless all arguments are integers."""
    for argument, value in numbers.items():
        check_type(value, argument, int, layer)


def _weight_count(size: int, hidden: int, layers: int, directions: int) -> int:
    """Return the number of elements of all weights: matrices, and two biases per gate."""
    sizes = [size, *[hidden * directions] * (layers - 1)]
    return sum(directions * 4 * hidden * (input_size + hidden + 2) for input_size in sizes)
