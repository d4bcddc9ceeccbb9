"""Versions that compare part by part."""

from __future__ import annotations

import re
from functools import total_ordering
from typing import Any

__all__ = ["LooseVersion", "StrictVersion", "Version"]


@total_ordering
class LooseVersion:
    """A version of numbers and words; numbers compare as numbers.

    >>> LooseVersion("1.10.0") > LooseVersion("1.9"), LooseVersion("1.8.5") >= "1.8"
    (True, True)
    """

    def __init__(self, vstring: str | None = None) -> None:
        if vstring is not None:
            self.parse(vstring)

    def parse(self, vstring: str) -> None:
        """Take a version apart."""
        self.vstring = vstring
        words = re.findall(r"\d+|[a-z]+", vstring)
        self.version: Any = [int(word) if word.isdigit() else word for word in words]

    def __str__(self) -> str:
        return self.vstring

    def __repr__(self) -> str:
        return f"{type(self).__name__} ('{self}')"

    def _other(self, other: object) -> Any:
        return type(self)(other).version if isinstance(other, str) else vars(other)["version"]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str | LooseVersion) and self.version == self._other(other)

    def __lt__(self, other: object) -> bool:
        return self.version < self._other(other)

    __hash__ = None  # type: ignore[assignment]


Version = LooseVersion


class StrictVersion(LooseVersion):
    """A version of two or three numbers, and maybe `a` or `b` with a number behind them.

    >>> StrictVersion("1.5.1") < StrictVersion("1.5.2b2") < StrictVersion("1.5.2")
    True
    """

    def parse(self, vstring: str) -> None:
        """Take a version apart; ValueError for what is none."""
        match = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?(?:([ab])(\d+))?", vstring)
        if match is None:
            raise ValueError(f"invalid version number '{vstring}'")
        major, minor, patch, letter, number = match.groups()
        ahead = (letter, int(number)) if letter else ("final", 0)
        self.vstring = vstring
        self.version = (int(major), int(minor), int(patch or 0), *ahead)
