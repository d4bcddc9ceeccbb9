"""Files of named arrays, `.pdparams` and `.pdopt`, which the reference writes as pickles.

A pickle is a program for a stack machine that may call any function. This reader is a restricted
machine: it supports only the opcodes that dicts of arrays need, calls nothing, and rejects
everything else. Written files are byte-identical to those of release 1.8.5.
"""

from __future__ import annotations

import math
import pickletools
import struct
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from compiler.ir.types import Array, DType
from compiler.support.dataclass import dataclass
from runtime.files.checkpoint import CheckpointError

__all__ = ["StateValue", "dump_state", "load_checkpoint", "load_state", "load_tables"]


StateValue: TypeAlias = Array | dict[str, str]


def load_state(data: bytes, where: str) -> dict[str, StateValue]:
    """Read a dict of arrays from the bytes of a file; later releases add dicts of strings.

    Raises CheckpointError, with the file's name, for anything else.

    >>> load_state(dump_state({"w": np.array([1.0, 2.0])}), "model.pdparams")
    {'w': array([1., 2.])}
    """
    state = _read(data, where)
    return {_text(name, where): _value(value, f"{where} ({name})") for name, value in state.items()}


def load_checkpoint(data: bytes, where: str) -> dict[str, object]:
    """Read arrays, numbers, strings and dicts of them from the bytes of a file.

    Raises CheckpointError, with the file's name, for anything else.

    >>> load_checkpoint(dump_state({"LR_Scheduler": {"step_num": 4, "rate": 0.5}}), "a.pdopt")
    {'LR_Scheduler': {'step_num': 4, 'rate': 0.5}}
    """
    return _plain_values(_read(data, where), where)


def _plain_values(values: dict[object, object], where: str) -> dict[str, object]:
    return {_text(name, where): _plain(value, where) for name, value in values.items()}


def _plain(value: object, where: str) -> object:
    if isinstance(value, dict):
        return _plain_values(cast(dict[object, object], value), where)
    if isinstance(value, _Shell) and value.array is not None:
        return value.array if value.array.ndim else value.array.item()
    if not isinstance(value, str | int | float | None):
        raise CheckpointError(f"{where}: expected an array, got {type(value).__name__}")
    return value


def load_tables(data: bytes, where: str) -> dict[str, object]:
    r"""Read a dict of arrays, strings and lists from the bytes of a file, as data sets store them.

    Names may be bytes, as in files of Python 2. Raises CheckpointError for anything else.

    >>> load_tables(b"\x80\x02}U\x06labels](K\x06K\x09es.", "data_batch_1")
    {'labels': [6, 9]}
    """
    tables = _read(data, where)
    names = (name.decode("latin1") if isinstance(name, bytes) else name for name in tables)
    arrays = (table.array if isinstance(table, _Shell) else table for table in tables.values())
    return dict(zip((_text(name, where) for name in names), arrays, strict=True))


def _read(data: bytes, where: str) -> dict[object, object]:
    try:
        state = _Machine(2 * len(data)).run(data)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise CheckpointError(f"{where} is not a file of named arrays: {error}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{where}: expected arrays by name, got {type(state).__name__}")
    return cast(dict[object, object], state)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise CheckpointError(f"{where}: expected a string, got {type(value).__name__}")
    return value


def _value(value: object, where: str) -> StateValue:
    if isinstance(value, dict):
        texts = cast(dict[object, object], value)
        return {_text(name, where): _text(text, where) for name, text in texts.items()}
    if not isinstance(value, _Shell) or value.array is None:
        raise CheckpointError(f"{where}: expected an array, got {type(value).__name__}")
    return value.array


# ---- reading


