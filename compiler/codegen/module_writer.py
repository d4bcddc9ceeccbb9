"""Writer of a module: `bind`, its setup, run once a binding, and `step`, its body, run every step.

Values in the arena and persistable state keep their address for the lifetime of a binding, so their
views are created once, in `bind`. A feed is a new array every step, so its views are created in
`step`.
"""

from __future__ import annotations

import builtins
import inspect
import re
import textwrap
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, TypeAlias, TypeGuard, cast

import numpy as np

from compiler.codegen.writer import Names, Writer
from compiler.errors import CompileError
from compiler.ir.dims import Dim, Size, product
from compiler.ir.opdef.size_comparison import Requirement
from compiler.ir.opdef.slots import Share
from compiler.ir.region import WHOLE, Region, leading_axes, strides, subregion
from compiler.ir.types import DType, Shape, TensorType
from compiler.plan import Buffer, PlannedOp, PlannedValue, Step, Storage, StorageKind
from compiler.support.dataclass import dataclass
from compiler.support.free_memory import LARGE_BYTES, large_array

Home: TypeAlias = "tuple[StorageKind, str | int]"
"""The place and home of a value: what an op that writes it overwrites."""

RESERVED = frozenset(
    "np bind step take params result SimpleNamespace inf nan allocate noise main NAME TARGET DIMS "
    "FEEDS PARAMS FETCHES BUFFERS callables collective Alone parameter_server mark".split()
) | frozenset(dir(builtins))
"""Names the generated module uses itself, and Python's builtins."""


def shape_text(shape: Sequence[Size]) -> str:
    """Format a shape as a Python tuple over names in scope.

    >>> shape_text((3,))
    '(3,)'
    """
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


@dataclass(frozen=True)
class NumpyOperand:
    """A value and its Python name; `steady` if its array keeps its address between steps."""

    writer: ModuleWriter
    name: str
    type: TensorType
    steady: bool
    storage: Storage

    @property
    def region(self) -> Region:
        """The byte range of its buffer that it occupies."""
        return self.storage[2]

    @property
    def shape(self) -> Shape:
        """The shape of its type."""
        return self.type.shape

    def view(self, shape: Sequence[Size]) -> str:
        """Return the name of the same elements in another shape; its own name for its own shape.

        Raises CompileError if the value has gaps that such a view cannot skip.
        """
        if tuple(shape) == self.shape:
            return self.name
        if (
            self.region.is_strided
            and leading_axes(self.type.with_shape(shape), self.region.row) is None
        ):
            raise CompileError(f"{self.name} has gaps, so it has no view of shape {shape}")
        expression = f"{self.name}.reshape({shape_text(shape)})"
        return self.writer.keep(expression, self.steady, self.storage[0], self.name + "_v")

    def __str__(self) -> str:
        return self.name


def _operand_key(value: PlannedValue) -> Hashable:
    """What operands are found by: views of one buffer have their own names."""
    return value if value.place is StorageKind.BUFFER else value.storage


