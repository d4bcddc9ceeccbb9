"""Variables and parameters: the compiler's variables with Paddle's user interface."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence, Set
from operator import index
from types import MappingProxyType
from typing import Annotated, Any, NoReturn, TypeAlias

from compiler.errors import CompileError
from compiler.ir.program import EMPTY, GRAD
from compiler.ir.program import VarDesc as PlainVariable
from compiler.ir.types import DType
from fluid import unique_name
from fluid.compat.descs import VarDesc as DescribedVariable
from fluid.recording.arguments import UNCHECKED, ArgumentError
from fluid.recording.arithmetic import cast, operator, scaled
from fluid.recording.op_records import must_be_bool
from fluid.recording.proto_text import var_text
from fluid.recording.slicing import sliced
from fluid.recording.var_types import VarDesc, kind_of, var_type
from runtime.sizes import LOD

__all__ = [
    "FetchList",
    "NoGradSet",
    "Parameter",
    "ParameterAndGradient",
    "ParameterList",
    "Variable",
    "VariableOrName",
    "convert_np_dtype_to_dtype_",
    "dtype_is_floating",
    "grad_var_name",
]

VarType = VarDesc.VarType


def convert_np_dtype_to_dtype_(np_dtype: Any) -> VarType:
    """The `VarType` of a NumPy dtype, its name, or a `VarType` itself.

    Raises ArgumentError for an element type that fluid does not have.

    >>> convert_np_dtype_to_dtype_("float32"), convert_np_dtype_to_dtype_("int64")
    (VarType.FP32, VarType.INT64)
    """
    try:
        return var_type(DType.of(np_dtype))
    except TypeError as error:
        raise ArgumentError(str(error)) from None


def dtype_is_floating(dtype: Any) -> bool:
    """True for float16, bfloat16, float32 and float64, however they are named."""
    return DType.of(convert_np_dtype_to_dtype_(dtype)).is_float


def grad_var_name(var_name: str) -> str:
    """The name of a variable's gradient."""
    return var_name + GRAD