@dataclass
class _Type:
    """A NumPy dtype under construction."""

    code: str
    order: Literal["<", ">", "=", "|"] = "="

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The finished dtype; raises TypeError for one that fluid does not have."""
        native = np.dtype(self.code).newbyteorder("=")
        return DType.of(native).numpy.newbyteorder(self.order)


@dataclass
class _Shell:
    """An array under construction."""

    array: Array | None = None


def _encoded(text: str, codec: str) -> bytes:
    if codec != "latin1":
        raise ValueError(f"it uses the codec {codec}")
    return text.encode(codec)


def _type(code: str, *_: object) -> _Type:
    return _Type(code)


def _shell(*_: object) -> _Shell:
    return _Shell()


def _scalar(kind: _Type, raw: bytes | str) -> _Shell:
    data = raw.encode("latin1") if isinstance(raw, str) else raw
    return _Shell(np.frombuffer(data, kind.dtype, 1).reshape(()).copy())


_CALLS: dict[str, Callable[..., object]] = {
    "numpy.core.multiarray _reconstruct": _shell,
    "numpy._core.multiarray _reconstruct": _shell,
    "numpy.core.multiarray scalar": _scalar,
    "numpy._core.multiarray scalar": _scalar,
    "numpy dtype": _type,
    "_codecs encode": _encoded,
    "__builtin__ bytes": bytes,
    "builtins bytes": bytes,
}
"""The callables allowed in a file, and their replacements."""
_NAMED = {*_CALLS, "numpy ndarray"}

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_LITERALS = set(
    "BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINSTRING "
    "SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8".split()
)
_MARK = object()


ArrayState: TypeAlias = tuple[tuple[int, ...], _Type, bool, str | bytes]
"""The state of an array: its shape, its dtype, whether its order is Fortran's, its data."""


class _Machine:
    """The restricted pickle machine, with its stack and memo.

    `left` is the remaining allocation budget: each byte of the file once as bytes and once as
    part of an array, however often the file reads them from the memo.
    """

    def __init__(self, left: int) -> None:
        self.left = left
        self.stack: list[object] = []
        self.memo: dict[object, object] = {}

    def run(self, data: bytes) -> object:
        """Run the pickle; returns the resulting object."""
        for opcode, argument, _ in pickletools.genops(data):
            self.step(opcode.name, argument)
        return self.stack.pop()

    def step(self, name: str, argument: object) -> None:
        """Execute an opcode; raises ValueError for one that dicts of arrays do not need."""
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _STEPS:
            _STEPS[name](self, argument)
        else:
            raise ValueError(f"it takes the step {name}")

    def pop(self, count: int) -> list[object]:
        """Pop the topmost items."""
        return [self.stack.pop() for _ in range(count)][::-1]

    def pop_to_mark(self) -> list[object]:
        """Pop the items above the last mark."""
        index = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
        items = self.stack[index + 1 :]
        del self.stack[index:]
        return items

    def join(self, items: list[object]) -> None:
        """Push a tuple of the items."""
        self.stack.append(tuple(items))

    def add(self, items: list[object]) -> None:
        """Add alternating keys and values to the dict on top."""
        top = self.stack[-1]
        if not isinstance(top, dict):
            raise ValueError("it adds items to something other than a dict")
        cast(dict[object, object], top).update(zip(items[::2], items[1::2], strict=True))

    def extend(self, items: list[object]) -> None:
        """Add items to the list on top."""
        top = self.stack[-1]
        if not isinstance(top, list):
            raise ValueError("it adds items to something other than a list")
        cast(list[object], top).extend(items)

    def name(self, name: str) -> None:
        """Push a global, if it is one that arrays need."""
        if name not in _NAMED:
            raise ValueError(f"it uses {name.replace(' ', '.')}")
        self.stack.append(name)

    def call(self) -> None:
        """Replace a global and its arguments by the result of the call."""
        name, arguments = self.pop(2)
        result = _CALLS[cast(str, name)](*cast(tuple[object, ...], arguments))
        self.spend(len(result) if isinstance(result, bytes) else 0)
        self.stack.append(result)

    def spend(self, count: int) -> None:
        """Charge bytes to the budget; raises ValueError if it is exceeded."""
        self.left -= count
        if self.left < 0:
            raise ValueError("its arrays have more data than the file")

    def build(self) -> None:
        """Set the byte order of a dtype, or the data of an array."""
        target, fields = self.pop(2)
        state = cast(tuple[object, ...], fields)
        if isinstance(target, _Type):
            target.order = cast(Literal["<", ">", "=", "|"], state[1])
        elif isinstance(target, _Shell):
            _, *data = state
            target.array = self.array(*cast(ArrayState, tuple(data)))
        else:
            raise ValueError(f"it sets the state of {target!r}")
        self.stack.append(target)

    def array(self, shape: tuple[int, ...], kind: _Type, fortran: bool, data: str | bytes) -> Array:
        """An array with a copy of the data."""
        raw = data.encode("latin1") if isinstance(data, str) else data
        if math.prod(shape) * kind.dtype.itemsize != len(raw):
            raise ValueError(f"{len(raw)} bytes are not an array of {kind.code} with shape {shape}")
        self.spend(len(raw))
        view = np.frombuffer(raw, kind.dtype).reshape(shape, order="F" if fortran else "C")
        return np.array(view, view.dtype.newbyteorder("="), order="C")


