"""The two scopes of generated NumPy code: what is made once at binding, and what runs in a step.

A value of the arena or of persistable state stays in place for as long as a binding does, so its
views are made once, in `bind`. A feed is another array every time, so its views are made in `step`.
"""

from __future__ import annotations

import builtins
import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from compiler.codegen.writer import Names, Writer
from compiler.errors import CompileError
from compiler.ir.dims import Size, product
from compiler.ir.opdef.slots import Share
from compiler.ir.region import WHOLE, Region, leading_axes, part_region, strides
from compiler.ir.types import DType, Shape, TensorType
from compiler.plan import Buffer, Place, Storage, Value

RESERVED = frozenset(
    "np bind step take params result SimpleNamespace inf nan allocate noise main NAME TARGET DIMS "
    "FEEDS PARAMS FETCHES BUFFERS callables collective Alone parameter_server mark".split()
) | frozenset(dir(builtins))
"""Names a module uses itself, and those of Python's builtins."""


def shape_text(shape: Sequence[Size]) -> str:
    """A shape as a Python tuple over names in scope.

    >>> shape_text((3,))
    '(3,)'
    """
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


@dataclass(frozen=True)
class NumpyOperand:
    """A value by its Python name. `steady` means its array stays in place between steps."""

    frame: Frame
    name: str
    type: TensorType
    steady: bool
    storage: Storage

    @property
    def region(self) -> Region:
        """Which bytes of its memory it has."""
        return self.storage[2]

    @property
    def shape(self) -> Shape:
        """The shape of its type."""
        return self.type.shape

    def view(self, shape: Sequence[Size]) -> str:
        """The name of the same elements in another shape; its own name for its own shape."""
        if tuple(shape) == self.shape:
            return self.name
        if (
            self.region.has_gaps
            and leading_axes(self.type.with_shape(shape), self.region.row) is None
        ):
            raise CompileError(f"{self.name} has gaps, so that it cannot be seen as {shape}")
        expression = f"{self.name}.reshape({shape_text(shape)})"
        return self.frame.keep(expression, self.steady, self.storage[0], self.name + "_v")

    def __str__(self) -> str:
        return self.name