class _Watched:
    """A field whose assignment invalidates compiled versions of the program."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.slot = "_" + name

    def __get__(self, var: Any, owner: type | None = None) -> Any:
        return self if var is None else getattr(var, self.slot)

    def __set__(self, var: Any, value: Any) -> None:
        setattr(var, self.slot, value)
        var.block.program.touch()


class Variable(PlainVariable):
    """A variable of a block, created by `Block.create_var`.

    `shape` has -1 for unknown sizes; `dtype` and `type` are `VarType` members; `op` is the op
    that wrote it last. `capacity` and unknown fields are ignored, as in the reference.
    """

    _details: tuple[str, ...] = ("error_clip", "stop_gradient")
    _info: Mapping[str, Any] = MappingProxyType({})
    persistable = _Watched()
    stop_gradient = _Watched()

    def __init__(
        self,
        block: Any,
        type: int = VarType.LOD_TENSOR,
        name: str | None = None,
        shape: Iterable[int] | None = None,
        dtype: Any = None,
        lod_level: int | None = None,
        capacity: int | None = None,
        persistable: bool | None = None,
        error_clip: Any = None,
        stop_gradient: bool = False,
        is_data: bool = False,
        need_check_feed: bool = False,
        belong_to_optimizer: bool = False,
        **kwargs: Any,
    ) -> None:
        self.block = block
        _check_name(name)
        super().__init__(
            unique_name.generate("_generated_var") if name is None else name,
            _sizes(name, shape),
            DType.FP32 if dtype is None else DType.of(convert_np_dtype_to_dtype_(dtype)),
            kind_of(type),
            lod_level or 0,
            bool(persistable),
            stop_gradient,
            need_check_feed,
        )
        self.error_clip = error_clip
        self.is_data = is_data
        self.belong_to_optimizer = belong_to_optimizer
        self.op: Any = None

    @property
    def desc(self) -> DescribedVariable:
        """The variable with the methods of a native `VarDesc`."""
        return DescribedVariable(self, self.block)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, -1 for unknown sizes; () while it is unknown."""
        return self.dims or ()

    @property
    def dtype(self) -> VarType:
        """Its dtype, as a `VarDesc.VarType`."""
        return var_type(self.element)

    @property
    def type(self) -> VarType:
        """Its variable type: LOD_TENSOR, SELECTED_ROWS, …"""
        return VarType[self.kind.value]

    @property
    def grad_name(self) -> str:
        """The name of its gradient."""
        return grad_var_name(self.name)

    def to_string(self, throw_on_error: bool, with_details: bool = False) -> str:
        """Its declaration as protobuf text; with details, also the training attributes."""
        must_be_bool(throw_on_error=throw_on_error, with_details=with_details)
        details = self._details if with_details else ()
        return var_text(self) + "".join(f"{name}: {getattr(self, name)}\n" for name in details)

    def copied_to(self, block: Any) -> Variable:
        """The same variable in a copy of its block."""
        copied = copy.copy(self)
        copied.block, copied.op = block, None
        return copied

    def set_error_clip(self, error_clip: Any) -> None:
        """Set how the gradient of the variable is clipped in the backward pass."""
        self.error_clip = error_clip

    _set_error_clip = set_error_clip

    def _set_info(self, key: str, value: Any) -> None:
        """Attach information to the variable, for program rewrites."""
        self._info = {**self._info, key: value}

    def _get_info(self, key: str) -> Any:
        """Information attached under a key, or None."""
        return self._info.get(key)

    # ---- operators, which append ops

    __add__ = __radd__ = operator("elementwise_add", lambda number: (1.0, number))
    __sub__ = operator("elementwise_sub", lambda number: (1.0, -number))
    __rsub__ = operator("elementwise_sub", lambda number: (-1.0, number), swap=True)
    __mul__ = __rmul__ = operator("elementwise_mul", lambda number: (number, 0.0))
    __truediv__ = operator("elementwise_div", lambda number: (1.0 / number, 0.0))
    __rtruediv__ = operator("elementwise_div", swap=True)
    __pow__ = operator("elementwise_pow")
    __rpow__ = operator("elementwise_pow", swap=True)
    __floordiv__ = operator("elementwise_floordiv")
    __mod__ = operator("elementwise_mod")
    __eq__ = operator("equal")
    __ne__ = operator("not_equal")
    __lt__ = operator("less_than")
    __le__ = operator("less_equal")
    __gt__ = operator("greater_than")
    __ge__ = operator("greater_equal")
    # `==` appends an op, so variables are hashed by identity.
    __hash__ = object.__hash__
    # NumPy scalars defer arithmetic with a variable to the variable.
    __array_ufunc__ = None

    def __neg__(self) -> Any:
        return scaled(self, -1.0, 0.0)

    def astype(self, dtype: Any) -> Any:
        """Cast to another dtype (`cast`)."""
        return cast(self, dtype)

    # Otherwise Python would iterate over x[0], x[1], … forever: the size is unknown when recording.
    __iter__ = None

    def __getitem__(self, item: Any) -> Any:
        """Index with integers, ranges or variables.

        Raises TypeError for any other index and IndexError for more indices than axes.
        """
        return sliced(self, item)

    # ---- what only values of dygraph have

    def detach(self) -> NoReturn:
        """Raises AssertionError: use `stop_gradient`, or `layers.assign` for a copy."""
        raise _of_dygraph("detach", "set stop_gradient, or copy it with layers.assign")

    def numpy(self) -> NoReturn:
        """Raises AssertionError: values are what `Executor.run` fetches."""
        raise _of_dygraph("numpy", "fetch the variable with Executor.run")

    def set_value(self, value: Any) -> NoReturn:
        """Raises AssertionError: values are set in a scope."""
        raise _of_dygraph("set_value", "set it in a scope: scope.find_var(name).get_tensor().set")

    def backward(self, backward_strategy: Any = None) -> NoReturn:
        """Raises AssertionError: `append_backward` records gradients."""
        raise _of_dygraph("backward", "call fluid.backward.append_backward")

    def gradient(self) -> NoReturn:
        """Raises AssertionError: gradients are variables that `Executor.run` fetches."""
        raise _of_dygraph("gradient", "fetch the variable that grad_name names")

    def clear_gradient(self) -> NoReturn:
        """Raises AssertionError: gradients are reset in every run."""
        raise _of_dygraph("clear_gradient", "gradients are reset in every run")

    def __str__(self) -> str:
        return self.to_string(True)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.element.text}{list(self.shape)}>"