_STEPS: dict[str, Callable[[_Machine, object], object]] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "STOP": lambda machine, _: None,
    "MARK": lambda machine, _: machine.stack.append(_MARK),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "APPEND": lambda machine, _: machine.extend(machine.pop(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.pop_to_mark()),
    "TUPLE": lambda machine, _: machine.join(machine.pop_to_mark()),
    "TUPLE1": lambda machine, _: machine.join(machine.pop(1)),
    "TUPLE2": lambda machine, _: machine.join(machine.pop(2)),
    "TUPLE3": lambda machine, _: machine.join(machine.pop(3)),
    "SETITEM": lambda machine, _: machine.add(machine.pop(2)),
    "SETITEMS": lambda machine, _: machine.add(machine.pop_to_mark()),
    "BINPUT": lambda machine, index: machine.memo.update({index: machine.stack[-1]}),
    "LONG_BINPUT": lambda machine, index: machine.memo.update({index: machine.stack[-1]}),
    "MEMOIZE": lambda machine, _: machine.memo.update({len(machine.memo): machine.stack[-1]}),
    "BINGET": lambda machine, index: machine.stack.append(machine.memo[index]),
    "LONG_BINGET": lambda machine, index: machine.stack.append(machine.memo[index]),
    "GLOBAL": lambda machine, name: machine.name(cast(str, name)),
    "STACK_GLOBAL": lambda machine, _: machine.name(" ".join(cast(list[str], machine.pop(2)))),
    "REDUCE": lambda machine, _: machine.call(),
    "BUILD": lambda machine, _: machine.build(),
}
"""The supported opcodes, as all versions of NumPy and Python write them."""


# ---- writing


def dump_state(arrays: Mapping[str, Array | Mapping[str, object]]) -> bytes:
    """The bytes of a file of these arrays, readable by release 1.8.5; also of dicts of numbers.

    Raises CheckpointError for a dtype that it does not have.
    """
    writer = _Writer()
    writer.mapping(arrays)
    return bytes(writer.out + b".")


