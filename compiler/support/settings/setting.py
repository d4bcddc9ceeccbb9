"""A declaration of an environment variable, the kinds of values, and the process's environment."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from compiler.support.dataclass import dataclass

T = TypeVar("T")

Environ = Mapping[str, str] | None
"""The variables to read by name; None for those of this process."""


@dataclass(frozen=True)
class SettingKind(Generic[T]):
    """How the text of a variable becomes a value: `expected` in words, and a parser.

    `parse` raises ValueError for a text that is not as expected.
    """

    expected: str
    parse: Callable[[str], T]


@dataclass(frozen=True)
class Setting(Generic[T]):
    """An environment variable: its name, the kind of its values, the default and what it does.

    `set_by` is who usually sets it, if that is not the user. An empty variable is not set.
    """

    name: str
    kind: SettingKind[T]
    default: T
    help: str
    set_by: str = ""

    def text(self, environ: Environ = None) -> str:
        """Return the text of the variable as it is; empty if it is not set."""
        return (os.environ if environ is None else environ).get(self.name, "")

    def is_set(self, environ: Environ = None) -> bool:
        """Return whether the variable is set, and not empty."""
        return bool(self.text(environ).strip())

    def read(self, environ: Environ = None, error: type[Exception] = ValueError) -> T:
        """Return the value; raise `error` if it is not of the expected kind."""
        return self.read_or(self.default, environ, error)

    def read_or(self, other: T, environ: Environ = None, error: type[Exception] = ValueError) -> T:
        """Return the value, or `other` if the variable is not set; raises as `read`."""
        text = self.text(environ).strip()
        if not text:
            return other
        try:
            return self.kind.parse(text)
        except ValueError:
            raise error(self.message(repr(text))) from None

    def require(self, environ: Environ = None, error: type[Exception] = ValueError) -> T:
        """Return the value; raise `error` if the variable is not set, or as `read`."""
        if not self.is_set(environ):
            raise error(self.message("not set"))
        return self.read(environ, error)

    def message(self, got: str) -> str:
        """Return the message about a value: the variable, what is expected, and who sets it."""
        usually = f"; it is usually set by {self.set_by}" if self.set_by else ""
        return f"{self.name} is {got}, expected {self.kind.expected}{usually}"


# ---- kinds of values ----------------------------------------------------------------------------

_ON, _OFF = "1 t true y yes on".split(), "0 f false n no off".split()
_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([kKMGT]?i?B)")
_POWERS: dict[str, int] = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def bytes_of(text: str) -> int:
    """Parse a number of bytes with an optional unit; raise ValueError for another text.

    >>> bytes_of("512"), bytes_of("1.5MB"), bytes_of("2 KiB")
    (512, 1500000, 2048)
    """
    if text.isdecimal():
        return int(text)
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    number, unit = float(match[1]), match[2]
    base = 1024 if unit.endswith("iB") else 1000
    return int(number * base ** _POWERS[unit.removesuffix("B").removesuffix("i")])


def choice(*names: str) -> SettingKind[str]:
    """The kind of a value that is one of these names.

    >>> choice("native", "numpy").expected
    'native or numpy'
    """
    listed = " or ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(text)
        return text

    return SettingKind(listed, parse)


def optional(kind: SettingKind[T]) -> SettingKind[T | None]:
    """The same kind, for a variable whose default is None."""
    return SettingKind(kind.expected, kind.parse)


def names_of(text: str) -> tuple[str, ...]:
    """Split a comma-separated text into names, without spaces and empty ones."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def is_endpoint(text: str) -> bool:
    """Whether a text is `host:port`.

    >>> is_endpoint("127.0.0.1:6170"), is_endpoint("127.0.0.1"), is_endpoint("a:99999")
    (True, False, False)
    """
    host, colon, port = text.rpartition(":")
    return bool(host and colon) and port.isdecimal() and 0 < int(port) < 1 << 16


def _flag(text: str) -> bool:
    if text.lower() not in (*_ON, *_OFF):
        raise ValueError(text)
    return text.lower() in _ON


def _whole(text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise ValueError(text)
    return int(text)


def _positive(text: str) -> float:
    if not 0 < float(text) < float("inf"):
        raise ValueError(text)
    return float(text)


def _budget(text: str) -> str:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)? *%", text):
        bytes_of(text)
    return text


def _limit(text: str) -> str:
    bytes_of(text)
    return text


def _endpoints(text: str) -> tuple[str, ...]:
    listed = tuple(each.strip() for each in text.split(","))
    if len(set(listed)) != len(listed) or not all(map(is_endpoint, listed)):
        raise ValueError(text)
    return listed


FLAG = SettingKind("0 or 1", _flag)
NUMBER = SettingKind("a whole number from 0", lambda text: _whole(text, 0))
POSITIVE = SettingKind("a whole number from 1", lambda text: _whole(text, 1))
FIRST_POSITIVE = SettingKind(
    "a whole number from 1, or several with commas between",
    lambda text: _whole(text.split(",")[0].strip(), 1),
)
INTEGER = SettingKind("a whole number", int)
REAL = SettingKind("a number", float)
SECONDS = SettingKind("a positive number of seconds", _positive)
BYTES = SettingKind("bytes: 300000000, 300MB or 2GiB", bytes_of)
BUDGET = SettingKind("bytes (300000000, 300MB, 1.5GiB) or a percentage (60%)", _budget)
LIMIT = SettingKind("bytes: 300000000, 300MB or 2GiB", _limit)
TEXT = SettingKind("a text", str)
NAMES = SettingKind("names with commas between", names_of)
NUMBERS = SettingKind(
    "whole numbers with commas between",
    lambda text: tuple(_whole(each.strip(), 0) for each in text.split(",")),
)
FILE = SettingKind("a file", str)
FOLDER = SettingKind("a folder", lambda text: str(Path(text).expanduser()))
ENDPOINTS = SettingKind("different host:port with commas between", _endpoints)
ENDPOINT = SettingKind("host:port", lambda text: _endpoints(text)[0])


# ---- the environment of this process ------------------------------------------------------------


def environment() -> dict[str, str]:
    """Return a copy of this process's environment, for one that it starts."""
    return dict(os.environ)


def export(values: Mapping[str, str | None]) -> None:
    """Set variables of this process, and of those that it starts; None removes one."""
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def exported(values: Mapping[str, str | None]) -> Generator[None]:
    """Set variables as `export` does within a `with` block; restore them afterwards."""
    before = {name: os.environ.get(name) for name in values}
    export(values)
    try:
        yield
    finally:
        export(before)