class ModuleWriter:
    """Writes `setup` (bind) and `body` (step) of one module; names values and buffers."""

    def __init__(self, dims: Sequence[str], buffers: Sequence[Buffer]) -> None:
        _expect_free(dims)
        self.names = Names({*RESERVED, *dims})
        self.setup = Writer(1)
        self.body = Writer(2)
        self.buffers = list(buffers)
        self.functions: list[str] = []
        self.kernels: list[tuple[str, dict[str, str], dict[str, int], dict[str, int]]] = []
        self.globals: list[str] = []
        self.step = 0
        self.expects_numbers = False
        self.producers: dict[str, str] = {}
        """The kind of the op that computes each value, by its label."""
        self.given_rows: set[str] = set()
        """Row indices that come from feeds or state, by label."""
        self.location: tuple[str, str] = ("", "")
        """The ops of the step being written, and the user's line of the last."""
        self.bound_dims: set[str] = {*dims}
        self.required: dict[Requirement, None] = {}
        """What is required of sizes in `bind`."""
        self.valid_offsets: dict[tuple[Storage, Hashable], tuple[Home, ...]] = {}
        """The offsets that are valid where the step is being written, with the number they end
        at, and what they are forgotten with.
        """
        self._operands: dict[Any, NumpyOperand] = {}
        self._carried: dict[tuple[str, Callable[..., Any]], str] = {}
        self._kept: list[dict[str, str]] = [{}, {}]
        self._in_buffer: dict[int, list[NumpyOperand]] = {}

    # ---- values ----

    def operand(self, value: PlannedValue) -> NumpyOperand:
        """Return the operand for a value, named (and taken from the arena) on first use."""
        placed = self.placed(value)
        if placed is None:
            name = self.names.make(
                value.label if value.place is StorageKind.BUFFER else str(value.home)
            )
            placed = self._operands[_operand_key(value)] = self._place(value, name)
        return placed

    def placed(self, value: PlannedValue) -> NumpyOperand | None:
        """Return the operand for a value, None before its first use."""
        return self._operands.get(_operand_key(value))

    def _place(self, value: PlannedValue, name: str) -> NumpyOperand:
        if value.place is StorageKind.PARAM:
            self.setup.line(f"{name} = params[{value.home!r}]")
        elif value.place is StorageKind.BUFFER:
            self.setup.line(f"{name} = {_take_call(int(value.home), value.type, value.region)}")
        elif value.place is StorageKind.LOCAL and not value.type.is_open:
            dtype = value.type.dtype.numpy.name
            self.body.line(f"{name} = {self.new_array(value.type.shape, dtype)}")
        steady = value.place in (StorageKind.PARAM, StorageKind.BUFFER)
        operand = NumpyOperand(self, name, value.type, steady, value.storage)
        if value.place is StorageKind.BUFFER:
            self._in_buffer.setdefault(int(value.home), []).append(operand)
        return operand

    def new_array(self, shape: Shape, dtype: str) -> str:
        """The text that allocates an array outside of the arena; sizes are compared with the free
        memory if only the step knows them.
        """
        text = f"np.empty({shape_text(shape)}, {dtype!r})"
        count = product(shape)
        if isinstance(count, int):
            return text
        large = self.function(large_array)
        most = LARGE_BYTES // np.dtype(dtype).itemsize
        return f"{text} if {count} <= {most} else {large}({shape_text(shape)}, {dtype!r})"

    def local(self, value: PlannedValue) -> NumpyOperand:
        """Create the operand for a value that other code assigns, such as a loop variable."""
        name = self.names.make(value.label)
        operand = NumpyOperand(self, name, value.type, False, value.storage)
        self._operands[value.storage] = operand
        return operand

    def free(self, value: PlannedValue) -> None:
        """Delete a value that has an array outside the arena."""
        operand = self._operands.pop(value.storage, None)
        if operand is not None:
            self.body.line(f"del {operand.name}")

    def poison_dead_buffers(self, step: int) -> None:
        """Fill every buffer whose lifetime ends with a step with poison, for each type it held."""
        for number, operands in self._in_buffer.items():
            fill = "fill_" if self.buffers[number].on_device else "fill"
            for operand in operands if self.buffers[number].stop == step + 1 else ():
                self.body.line(f"{operand.name}.{fill}({_poison(operand.type.dtype)})")

    def known_size(self, size: Size) -> Size | None:
        """A size in terms of names in scope; None if only an array determines it."""
        return None if isinstance(size, Dim) and not size.known else size

    def expect(self, required: Requirement, message: str) -> None:
        """Write into `bind`, once, what an op requires of sizes; the message is an f-string."""
        if required not in self.required:
            self.required[required] = None
            text, source = self.location
            self.setup.line(f"if {required.violation}:")
            self.setup.line(f"    raise ValueError(f{message!r}, {text!r}, {source!r})")

    @contextmanager
    def checks(self, op: PlannedOp, of_feeds: bool) -> Generator[None]:
        """Write the lines written inside, which check an op's numbers, below the op's text."""
        self.body.comment(op.comment)
        yield

    def comment_ops(self, step: Step) -> None:
        """Write comments that name the ops of a step and their source lines."""
        for op in step.ops:
            self.body.comment(op.comment)

    # ---- the SourceBuilder of lowerings ----

    def line(self, text: str) -> None:
        """Write one line of the step."""
        self.body.line(text)

    def scratch(
        self, shape: Sequence[Size], dtype: DType, *, on_device: bool = False
    ) -> NumpyOperand:
        """Allocate scratch memory in the arena for the current step."""
        type = TensorType(dtype, tuple(shape))
        name = self.names.make(f"t{self.step}")
        number = self.new_buffer(name, type, on_device)
        self.setup.line(f"{name} = {_take_call(number, type)}")
        storage = (StorageKind.BUFFER, number, WHOLE)
        operand = NumpyOperand(self, name, type, True, storage)
        self._in_buffer[number] = [operand]
        return operand

    def new_buffer(self, name: str, type: TensorType, on_device: bool = False) -> int:
        """Add an arena buffer that lives for the current step; returns its number."""
        nbytes = product(type.shape) * type.dtype.itemsize
        self.buffers.append(Buffer(name, nbytes, self.step, self.step + 1, on_device))
        return len(self.buffers) - 1

    def at_bind(self, expression: str, uses: Sequence[Any], hint: str) -> str:
        """Name an expression, evaluated in `bind` if its inputs keep their address, else `step`."""
        unsteady = [operand.storage[0] for operand in uses if not operand.steady]
        place = StorageKind.LOCAL if StorageKind.LOCAL in unsteady else StorageKind.FEED
        return self.keep(expression, not unsteady, place, hint)

    def keep(self, expression: str, steady: bool, place: StorageKind, hint: str) -> str:
        """Name an expression in the right scope; equal expressions share one name.

        Values outside the arena are freed during the step, so no name keeps them alive.
        """
        if not steady and place is StorageKind.LOCAL:
            return expression
        names = self._kept[0] if steady else self._kept[-1]
        if expression not in names:
            names[expression] = self.names.make(hint)
            writer = self.setup if steady else self.body
            writer.line(f"{names[expression]} = {expression}")
        return names[expression]

    def aliased(self, a: NumpyOperand, b: NumpyOperand) -> bool:
        """True if both share the same storage."""
        return a.storage == b.storage

    def is_view_of(self, part: NumpyOperand, whole: NumpyOperand, share: Share) -> bool:
        """True if `part` already is the view of `whole` that `share` describes."""
        if part.storage[:2] != whole.storage[:2] or part.storage[0] is not StorageKind.BUFFER:
            return False
        return part.region == subregion(whole.region, whole.type, part.type, share)

    def function(self, body: Callable[..., Any], name: str = "") -> str:
        """Copy a function's source into the module, once; returns its name there.

        Plain functions, dataclasses and constants of its own package that it uses are copied too.
        A dataclass is a tuple of its fields with names there, without methods.
        """
        name_hint = name or body.__name__
        key = (name_hint, body)
        if key not in self._carried:
            self._carried[key] = self.names.make(name_hint)
            if is_dataclass(body):
                self.globals.append(_named_tuple(self._carried[key], body))
                return self._carried[key]
            source = _source_of(body)
            mine = f"def {self._carried[key]}("
            source = source.replace(f"def {body.__name__}(", mine, 1)
            self.functions.append(self._with_globals(source, body))
        return self._carried[key]

    def _with_globals(self, source: str, body: Callable[..., Any]) -> str:
        """Rewrite a function's source to use the names of its copied dependencies."""
        package = body.__module__.partition(".")[0]
        for name in _used_globals(body):
            value = body.__globals__[name]
            if value is cast:
                source = re.sub(r"\bcast\b", self.function(as_is, "cast"), source)
            elif _is_carried(value) and value.__module__.startswith(package):
                source = re.sub(rf"\b{name}\b", self.function(value), source)
            elif isinstance(value, int | float | str | bytes | tuple | frozenset):
                text = _constant_text(cast(object, value))
                source = re.sub(rf"\b{name}\b", self._constant(name, text), source)
        return source

    def _constant(self, name: str, text: str) -> str:
        line = f"{name} = {text}"
        if line not in self.globals:
            if name in self.names.taken:
                raise CompileError(f"generated code uses the name {name!r} for two things")
            self.names.taken.add(name)
            self.globals.append(line)
        return name

    def finish(self) -> None:
        """End the step."""

    # ---- blocks ----

    def enter(self) -> None:
        """Begin a nested block; names cached in it are unknown after it."""
        self.body.depth += 1
        self._kept.append(dict(self._kept[-1]))

    def leave(self) -> None:
        """End a block."""
        self.body.depth -= 1
        self._kept.pop()