class _Writer:
    """Pickle writer for arrays; repeated objects are read from the memo."""

    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")
        self.memo: dict[object, int] = {}
        self.count = 0

    def mapping(self, values: Mapping[str, object]) -> None:
        """Write a dict by name: of arrays, numbers, strings, or dicts of them."""
        self.put(b"}", None)
        mark, add = (b"", b"s") if len(values) == 1 else (b"(", b"u")
        items = iter(values.items())
        while batch := list(islice(items, 1000)):
            self.out += mark
            for name, value in batch:
                self.text(name)
                self.value(name, value)
            self.out += add

    def value(self, name: str, value: object) -> None:
        """Write an item of a dict; CheckpointError for a type that is none of those."""
        if isinstance(value, Mapping):
            self.mapping(cast(Mapping[str, object], value))
        elif isinstance(value, str):
            self.text(value)
        elif isinstance(value, bool | None):
            self.out += {None: b"N", True: b"\x88", False: b"\x89"}[value]
        elif isinstance(value, np.ndarray):
            self.array(name, np.ascontiguousarray(cast(Array, value)))
        elif isinstance(value, int | float):
            self.python_number(value)
        elif isinstance(value, np.generic):
            self.python_number(cast(Any, value).item())
        else:
            kind = type(value).__name__
            raise CheckpointError(f"{name}: a checkpoint holds arrays and numbers, not a {kind}")

    def python_number(self, number: float) -> None:
        """Write an int or a float."""
        if isinstance(number, int):
            self.number(number)
        else:
            self.out += b"G" + struct.pack(">d", number)

    def put(self, step: bytes, key: object) -> None:
        """Write an opcode and memoize its result under a key, if it may be used again."""
        if key is not None:
            self.memo[key] = self.count
        index = self.count
        self.out += step + (b"q%c" % index if index < 256 else b"r" + struct.pack("<I", index))
        self.count += 1

    def got(self, key: object) -> bool:
        """Whether a result is memoized under a key; if so, it is fetched."""
        index = self.memo.get(key)
        if index is not None:
            self.out += b"h%c" % index if index < 256 else b"j" + struct.pack("<I", index)
        return index is not None

    def text(self, text: str, shared: bool = False) -> None:
        """Write a string; single letters are one shared object, as in Python."""
        key = ("text", text) if shared or len(text) == 1 else None
        if key is None or not self.got(key):
            raw = text.encode("utf-8", "surrogatepass")
            self.put(b"X" + struct.pack("<I", len(raw)) + raw, key)

    def name(self, name: str) -> None:
        """Write a global."""
        if not self.got(("name", name)):
            self.put(b"c" + name.replace(" ", "\n").encode() + b"\n", ("name", name))

    def number(self, number: int) -> None:
        """Write an integer in its shortest encoding."""
        if 0 <= number < 1 << 8:
            self.out += b"K%c" % number
        elif 0 <= number < 1 << 16:
            self.out += b"M" + struct.pack("<H", number)
        elif -1 << 31 <= number < 1 << 31:
            self.out += b"J" + struct.pack("<i", number)
        else:
            raw = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
            self.out += b"\x8a%c" % len(raw) + raw

    def numbers(self, numbers: tuple[int, ...]) -> None:
        """Write a tuple of integers."""
        if len(numbers) > 3:
            self.out += b"("
        for number in numbers:
            self.number(number)
        self.put((b")", b"\x85", b"\x86", b"\x87", b"t")[min(len(numbers), 4)], None)

    def data(self, raw: bytes) -> None:
        """Write bytes as protocol 2 does: as a string to be encoded in latin-1."""
        key = ("bytes", raw) if len(raw) == 1 else None
        if key is not None and self.got(key):
            return
        if not raw:
            self.name("__builtin__ bytes")
            self.put(b")R", None)
            return
        self.name("_codecs encode")
        self.text(raw.decode("latin1"))
        self.text("latin1", shared=True)
        self.put(b"\x86", None)
        self.put(b"R", key)

    def dtype(self, dtype: np.dtype[np.generic]) -> None:
        """Write a dtype."""
        if self.got(dtype):
            return
        self.name("numpy dtype")
        self.text(dtype.str[1:])
        self.put(b"\x89\x88\x87", None)
        self.put(b"R", dtype)
        self.out += b"(K\x03"
        self.text(dtype.str[0])
        self.out += b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00"
        self.put(b"t", None)
        self.out += b"b"

    def array(self, name: str, array: Array) -> None:
        """Write an array; raises CheckpointError, with its name, for a dtype that 1.8.5 does not
        have.
        """
        try:
            little = array.astype(DType.of(array.dtype).numpy.newbyteorder("<"), copy=False)
        except TypeError as error:
            raise CheckpointError(f"{name}: {error}") from None
        self.name("numpy.core.multiarray _reconstruct")
        self.name("numpy ndarray")
        self.numbers((0,))
        self.data(b"b")
        self.put(b"\x87", None)
        self.put(b"R", None)
        self.out += b"(K\x01"
        self.numbers(array.shape)
        self.dtype(little.dtype)
        self.out += b"\x89"
        self.data(little.tobytes())
        self.put(b"t", None)
        self.out += b"b"
