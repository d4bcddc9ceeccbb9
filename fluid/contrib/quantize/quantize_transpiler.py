"""`QuantizeTranspiler`: inserts fake quantization into programs, and freezes them for inference.

Reference: fluid.contrib.quantize.quantize_transpiler of release 1.8.5, which makes the same
programs, op by op.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.ir.types import Array
from fluid import layers, unique_name
from fluid.executor import global_scope
from fluid.framework import (
    Block,
    Operator,
    Program,
    Variable,
    default_main_program,
    default_startup_program,
    recording_guard,
)
from fluid.initializer import Constant
from fluid.layer_helper import LayerHelper
from fluid.param_attr import ParamAttr
from fluid.recording.var_types import VarDesc
from runtime.device import Place
from runtime.tensors.scope import Scope

__all__ = ["QuantizeTranspiler"]

OPS = ("conv2d", "depthwise_conv2d", "mul")
GRADIENT_OPS = tuple(f"{kind}_grad" for kind in OPS)
TYPES = ("abs_max", "range_abs_max", "moving_average_abs_max")
QUANTIZE_OPS = tuple(f"fake_quantize_{kind}" for kind in TYPES)
SUFFIXES = (".quantized.dequantized", ".quantized", ".dequantized", ".scale")


def quant(x: Array, scale: float, num_bits: int) -> Array:
    """The levels of values by a scale, in their own dtype.

    >>> quant(np.array([1.0, -0.5, 2.0]), 2.0, 8)
    array([ 64., -32., 127.])
    """
    levels: Array = np.empty_like(x)
    np.round(x / scale * (2 ** (num_bits - 1) - 1), out=levels)
    return levels


class QuantizeTranspiler:
    """Quantizes the inputs of convolutions and products of programs.

    Activations are quantized by `activation_quantize_type`: "abs_max", by the largest magnitude of
    the batch; "range_abs_max", of the last `window_size` batches; "moving_average_abs_max", by
    their moving average with the rate `moving_rate`. Weights by `weight_quantize_type`.

    Raises ValueError for another type.
    """

    def __init__(
        self,
        weight_bits: int = 8,
        activation_bits: int = 8,
        activation_quantize_type: str = "abs_max",
        weight_quantize_type: str = "abs_max",
        window_size: int = 10000,
        moving_rate: float = 0.9,
    ) -> None:
        for name, kind in (
            ("weight_quantize_type", weight_quantize_type),
            ("activation_quantize_type", activation_quantize_type),
        ):
            if kind not in TYPES:
                expected = ", ".join(map(repr, TYPES))
                raise ValueError(f"Unknown {name}: {kind!r}; expected one of {expected}")
        self.weight_bits, self.activation_bits = weight_bits, activation_bits
        self.weight_quantize_type = weight_quantize_type
        self.activation_quantize_type = activation_quantize_type
        self.window_size, self.moving_rate = window_size, moving_rate

    def training_transpile(
        self, program: Program | None = None, startup_program: Program | None = None
    ) -> None:
        """Insert fake quantization into a program, also before `minimize`, in place.

        State is initialised by `startup_program`. Raises ValueError for a gradient op of which no
        input is quantized.
        """
        main = default_main_program() if program is None else program
        startup = default_startup_program() if startup_program is None else startup_program
        with recording_guard(main, startup):
            rewriting = _Training(self, main)
            for block in main.blocks:
                rewriting.rewrite(block)

    def freeze_program(
        self, program: Program | None, place: Place, scope: Scope | None = None
    ) -> None:
        """Make a quantized program compute with levels, in place; weights of the scope become them.

        Raises ValueError for a quantized op with several outputs.
        """
        main = default_main_program() if program is None else program
        values = _Values(global_scope() if scope is None else scope, place)
        persistable = {var.name for var in main.list_vars() if var.persistable}
        for block in main.blocks:
            _Freezing(self, block, values, persistable).rewrite()
        _remove_unused_variables(main)

    def convert_to_int8(
        self, program: Program | None, place: Place, scope: Scope | None = None
    ) -> None:
        """Let the ops of a frozen program read weights of type int8, as `<name>.int8`."""
        main = default_main_program() if program is None else program
        values = _Values(global_scope() if scope is None else scope, place)
        converted: dict[str, str] = {}
        for block in main.blocks:
            for op in [op for op in block.ops if op.type in OPS]:
                for name in op.input_arg_names:
                    if block.var_recursive(name).persistable:
                        if name not in converted:
                            converted[name] = _int8_parameter(main, name, values)
                        op.rename_input(name, converted[name])
        _remove_unused_variables(main)


class _Values:
    """The values of the variables of a scope."""

    def __init__(self, scope: Scope, place: Place) -> None:
        self._scope, self._place = scope, place

    def read(self, name: str) -> Array:
        """A copy of a value; ValueError if the scope has none of this name."""
        variable = self._scope.find_var(name)
        if variable is None:
            raise ValueError(f"variable {name!r} is not in the scope")
        return np.array(variable.get_tensor())

    def write(self, name: str, value: Array) -> None:
        """Set a value."""
        self._scope.var(name).get_tensor().set(value, self._place)


class _Training:
    """Inserts fake quantization into the blocks of a program."""

    def __init__(self, settings: QuantizeTranspiler, program: Program) -> None:
        self._settings = settings
        self._params = {param.name for param in program.global_block().iter_parameters()}
        self._helper = LayerHelper("QuantizeTranspiler")
        kinds = settings.weight_quantize_type, settings.activation_quantize_type
        self._step = layers.autoincreased_step_counter() if "range_abs_max" in kinds else None

    def rewrite(self, block: Block) -> None:
        """Rewrite a block."""
        dequantized: dict[str, Variable] = {}
        for op in list(block.ops):
            if op.type in OPS:
                index = op.idx
                for name in op.input_arg_names:
                    if name not in dequantized:
                        dequantized[name] = self._round_trip(block, index, name)
                    op.rename_input(name, dequantized[name].name)
            elif op.type in GRADIENT_OPS:
                names = [name for name in op.input_arg_names if name in dequantized]
                if not names:
                    raise ValueError(f"There is no dequanted inputs for op {op.type}.")
                for name in names:
                    op.rename_input(name, dequantized[name].name)

    def _round_trip(self, block: Block, index: int, name: str) -> Variable:
        """Insert the quantization and dequantization of a variable before an op."""
        is_weight = name in self._params
        settings = self._settings
        bits = settings.weight_bits if is_weight else settings.activation_bits
        kind = settings.weight_quantize_type if is_weight else settings.activation_quantize_type
        var = block.var_recursive(name)
        quantized = _like(block, f"{name}.quantized", var)
        insert: Callable[[Block, int, Variable, Variable, int], Variable] = {
            "abs_max": self._insert_abs_max,
            "range_abs_max": self._insert_range_abs_max,
            "moving_average_abs_max": self._insert_moving_average,
        }[kind]
        scale = insert(block, index, var, quantized, bits)
        result = _like(block, f"{quantized.name}.dequantized", quantized)
        attrs = {"max_range": float(2 ** (bits - 1) - 1)}
        inputs = {"X": quantized, "Scale": scale}
        block.insert_op(index + 1, "fake_dequantize_max_abs", inputs, {"Out": result}, attrs)
        return result

    def _insert_abs_max(
        self, block: Block, index: int, var: Variable, quantized: Variable, bits: int
    ) -> Variable:
        scale = _like(block, f"{var.name}.scale", var)
        outputs = {"Out": quantized, "OutScale": scale}
        attrs = {"bit_length": bits}
        block.insert_op(index, "fake_quantize_abs_max", {"X": var}, outputs, attrs)
        return scale

    def _insert_range_abs_max(
        self, block: Block, index: int, var: Variable, quantized: Variable, bits: int
    ) -> Variable:
        assert self._step is not None
        scale = self._scale(var)
        window = self._state("scales", var, [self._settings.window_size], 0.0)
        inputs = {"X": var, "InScale": scale, "Iter": self._step}
        outputs = {"Out": quantized, "OutScale": scale, "OutScales": window}
        size = self._settings.window_size
        attrs = {"window_size": size, "bit_length": bits, "is_test": False}
        block.insert_op(index, "fake_quantize_range_abs_max", inputs, outputs, attrs)
        return scale

    def _insert_moving_average(
        self, block: Block, index: int, var: Variable, quantized: Variable, bits: int
    ) -> Variable:
        state = self._state("state", var, [1], 1.0)
        accum = self._state("accum", var, [1], 1.0)
        scale = self._scale(var)
        inputs = {"X": var, "InScale": scale, "InState": state, "InAccum": accum}
        outputs = {"Out": quantized, "OutScale": scale, "OutState": state, "OutAccum": accum}
        rate = self._settings.moving_rate
        attrs = {"bit_length": bits, "moving_rate": rate, "is_test": False}
        block.insert_op(index, "fake_quantize_moving_average_abs_max", inputs, outputs, attrs)
        return scale

    def _scale(self, var: Variable) -> Variable:
        initial = Constant(0.001)
        attr = ParamAttr(name=f"{var.name}.scale", initializer=initial, trainable=False)
        scale = self._helper.create_parameter(attr=attr, shape=[1], dtype=var.dtype)
        scale.stop_gradient = True
        return scale

    def _state(self, key: str, var: Variable, shape: list[int], value: float) -> Variable:
        state = self._helper.create_global_variable(
            name=unique_name.generate(key), persistable=True, dtype=var.dtype, shape=shape
        )
        self._helper.set_variable_initializer(state, initializer=Constant(value=value))
        return state


class _Freezing:
    """Freezes one block."""

    def __init__(
        self,
        settings: QuantizeTranspiler,
        block: Block,
        values: _Values,
        persistable: set[str],
    ) -> None:
        self._settings, self._block, self._values = settings, block, values
        self._persistable = persistable
        self._levels: dict[str, str] = {}
        self._results: dict[str, str] = {}
        self._weight_scales: dict[str, float] = {}
        self._scales: dict[str, Variable] = {}

    def rewrite(self) -> None:
        """Rewrite the block."""
        for op in list(self._block.ops):
            for name in op.input_arg_names:
                if name in self._results:
                    op.rename_input(name, self._results[name])
            if op.type in QUANTIZE_OPS:
                self._freeze_quantization(op)
            elif op.type == "fake_dequantize_max_abs":
                self._bypass(op)
            elif op.type in OPS:
                self._dequantize_result(op)

    def _freeze_quantization(self, op: Operator) -> None:
        """Quantize a weight in the scope and remove the op, or note the scale of an activation."""
        (name,) = op.input("X")
        (scale,) = op.output("OutScale")
        if name not in self._persistable:
            self._scales[name] = self._block.var_recursive(scale)
            return
        weight = self._values.read(name)
        if self._settings.weight_quantize_type == "abs_max":
            largest = np.abs(weight).max()
        else:
            largest = self._values.read(scale).reshape(-1)[0]
        self._weight_scales[name] = float(largest)
        self._bypass(op)
        self._values.write(name, quant(weight, largest, self._settings.weight_bits))

    def _bypass(self, op: Operator) -> None:
        """Remove an op; what it wrote is replaced by what it read."""
        (written,), (source,) = op.output("Out"), op.input("X")
        self._levels[written] = self._levels.get(source, source)
        self._block.remove_op(op.idx)

    def _dequantize_result(self, op: Operator) -> None:
        """Let an op read levels, and insert the dequantization of its result."""
        factor, scale = 1.0, None
        top = 2 ** (self._settings.weight_bits - 1) - 1
        for name in op.input_arg_names:
            op.rename_input(name, self._levels.get(name, name))
            original = _original_name(name)
            if original in self._persistable:
                factor *= top / self._weight_scales[original]
            else:
                scale = self._scales[original]
        if len(op.output_arg_names) != 1:
            count = len(op.output_arg_names)
            raise ValueError(f"Only support one output, but op {op.type} has {count}.")
        if scale is None:
            raise ValueError(f"op {op.type} reads no quantized activation")
        result = self._block.var_recursive(op.output_arg_names[0])
        value = _like(self._block, f"{result.name}.dequantized", result)
        attrs = {"max_range": factor * (2 ** (self._settings.activation_bits - 1) - 1)}
        inputs = {"X": result, "Scale": scale}
        self._block.insert_op(op.idx + 1, "fake_dequantize_max_abs", inputs, {"Out": value}, attrs)
        self._results[result.name] = value.name


def _like(block: Block, name: str, var: Variable) -> Variable:
    """A variable of the type and shape of another one."""
    return block.create_var(name=name, type=var.type, shape=var.shape, dtype=var.dtype)


def _original_name(name: str) -> str:
    """The name of a variable before quantization."""
    return next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), name)


def _int8_parameter(program: Program, name: str, values: _Values) -> str:
    """Declare a weight of type int8 and set its value; returns its name."""
    block = program.global_block()
    var = block.var(name)
    int8 = block.create_parameter(
        name=f"{name}.int8", type=var.type, dtype=VarDesc.VarType.INT8, shape=var.shape
    )
    values.write(int8.name, values.read(name).astype(np.int8))
    return int8.name


def _remove_unused_variables(program: Program) -> None:
    """Remove the variables of each block that no op of it reads or writes."""
    for block in program.blocks:
        used = {name for op in block.ops for name in (*op.reads(), *op.writes())}
        for name in [name for name in block.vars if name not in used]:
            block.remove_var(name)
