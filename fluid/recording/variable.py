"""Variables and parameters: the compiler's variables with Paddle's user interface."""

from __future__ import annotations

import copy
import typing
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import index
from types import MappingProxyType
from typing import (
    Annotated,
    ClassVar,
    Protocol,
    Required,
    TypeAlias,
    TypedDict,
    Unpack,
)

from compiler.errors import CompileError
from compiler.ir import program as ir
from compiler.ir.program import EMPTY, GRAD
from compiler.ir.types import DType
from fluid import unique_name
from fluid.compat.descs import BlockDesc
from fluid.compat.descs import VarDesc as DescribedVariable
from fluid.recording.annotations import Attributes, DTypeLike, Slots
from fluid.recording.arguments import UNCHECKED, ArgumentError
from fluid.recording.arithmetic import cast, operator, scaled
from fluid.recording.op_records import must_be_bool
from fluid.recording.operator import Operator
from fluid.recording.proto_text import var_text
from fluid.recording.slicing import sliced
from fluid.recording.var_types import VarDesc, kind_of, var_type
from runtime.sizes import LOD

__all__ = [
    "AbstractBlock",
    "AbstractProgram",
    "FetchList",
    "NoGradSet",
    "Parameter",
    "ParameterAndGradient",
    "ParameterList",
    "ParameterFields",
    "Variable",
    "VariableFields",
    "VariableOrName",
    "check_parameter",
    "convert_np_dtype_to_dtype_",
    "dtype_is_floating",
    "grad_var_name",
]

VarType = VarDesc.VarType


def convert_np_dtype_to_dtype_(np_dtype: DTypeLike) -> VarType:
    """The `VarType` of a NumPy dtype, its name, or a `VarType` itself.

    Raises ArgumentError for an element type that fluid does not have.

    >>> convert_np_dtype_to_dtype_("float32"), convert_np_dtype_to_dtype_("int64")
    (VarType.FP32, VarType.INT64)
    """
    try:
        return var_type(DType.of(np_dtype))
    except TypeError as error:
        raise ArgumentError(str(error)) from None


def dtype_is_floating(dtype: DTypeLike) -> bool:
    """True for float16, bfloat16, float32 and float64, however they are named."""
    return DType.of(convert_np_dtype_to_dtype_(dtype)).is_float


def grad_var_name(var_name: str) -> str:
    """The name of a variable's gradient."""
    return var_name + GRAD


class AbstractBlock(ir.Block):
    """What variables and what they are passed to know of their block, a `recording.block.Block`."""

    vars: dict[str, Variable]  # pyright: ignore[reportIncompatibleVariableOverride] - all are ours
    ops: list[Operator]  # pyright: ignore[reportIncompatibleVariableOverride] - all are ours

    @property
    @abstractmethod
    def program(self) -> AbstractProgram:
        """The program it belongs to."""

    @property
    @abstractmethod
    def desc(self) -> BlockDesc:
        """The block with the methods of a native `BlockDesc`."""

    @abstractmethod
    def var(self, name: str) -> Variable:
        """The variable of this name here; ValueError if unknown."""

    @abstractmethod
    def create_temporary(
        self, key: str, dtype: DTypeLike, *, stop_gradient: bool = False
    ) -> Variable:
        """Declare a variable for the output of an op, named `<key>_<n>`."""

    @abstractmethod
    def has_var(self, name: str) -> bool:
        """True where a variable of this name is declared here."""

    @abstractmethod
    def find_var_recursive(self, name: str) -> Variable | None:
        """The variable of this name here or in an enclosing block, or None."""

    def lookup(self, name: str) -> Variable | None:
        """The variable of this name here or in an enclosing block, or None."""
        var = super().lookup(name)
        assert var is None or isinstance(var, Variable)
        return var

    @abstractmethod
    def create_var(self, initializer: None = None, **fields: Unpack[VariableFields]) -> Variable:
        """Declare a variable, or return that of this name."""

    @abstractmethod
    def append_op(
        self,
        type: str | None = None,
        inputs: Slots | None = None,
        outputs: Slots | None = None,
        attrs: Attributes | None = None,
        stop_gradient: bool = False,
    ) -> Operator:
        """Append an op."""


