"""Helper of layers: names, parameters, temporaries and ops."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Unpack, overload

from compiler.support.tracebacks import entry_point
from fluid import unique_name
from fluid.framework import (
    Operator,
    Parameter,
    Program,
    Variable,
    default_main_program,
    default_startup_program,
    dtype_is_floating,
)
from fluid.initializer import Constant, Initializer, Xavier
from fluid.param_attr import OneAttr, ParamAttr, ParamAttrLike, WeightNormParamAttr
from fluid.recording.annotations import Attributes, DTypeLike, Slots
from fluid.recording.checks import check_type, check_variable
from fluid.recording.narrowing import is_sequence
from fluid.recording.var_types import VarDesc
from fluid.recording.variable import (
    NamedFields,
    ParameterFields,
    UnnamedFields,
    VariableFields,
    VarType,
)
from fluid.recording.weight_norm import create_normalized_weight

__all__ = ["LayerHelper", "append_simple_op"]


class LayerHelper:
    """Helper of one layer call, named `<layer_type>_<n>` unless the user passes `name`.

    The keyword arguments are the layer's own: `input`, `param_attr`, `bias_attr`, `act`, `name`.
    """

    def __init__(self, layer_type: str, **kwargs: object) -> None:
        self.layer_type = layer_type
        self.kwargs = kwargs
        name = kwargs.get("name")
        check_type(name, "name", (str, type(None)), layer_type)
        self.name = str(name) if name else unique_name.generate(layer_type)

    @property
    def main_program(self) -> Program:
        """The program to which the layer appends."""
        return default_main_program()

    @property
    def startup_program(self) -> Program:
        """The program that initializes the layer's parameters."""
        return default_startup_program()

    @entry_point
    def append_op(
        self,
        type: str | None = None,
        inputs: Slots | None = None,
        outputs: Slots | None = None,
        attrs: Attributes | None = None,
        stop_gradient: bool = False,
    ) -> Operator:
        """Append an op to the current block, see `Block.append_op`."""
        block = self.main_program.current_block()
        return block.append_op(type, inputs, outputs, attrs, stop_gradient)

    # ---- arguments

    def multiple_input(self, input_param_name: str = "input") -> list[Variable]:
        """Return the variables of an argument that may be one or a list; TypeError otherwise."""
        value = self.kwargs.get(input_param_name)
        inputs = value if is_sequence(value) else [value]
        return [check_variable(item, input_param_name, self.layer_type) for item in inputs]

    def input(self, input_param_name: str = "input") -> Variable:
        """Return the only variable of an argument; ValueError for several."""
        inputs = self.multiple_input(input_param_name)
        if len(inputs) != 1:
            raise ValueError(f"{self.layer_type} takes one {input_param_name}, not {len(inputs)}")
        return inputs[0]

    def input_dtype(self, input_param_name: str = "input") -> VarType:
        """Return the dtype of all variables of an argument; ValueError if they differ."""
        inputs = self.multiple_input(input_param_name)
        for variable in inputs:
            if variable.element is not inputs[0].element:
                raise ValueError(
                    f"{self.layer_type}: {inputs[0].name!r} is {inputs[0].dtype.name}, "
                    f"but {variable.name!r} is {variable.dtype.name}"
                )
        return inputs[0].dtype

    @property
    def param_attr(self) -> OneAttr | list[OneAttr]:
        """The attributes of the weights: one, a list, or False."""
        return ParamAttr.to_attr(self.kwargs.get("param_attr"))

    @property
    def bias_attr(self) -> OneAttr:
        """The attributes of the bias, or False for none; TypeError for several."""
        return self._one_attr(self.kwargs.get("bias_attr"))

    def _one_attr(self, attr: object) -> OneAttr:
        param_attr = ParamAttr.to_attr(attr)
        if isinstance(param_attr, list):
            raise TypeError(
                f"{self.layer_type} takes one ParamAttr here, not {len(param_attr)} in a list"
            )
        return param_attr

    def multiple_param_attr(self, length: int) -> list[OneAttr]:
        """Return the attributes of `length` weights; one is repeated, ValueError for other
        numbers.
        """
        param_attr = self.param_attr
        attrs: list[OneAttr] = param_attr if isinstance(param_attr, list) else [param_attr]
        if len(attrs) not in (1, length):
            raise ValueError(
                f"{self.layer_type} has {length} inputs, but {len(attrs)} parameter attributes"
            )
        if len(attrs) == length:
            return attrs
        (attr,) = attrs
        return [attr and copy.copy(attr) for _ in range(length)]

    def iter_inputs_and_params(
        self, input_param_name: str = "input"
    ) -> Iterator[tuple[Variable, OneAttr]]:
        """Yield each input with the attributes of its weight."""
        inputs = self.multiple_input(input_param_name)
        return zip(inputs, self.multiple_param_attr(len(inputs)), strict=True)

    # ---- variables

    @overload
    def create_parameter(
        self,
        attr: ParamAttr | list[OneAttr],
        shape: Sequence[int],
        dtype: DTypeLike,
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
        stop_gradient: bool = False,
        type: int = VarDesc.VarType.LOD_TENSOR,
    ) -> Variable: ...
    @overload
    def create_parameter(
        self,
        attr: ParamAttrLike,
        shape: Sequence[int],
        dtype: DTypeLike,
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
        stop_gradient: bool = False,
        type: int = VarDesc.VarType.LOD_TENSOR,
    ) -> Variable | None: ...
    @entry_point
    def create_parameter(
        self,
        attr: ParamAttrLike,
        shape: Sequence[int],
        dtype: DTypeLike,
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
        stop_gradient: bool = False,
        type: int = VarDesc.VarType.LOD_TENSOR,
    ) -> Variable | None:
        """Create a parameter in both programs, named `<layer>.w_<k>` or `.b_<k>`; None for attr
        False.

        The default initializer is Xavier for weights and 0 for biases; TypeError if the dtype is
        then not floating point. RuntimeError for a WeightNormParamAttr in eager mode.
        """
        one = self._one_attr(attr)
        if one is False:
            return None
        attr = copy.copy(one)
        if attr.name is None:
            attr.name = unique_name.generate(f"{self.name}.{'b' if is_bias else 'w'}")
        if attr.initializer is None:
            attr.initializer = default_initializer or _default_initializer(
                attr.name, dtype, is_bias
            )
        startup, main = self.startup_program.global_block(), self.main_program.global_block()
        if isinstance(attr, WeightNormParamAttr):
            if self.main_program.is_eager:
                raise RuntimeError(
                    "In dygraph, don't support WeightNormParamAttr: the weight would be computed "
                    "once, when the layer is created"
                )
            current = self.main_program.current_block()
            return create_normalized_weight(current, startup, self.name, attr, shape, dtype)
        fields: ParameterFields = {
            "shape": list(shape),
            "dtype": dtype,
            "type": type,
            **attr.to_kwargs(),
        }
        startup.create_parameter(attr.initializer, **fields)
        param = main.create_parameter(**fields)
        if stop_gradient or not self.main_program.is_eager:
            param.stop_gradient = stop_gradient
        return param

    def get_parameter(self, name: str) -> Parameter:
        """Return a parameter by name; ValueError if it is not one."""
        param = self.main_program.global_block().var(name)
        if not isinstance(param, Parameter):
            raise ValueError(f"{name} is no Parameter")
        return param

    def create_variable_for_type_inference(
        self, dtype: DTypeLike, stop_gradient: bool = False
    ) -> Variable:
        """Create a temporary named `<layer>.tmp_<k>`; the op that writes it infers its shape."""
        block = self.main_program.current_block()
        return block.create_temporary(f"{self.name}.tmp", dtype, stop_gradient=stop_gradient)

    def create_variable(self, **fields: Unpack[VariableFields]) -> Variable:
        """Create a variable in the current block, see `Block.create_var`."""
        return self.main_program.current_block().create_var(**fields)

    def create_global_variable(
        self, persistable: bool | None = False, **fields: Unpack[NamedFields]
    ) -> Variable:
        """Create a variable in the global block, see `Block.create_var`."""
        block = self.main_program.global_block()
        return block.create_var(persistable=persistable, **fields)

    def create_or_get_global_variable(
        self, name: str, **fields: Unpack[UnnamedFields]
    ) -> tuple[Variable, bool]:
        """Return the global variable of a name, and whether it was created."""
        block = self.main_program.global_block()
        if block.has_var(name):
            return block.var(name), False
        return block.create_var(name=name, **fields), True

    def set_variable_initializer(self, var: Variable, initializer: Initializer) -> Variable:
        """Declare a variable in the startup program too, where `initializer` writes it."""
        return self.startup_program.global_block().create_var(
            name=var.name,
            type=var.type,
            dtype=var.dtype,
            shape=var.shape,
            persistable=True,
            initializer=initializer,
        )

    # ---- bias, activation, result

    def append_bias_op(
        self, input_var: Variable, dim_start: int = 1, dim_end: int | None = None
    ) -> Variable:
        """Add a bias with the shape of axes `dim_start` to `dim_end` of the input, unless it is
        False.
        """
        attr = self.bias_attr
        if attr is False:
            return input_var
        size = input_var.shape[dim_start:dim_end]
        bias = self.create_parameter(attr, size, input_var.dtype, is_bias=True)
        inputs = {"X": input_var, "Y": bias}
        return self.append_result("elementwise_add", inputs, {"axis": dim_start})

    @entry_point
    def append_activation(self, input_var: Variable) -> Variable:
        """Append the activation of the layer; TypeError unless it is a string."""
        act = self.kwargs.get("act")
        if act is None:
            return input_var
        if not isinstance(act, str):
            raise TypeError(f"act of {self.layer_type} must be a str, not {type(act).__name__}")
        attrs = {"use_cudnn": True} if self.kwargs.get("use_cudnn") else {}
        return self.append_result(act, {"X": input_var}, attrs)

    @entry_point
    def append_result(
        self,
        op_type: str,
        inputs: Slots,
        attrs: Attributes | None = None,
        dtype: DTypeLike | None = None,
        slot: str = "Out",
    ) -> Variable:
        """Append an op with one output and return it: a temporary with the first input's dtype."""
        first = next(iter(inputs.values()))
        if dtype is None:
            like = first[0] if isinstance(first, list | tuple) else first
            dtype = check_variable(like, next(iter(inputs)), op_type).dtype
        block = self.main_program.current_block()
        out = block.create_temporary(f"{self.name}.tmp", dtype)
        block.append_op(op_type, inputs, {slot: out}, attrs)
        return out


def append_simple_op(
    op_type: str,
    inputs: Slots,
    attrs: Attributes | None = None,
    *,
    name: str | None = None,
    act: str | None = None,
    dtype: DTypeLike | None = None,
) -> Variable:
    """Append an op with the output Out, in a layer named after it, and an activation."""
    helper = LayerHelper(op_type, name=name, act=act)
    return helper.append_activation(helper.append_result(op_type, inputs, attrs, dtype))


def _default_initializer(name: str, dtype: DTypeLike, is_bias: bool) -> Initializer:
    if not dtype_is_floating(dtype):
        raise TypeError(
            f"parameter {name!r} is not floating point, so it has no default initializer: "
            "give it an initializer"
        )
    return Constant(0.0) if is_bias else Xavier()