def _check_name(name: Any) -> None:
    """Raise TypeError for a non-string, CompileError for a reserved name.

    Lone UTF-16 surrogates, which cannot be encoded in files, are rejected too.
    """
    if not isinstance(name, str | None):
        raise TypeError(f"the name of a variable must be a str, not {type(name).__name__}")
    if name == EMPTY or LOD in (name or ""):
        what = "no variable" if name == EMPTY else "the lengths of the sequences in another one"
        raise CompileError(f"{name!r:.200} is not a valid variable name: it denotes {what}")
    if name is not None and not name.isascii() and any("\ud800" <= c <= "\udfff" for c in name):
        raise CompileError(
            f"{name!r:.200} is not a valid variable name: it cannot be encoded in UTF-8",
            hint="it contains a lone surrogate: decode the name as UTF-8",
        )


def _sizes(name: str | None, shape: Any) -> tuple[int, ...] | None:
    """A shape as a tuple; raises TypeError if it is not a list of integers."""
    try:
        return None if shape is None else tuple(map(index, shape))
    except TypeError:
        raise TypeError(
            f"the shape of variable {name!r} must be a list of integers, but received {shape!r:.60}"
        ) from None


def _of_dygraph(method: str, instead: str) -> AssertionError:
    return AssertionError(f"{method!r} is for dygraph mode, which is not supported: {instead}")


class Parameter(Variable):
    """A persistable variable that optimizers update.

    Its shape must be known. Raises ValueError for a missing shape or dtype and for sizes below 1.
    """

    _details = (
        *Variable._details,
        "trainable",
        "optimize_attr",
        "regularizer",
        "do_model_average",
    )

    def __init__(
        self,
        block: Any,
        shape: Iterable[int],
        dtype: Any,
        *,
        trainable: bool = True,
        optimize_attr: Mapping[str, Any] | None = None,
        regularizer: Any = None,
        do_model_average: bool | None = None,
        **fields: Any,
    ) -> None:
        _check_parameter(fields.get("name"), shape, dtype)
        super().__init__(block, shape=shape, dtype=dtype, **fields | {"persistable": True})
        self.is_parameter = True
        self.trainable = trainable
        self.optimize_attr = {"learning_rate": 1.0, **(optimize_attr or {})}
        self.regularizer = regularizer
        self.do_model_average = do_model_average
        self.gradient_clip_attr: Any = None
        self.is_distributed = False


def _check_parameter(name: str | None, shape: Any, dtype: Any) -> None:
    if shape is None or dtype is None:
        missing = "shape" if shape is None else "dtype"
        raise ValueError(f"The {missing} of Parameter {name!r} should not be None")
    sizes = _sizes(name, shape)
    if not sizes or min(sizes) < 1:
        raise ValueError(
            f"Each dimension of shape for Parameter {name!r} must be greater than 0, "
            f"but received {list(shape)}"
        )


VariableOrName: TypeAlias = Annotated[Variable | str, UNCHECKED]
"""A variable or its name."""

FetchList: TypeAlias = Annotated[
    VariableOrName | Sequence[VariableOrName | Sequence[VariableOrName]], UNCHECKED
]
"""What a run fetches: a variable, or a list of them, which may be nested."""

ParameterList: TypeAlias = Annotated[Sequence[VariableOrName], UNCHECKED]
"""The parameters to optimize."""

NoGradSet: TypeAlias = Annotated[Set[VariableOrName] | Sequence[VariableOrName], UNCHECKED]
"""The variables that get no gradient."""

ParameterAndGradient: TypeAlias = tuple[Parameter, Variable | None]
"""A parameter and its gradient; None for a parameter without one."""