class AbstractProgram(ir.Program):
    """What variables and what they are passed to know of their program, a `framework.Program`."""

    is_eager = False
    """Whether its variables have values: it is that of eager mode."""
    current_block_idx: int

    @abstractmethod
    def global_block(self) -> AbstractBlock:
        """Block 0."""

    @abstractmethod
    def current_block(self) -> AbstractBlock:
        """The block to which layers append."""

    @abstractmethod
    def block(self, index: int) -> AbstractBlock:
        """The block at an index; IndexError if out of range."""

    @abstractmethod
    def all_parameters(self) -> list[Parameter]:
        """All parameters, in order of creation."""

    @abstractmethod
    def prepare_append(self) -> None:
        """Undo renaming before ops are appended."""

    @abstractmethod
    def common_attributes(self, op: Operator) -> dict[str, object]:
        """The attributes that every op has and that do not affect its result."""

    @abstractmethod
    def fresh_seed(self) -> int:
        """A seed for the next random op; 0 for a program without a seed."""

    @abstractmethod
    def optimized_guard(
        self, param_and_grads: Iterable[VariableOrName]
    ) -> AbstractContextManager[None]:
        """Context manager in which appended ops update a parameter of the pair."""

    @abstractmethod
    def backward_role_guard(self) -> AbstractContextManager[None]:
        """Context manager in which appended ops compute gradients."""

    @abstractmethod
    def lr_schedule_guard(self, is_with_opt: bool = False) -> AbstractContextManager[None]:
        """Context manager in which appended ops schedule the learning rate."""


class ErrorClip(Protocol):
    """A clip of one variable's gradient, see `fluid.clip`."""

    def append_clip_op(self, block: AbstractBlock, grad_name: str) -> None:
        """Append the ops that clip a gradient."""
        ...


class Regularizer(Protocol):
    """A regularizer of a parameter, see `fluid.regularizer`."""

    def __call__(self, param: Parameter, grad: Variable, block: AbstractBlock, /) -> Variable:
        """The term to add to a gradient."""
        ...


class _CommonFields(TypedDict, total=False):
    """Arguments that variables and parameters share."""

    type: int
    lod_level: int | None
    capacity: int | None
    error_clip: ErrorClip | None
    stop_gradient: bool
    is_data: bool
    need_check_feed: bool
    belong_to_optimizer: bool


class _ShapedFields(_CommonFields, total=False):
    shape: Iterable[int] | None
    dtype: DTypeLike | None


class NamedFields(_ShapedFields, total=False):
    """The arguments of `Variable`, except its block and `persistable`."""

    name: str | None


class UnnamedFields(_ShapedFields, total=False):
    """The arguments of `Variable`, except its block and its name."""

    persistable: bool | None


class VariableFields(UnnamedFields, total=False):
    """The arguments of `Variable`, except its block."""

    name: str | None


_Method: TypeAlias = "Callable[[Variable, object], Variable]"