@lru_cache(4096)
def _source_of(body: Callable[..., Any]) -> str:
    """The source of a function, without the indentation of where it is defined."""
    return textwrap.dedent(inspect.getsource(body))


def _is_carried(value: object) -> TypeGuard[Callable[..., Any]]:
    """True for functions and dataclasses."""
    return inspect.isfunction(value) or (isinstance(value, type) and is_dataclass(value))


def _named_tuple(name: str, kind: Any) -> str:
    """Format the definition of a dataclass's fields as those of a tuple."""
    return f"{name} = namedtuple({name!r}, {' '.join(each.name for each in fields(kind))!r})"


def as_is(kind: Any, value: Any) -> Any:
    """Return `value`: replaces `typing.cast`, which a module does not import."""
    return value


def _poison(dtype: DType) -> str:
    """The poison value of a dtype: NaN, the smallest integer, or True."""
    if dtype.is_float:
        return "nan"
    return "True" if dtype is DType.BOOL else str(np.iinfo(dtype.numpy).min)


def _constant_text(value: object) -> str:
    """Format a constant as Python; sets are sorted, so that the text is deterministic."""
    if isinstance(value, frozenset):
        items = sorted(map(repr, cast("frozenset[Any]", value)))
        return f"frozenset(({', '.join(items)}{',' if len(items) == 1 else ''}))"
    return repr(value)


def _used_globals(body: Callable[..., Any]) -> list[str]:
    """Names that a function, or one nested in it, takes from its module, in order of use."""
    codes, names = [body.__code__], dict[str, None]()
    while codes:
        code = codes.pop()
        names |= dict.fromkeys(code.co_names)
        codes += [constant for constant in code.co_consts if inspect.iscode(constant)]
    return [name for name in names if name in body.__globals__]


def _expect_free(dims: Sequence[str]) -> None:
    """Raise CompileError if a symbolic dim has a name that the generated module reserves."""
    for name in dims:
        if name in RESERVED:
            raise CompileError(
                f"a dim cannot be named {name!r}: generated code uses that name",
                hint="rename it, for example to N",
            )


def _take_call(number: int, type: TensorType, region: Region = WHOLE) -> str:
    arguments = [str(number), repr(type.dtype.numpy.name), shape_text(type.shape)]
    arguments += [str(region.offset)] if region != WHOLE else []
    arguments += [shape_text(strides(type, region))] if region.is_strided else []
    return f"take({', '.join(arguments)})"