class Frame:
    """Writes `setup` (bind) and `body` (step) of one module; gives names to values and buffers."""

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
        self._operands: dict[Any, NumpyOperand] = {}
        self._carried: dict[tuple[str, Callable[..., Any]], str] = {}
        self._kept: list[dict[str, str]] = [{}, {}]
        self._in_buffer: dict[int, list[NumpyOperand]] = {}

    # ---- values ----

    def operand(self, value: Value) -> NumpyOperand:
        """The operand for a value, named (and taken from the arena) the first time."""
        key = value if value.place is Place.BUFFER else value.storage
        if key not in self._operands:
            name = self.names.make(value.label if value.place is Place.BUFFER else str(value.home))
            self._operands[key] = self._place(value, name)
        return self._operands[key]

    def _place(self, value: Value, name: str) -> NumpyOperand:
        if value.place is Place.PARAM:
            self.setup.line(f"{name} = params[{value.home!r}]")
        elif value.place is Place.BUFFER:
            self.setup.line(f"{name} = {_take(int(value.home), value.type, value.region)}")
        elif value.place is Place.LOCAL and not value.type.is_open:
            dtype = value.type.dtype.numpy.name
            self.body.line(f"{name} = np.empty({shape_text(value.type.shape)}, {dtype!r})")
        steady = value.place in (Place.PARAM, Place.BUFFER)
        made = NumpyOperand(self, name, value.type, steady, value.storage)
        if value.place is Place.BUFFER:
            self._in_buffer.setdefault(int(value.home), []).append(made)
        return made

    def local(self, value: Value) -> NumpyOperand:
        """The operand for a value that the code around gives its array."""
        name = self.names.make(value.label)
        made = NumpyOperand(self, name, value.type, False, value.storage)
        self._operands[value.storage] = made
        return made

    def forget(self, value: Value) -> None:
        """Let go of a value that stands by itself."""
        operand = self._operands.pop(value.storage, None)
        if operand is not None:
            self.body.line(f"del {operand.name}")

    def spoil(self, step: int) -> None:
        """Fill every buffer whose life ends with a step with poison of the types it held."""
        for number, operands in self._in_buffer.items():
            fill = "fill_" if self.buffers[number].on_device else "fill"
            for operand in operands if self.buffers[number].stop == step + 1 else ():
                self.body.line(f"{operand.name}.{fill}({_poison(operand.type.dtype)})")

    # ---- the Kernel that lowerings see ----

    def line(self, text: str) -> None:
        """Write one line of the step."""
        self.body.line(text)

    def scratch(
        self, shape: Sequence[Size], dtype: DType, *, on_device: bool = False
    ) -> NumpyOperand:
        """Working memory of an arena for the current step."""
        type = TensorType(dtype, tuple(shape))
        name = self.names.make(f"t{self.step}")
        number = self.room(name, type, on_device)
        self.setup.line(f"{name} = {_take(number, type)}")
        storage = (Place.BUFFER, number, WHOLE)
        made = NumpyOperand(self, name, type, True, storage)
        self._in_buffer[number] = [made]
        return made

    def room(self, name: str, type: TensorType, on_device: bool = False) -> int:
        """The number of a new buffer of an arena for the current step."""
        nbytes = product(type.shape) * type.dtype.itemsize
        self.buffers.append(Buffer(name, nbytes, self.step, self.step + 1, on_device))
        return len(self.buffers) - 1

    def at_bind(self, expression: str, uses: Sequence[Any], hint: str) -> str:
        """A name for an expression: made at binding if all it uses stays in place."""
        unsteady = [each.storage[0] for each in uses if not each.steady]
        place = Place.LOCAL if Place.LOCAL in unsteady else Place.FEED
        return self.keep(expression, not unsteady, place, hint)

    def keep(self, expression: str, steady: bool, place: Place, hint: str) -> str:
        """Name an expression in the right scope, the same one every time it is asked for.

        What stands by itself is freed in the step, so no name may hold on to it.
        """
        if not steady and place is Place.LOCAL:
            return expression
        known = self._kept[0] if steady else self._kept[-1]
        if expression not in known:
            known[expression] = self.names.make(hint)
            writer = self.setup if steady else self.body
            writer.line(f"{known[expression]} = {expression}")
        return known[expression]

    def aliased(self, a: NumpyOperand, b: NumpyOperand) -> bool:
        """True where both are one memory."""
        return a.storage == b.storage

    def is_view_of(self, part: NumpyOperand, whole: NumpyOperand, share: Share) -> bool:
        """True where a part has the very memory that it has in the whole."""
        if part.storage[:2] != whole.storage[:2] or part.storage[0] is not Place.BUFFER:
            return False
        return part.region == part_region(whole.region, whole.type, part.type, share)

    def function(self, body: Callable[..., Any], name: str = "") -> str:
        """Carry a function's source into the module, once; gives its name there.

        Plain functions and constants of its own package that it uses come with it.
        """
        wanted = name or body.__name__
        key = (wanted, body)
        if key not in self._carried:
            self._carried[key] = self.names.make(wanted)
            source = textwrap.dedent(inspect.getsource(body))
            mine = f"def {self._carried[key]}("
            source = source.replace(f"def {body.__name__}(", mine, 1)
            self.functions.append(self._with_globals(source, body))
        return self._carried[key]

    def _with_globals(self, source: str, body: Callable[..., Any]) -> str:
        """A function's source with the names under which what it uses was carried."""
        package = body.__module__.partition(".")[0]
        for name in _used_globals(body):
            value = body.__globals__[name]
            if value is cast:
                source = re.sub(r"\bcast\b", self.function(as_is, "cast"), source)
            elif inspect.isfunction(value) and value.__module__.startswith(package):
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

    # ---- blocks ----

    def enter(self) -> None:
        """Begin a block: names kept in it are not known after it."""
        self.body.depth += 1
        self._kept.append(dict(self._kept[-1]))

    def leave(self) -> None:
        """End a block."""
        self.body.depth -= 1
        self._kept.pop()


def as_is(kind: Any, value: Any) -> Any:
    """`typing.cast`, which a module does not import."""
    return value


def _poison(dtype: DType) -> str:
    """What shows that memory was read too late: NaN, the smallest integer, or True."""
    if dtype.is_float:
        return "nan"
    return "True" if dtype is DType.BOOL else str(np.iinfo(dtype.numpy).min)


def _constant_text(value: object) -> str:
    """A constant as Python; what is in a set in an order of its own."""
    if isinstance(value, frozenset):
        items = sorted(map(repr, cast("frozenset[Any]", value)))
        return f"frozenset(({', '.join(items)}{',' if len(items) == 1 else ''}))"
    return repr(value)


def _used_globals(body: Callable[..., Any]) -> list[str]:
    """Names a function, or one inside it, takes from its module, in order of use."""
    codes, names = [body.__code__], dict[str, None]()
    while codes:
        code = codes.pop()
        names |= dict.fromkeys(code.co_names)
        codes += [each for each in code.co_consts if inspect.iscode(each)]
    return [name for name in names if name in body.__globals__]


def _expect_free(dims: Sequence[str]) -> None:
    """CompileError for a size by a name of the module's own: sizes keep theirs in its code."""
    for name in dims:
        if name in RESERVED:
            raise CompileError(
                f"a size cannot be called {name!r}: generated code uses that name",
                hint="give it another one, for example N",
            )


def _take(number: int, type: TensorType, region: Region = WHOLE) -> str:
    given = [str(number), repr(type.dtype.numpy.name), shape_text(type.shape)]
    given += [str(region.offset)] if region != WHOLE else []
    given += [shape_text(strides(type, region))] if region.has_gaps else []
    return f"take({', '.join(given)})"