class Variable(ir.VarDesc):
    """A variable of a block, created by `Block.create_var`.

    `shape` has -1 for unknown sizes; `dtype` and `type` are `VarType` members; `op` is the op
    that wrote it last. `capacity` and unknown fields are ignored, as in the reference.
    """

    _details: tuple[str, ...] = ("error_clip", "stop_gradient")
    _info: Mapping[str, object] = MappingProxyType({})

    def __init__(
        self,
        block: AbstractBlock,
        type: int = VarType.LOD_TENSOR,
        name: str | None = None,
        shape: Iterable[int] | None = None,
        dtype: DTypeLike | None = None,
        lod_level: int | None = None,
        capacity: int | None = None,
        persistable: bool | None = None,
        error_clip: ErrorClip | None = None,
        stop_gradient: bool = False,
        is_data: bool = False,
        need_check_feed: bool = False,
        belong_to_optimizer: bool = False,
        **kwargs: object,
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
        self.op: Operator | None = None

    @property
    def persistable(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] - watched
        """Whether it outlives a run; an assignment invalidates compiled versions of the program."""
        return self._persistable

    @persistable.setter
    def persistable(self, value: bool) -> None:
        self._persistable = value
        self.block.program.touch()

    @property
    def stop_gradient(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] - watched
        """Whether it gets no gradient; an assignment invalidates compiled versions."""
        return self._stop_gradient

    @stop_gradient.setter
    def stop_gradient(self, value: bool) -> None:
        self._stop_gradient = value
        self.block.program.touch()

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

    def copied_to(self, block: AbstractBlock) -> Variable:
        """The same variable in a copy of its block."""
        copied = copy.copy(self)
        copied.block, copied.op = block, None
        return copied

    def set_error_clip(self, error_clip: ErrorClip | None) -> None:
        """Set how the gradient of the variable is clipped in the backward pass."""
        self.error_clip = error_clip

    _set_error_clip = set_error_clip

    def _set_info(self, key: str, value: object) -> None:
        """Attach information to the variable, for program rewrites."""
        self._info = {**self._info, key: value}

    def _get_info(self, key: str) -> object:
        """Information attached under a key, or None."""
        return self._info.get(key)

    # ---- operators, which append ops

    __add__: ClassVar[_Method] = operator("elementwise_add", lambda number: (1.0, number))
    __radd__: ClassVar[_Method] = operator("elementwise_add", lambda number: (1.0, number))
    __sub__: ClassVar[_Method] = operator("elementwise_sub", lambda number: (1.0, -number))
    __rsub__: ClassVar[_Method] = operator(
        "elementwise_sub", lambda number: (-1.0, number), swap=True
    )
    __mul__: ClassVar[_Method] = operator("elementwise_mul", lambda number: (number, 0.0))
    __rmul__: ClassVar[_Method] = operator("elementwise_mul", lambda number: (number, 0.0))
    __truediv__: ClassVar[_Method] = operator("elementwise_div", lambda number: (1.0 / number, 0.0))
    __rtruediv__: ClassVar[_Method] = operator("elementwise_div", swap=True)
    __div__, __rdiv__ = __truediv__, __rtruediv__
    __pow__: ClassVar[_Method] = operator("elementwise_pow")
    __rpow__: ClassVar[_Method] = operator("elementwise_pow", swap=True)
    __floordiv__: ClassVar[_Method] = operator("elementwise_floordiv")
    __mod__: ClassVar[_Method] = operator("elementwise_mod")
    __eq__: ClassVar[_Method] = operator("equal")  # pyright: ignore[reportIncompatibleMethodOverride] - appends an op
    __ne__: ClassVar[_Method] = operator("not_equal")  # pyright: ignore[reportIncompatibleMethodOverride] - appends an op
    __lt__: ClassVar[_Method] = operator("less_than")
    __le__: ClassVar[_Method] = operator("less_equal")
    __gt__: ClassVar[_Method] = operator("greater_than")
    __ge__: ClassVar[_Method] = operator("greater_equal")
    # `==` appends an op, so variables are hashed by identity.
    __hash__ = object.__hash__
    # NumPy scalars defer arithmetic with a variable to the variable.
    __array_ufunc__ = None

    def temporary(
        self, dtype: DTypeLike, name: str | None = "tmp", *, stop_gradient: bool = False
    ) -> Variable:
        """Create a variable in the current block of its program; `name` gets a number."""
        block = self.block.program.current_block()
        key = "_generated_var" if name is None else name
        return block.create_temporary(key, dtype, stop_gradient=stop_gradient)

    def append(
        self, op_type: str, inputs: Mapping[str, object], out: Variable, attrs: Attributes
    ) -> Variable:
        """Append an op to the current block of its program; returns its output `out`."""
        block = self.block.program.current_block()
        block.append_op(op_type, typing.cast(Slots, inputs), {"Out": out}, attrs)
        return out

    def __neg__(self) -> Variable:
        return scaled(_variable(self), -1.0, 0.0)

    def astype(self, dtype: DTypeLike) -> Variable:
        """Cast to another dtype (`cast`)."""
        return cast(_variable(self), dtype)

    # Otherwise Python would iterate over x[0], x[1], … forever: the size is unknown when recording.
    __iter__ = None

    def __getitem__(self, item: object) -> Variable:
        """Index with integers, ranges or variables.

        Raises TypeError for any other index and IndexError for more indices than axes.
        """
        return sliced(_variable(self), item)

    # ---- what only values of dygraph have

    def detach(self) -> object:
        """Raises AssertionError: use `stop_gradient`, or `layers.assign` for a copy."""
        raise _of_dygraph("detach", "set stop_gradient, or copy it with layers.assign")

    def numpy(self) -> object:
        """Raises AssertionError: values are what `Executor.run` fetches."""
        raise _of_dygraph("numpy", "fetch the variable with Executor.run")

    def is_true(self) -> object:
        """Raises AssertionError: use `layers.cond`, or `layers.while_loop`."""
        raise _of_dygraph("is_true", "use layers.cond or layers.while_loop")

    def set_value(self, value: object) -> object:
        """Raises AssertionError: values are set in a scope."""
        raise _of_dygraph("set_value", "set it in a scope: scope.find_var(name).get_tensor().set")

    def backward(self, backward_strategy: object = None, retain_graph: bool = False) -> object:
        """Raises AssertionError: `append_backward` records gradients."""
        raise _of_dygraph("backward", "call fluid.backward.append_backward")

    def gradient(self) -> object:
        """Raises AssertionError: gradients are variables that `Executor.run` fetches."""
        raise _of_dygraph("gradient", "fetch the variable that grad_name names")

    def clear_gradient(self) -> object:
        """Raises AssertionError: gradients are reset in every run."""
        raise _of_dygraph("clear_gradient", "gradients are reset in every run")

    def __str__(self) -> str:
        return self.to_string(True)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.element.text}{list(self.shape)}>"


