"""`DataFeedDesc`: the format of the lines of a data set, in protobuf's text format.

name: "MultiSlotDataFeed" batch_size: 2 multi_slot_desc { slots { name: "words" type: "uint64"
is_dense: false is_used: true } }
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, fields
from pathlib import Path
from typing import TypeAlias, TypeVar, cast, get_type_hints

from compiler.support.dataclass import dataclass

__all__ = ["DataFeed", "DataFeedDesc", "MultiSlot", "FeedSlot", "feed_text", "parsed_feed"]


@dataclass
class FeedSlot:
    """A slot of a line: ids or floats, dense ones of a `shape`."""

    name: str = ""
    type: str = ""
    is_dense: bool | None = None
    is_used: bool | None = None
    shape: list[int] = field(default_factory=list[int])


@dataclass
class MultiSlot:
    """The slots of a line, in order."""

    slots: list[FeedSlot] = field(default_factory=list[FeedSlot])


@dataclass
class DataFeed:
    """A data feed description: reader, batch size and slots."""

    name: str | None = None
    batch_size: int | None = None
    multi_slot_desc: MultiSlot = field(default_factory=MultiSlot)
    pipe_command: str | None = None
    thread_num: int | None = None
    rank_offset: str | None = None
    pv_batch_size: int | None = None


Message: TypeAlias = DataFeed | MultiSlot | FeedSlot
M = TypeVar("M", DataFeed, MultiSlot, FeedSlot)


def feed_text(message: Message) -> str:
    """Format a description in protobuf's text format; unset fields are omitted."""
    return "".join(f"{line}\n" for line in _lines(message))


def _lines(message: Message) -> Iterator[str]:
    for declared in fields(message):
        for item in _items(getattr(message, declared.name)):
            if isinstance(item, MultiSlot | FeedSlot):
                inner = [f"  {line}" for line in _lines(item)]
                yield from [f"{declared.name} {{", *inner, "}"] if inner else []
            elif item is not None:
                yield f"{declared.name}: {json.dumps(item)}"


def _items(value: object) -> Sequence[object]:
    return cast(list[object], value) if isinstance(value, list) else [value]


_TOKEN = re.compile(r'\s*(?:#[^\n]*\n\s*)*("(?:[^"\\\n]|\\.)*"|[{}:]|[\w.+-]+)')
_MESSAGES = {"multi_slot_desc": MultiSlot, "slots": FeedSlot}


class _Parser:
    """A parser of descriptions; errors name the file and the line."""

    def __init__(self, text: str, where: str) -> None:
        self._text, self._where, self._at = text, where, 0

    def parse(self, message: M) -> M:
        """Parse fields up to the end of the text into `message`."""
        while self._peek():
            self._field(message)
        return message

    def _peek(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None and self._text[self._at :].strip():
            raise self._error("expected a field")
        return match[1] if match else ""

    def _next(self, expected: str = "") -> str:
        token = self._peek()
        if not token or (expected and token != expected):
            actual = f"{token!r:.40}" if token else "the end"
            raise self._error(f"expected {expected or 'a value'}, not {actual}")
        matched = _TOKEN.match(self._text, self._at)
        assert matched is not None
        self._at = matched.end()
        return token

    def _field(self, message: Message) -> None:
        name = self._next()
        if name not in get_type_hints(type(message)):
            raise self._error(f"{type(message).__name__} has no field {name!r:.40}")
        value = self._message(name) if name in _MESSAGES else self._scalar(message, name)
        before: object = getattr(message, name)
        if isinstance(before, list):
            cast(list[object], before).append(value)
        else:
            setattr(message, name, value)

    def _message(self, name: str) -> Message:
        self._next("{")
        message = _MESSAGES[name]()
        while self._peek() != "}":
            self._field(message)
        self._next("}")
        return message

    def _scalar(self, message: Message, name: str) -> bool | int | str:
        self._next(":")
        token, hint = self._next(), str(get_type_hints(type(message))[name])
        kind = next(candidate for candidate in (bool, int, str) if candidate.__name__ in hint)
        values = {"true": True, "false": False}
        if kind is bool and token in values:
            return values[token]
        if kind is int and re.fullmatch(r"-?\d{1,9}", token):
            return int(token)
        if kind is str and token.startswith('"'):
            with suppress(json.JSONDecodeError):
                return json.loads(token)
        raise self._error(f"{name} takes a value of type {kind.__name__}, not {token:.40}")

    def _error(self, message: str) -> ValueError:
        line = self._text.count("\n", 0, self._at) + 1
        return ValueError(f"{self._where}, line {line}: {message}")


def parsed_feed(text: str, where: str) -> DataFeed:
    """Parse a description; ValueError with `where` and the line for invalid text.

    >>> parsed_feed('batch_size: 8', "here").batch_size
    8
    """
    return _Parser(text, where).parse(DataFeed())


class DataFeedDesc:
    """A data feed description read from a file, to be modified and printed.

    Raises FileNotFoundError, and ValueError, naming the line, for invalid text.
    """

    def __init__(self, proto_file: str) -> None:
        text = Path(proto_file).read_text(encoding="utf-8")
        self.proto_desc = _Parser(text, proto_file).parse(DataFeed(pipe_command="cat"))

    def set_batch_size(self, batch_size: object) -> None:
        """Set the number of samples per batch; TypeError unless an integer."""
        if not isinstance(batch_size, int):
            raise TypeError(f"batch_size must be int, not {type(batch_size).__name__}")
        self.proto_desc.batch_size = batch_size

    def set_dense_slots(self, dense_slots_name: Iterable[str]) -> None:
        """Mark slots as dense, with as many values as their shape has. KeyError for unknown
        ones.
        """
        for name in dense_slots_name:
            self._slot(name, "set_dense_slots").is_dense = True

    def set_use_slots(self, use_slots_name: Iterable[str]) -> None:
        """Mark slots as used, to be fed to programs. KeyError for unknown ones."""
        for name in use_slots_name:
            self._slot(name, "set_use_slots").is_used = True

    def _slot(self, name: str, method: str) -> FeedSlot:
        if self.proto_desc.name != "MultiSlotDataFeed":
            kind = self.proto_desc.name
            raise ValueError(f"{method} is for MultiSlotDataFeed, but the description is of {kind}")
        slots = {slot.name: slot for slot in self.proto_desc.multi_slot_desc.slots}
        if name not in slots:
            raise KeyError(f"there is no slot {name!r}; there are {', '.join(slots)}")
        return slots[name]

    def desc(self) -> str:
        """Return the description as text."""
        return feed_text(self.proto_desc)