def _variable(var: Variable) -> Variable:
    """A variable, also where it is a parameter: results of operators on it are none."""
    return var


def _check_name(name: object) -> None:
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


def _sizes(name: str | None, shape: Iterable[int] | None) -> tuple[int, ...] | None:
    """A shape as a tuple; raises TypeError if it is not a list of integers."""
    try:
        return None if shape is None else tuple(map(index, shape))
    except TypeError:
        raise TypeError(
            f"the shape of variable {name!r} must be a list of integers, but received {shape!r:.60}"
        ) from None


def _of_dygraph(method: str, instead: str) -> AssertionError:
    return AssertionError(
        f"{method!r} is for dygraph mode, not for a variable of a program: {instead}"
    )


class _OtherFields(_CommonFields, total=False):
    name: str | None
    persistable: bool | None


class ParameterFields(_OtherFields, total=False):
    """The arguments of `Parameter`, except its block."""

    shape: Required[Sequence[int]]
    dtype: Required[DTypeLike]
    trainable: bool
    optimize_attr: Mapping[str, float | Variable] | None
    regularizer: Regularizer | None
    do_model_average: bool | None


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
        block: AbstractBlock,
        shape: Sequence[int],
        dtype: DTypeLike,
        *,
        trainable: bool = True,
        optimize_attr: Mapping[str, float | Variable] | None = None,
        regularizer: Regularizer | None = None,
        do_model_average: bool | None = None,
        **fields: Unpack[_OtherFields],
    ) -> None:
        check_parameter(fields.get("name"), shape, dtype)
        fields["persistable"] = True
        super().__init__(block, shape=shape, dtype=dtype, **fields)
        self.is_parameter = True
        self.trainable = trainable
        self.optimize_attr: dict[str, float | Variable] = {"learning_rate": 1.0}
        self.optimize_attr |= optimize_attr or {}
        self.regularizer = regularizer
        self.do_model_average = do_model_average
        self.gradient_clip_attr: object = None
        self.is_distributed = False


def check_parameter(name: str | None, shape: Sequence[int] | None, dtype: DTypeLike | None) -> None:
    """Raise ValueError unless shape and dtype are known and no size is below 1."""
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

NoGradSet: TypeAlias = Annotated[Collection[VariableOrName], UNCHECKED]
"""The variables that get no gradient."""

ParameterAndGradient: TypeAlias = tuple[Parameter, Variable | None]
"""A parameter and its gradient; None for a parameter without one."""
