"""Notices on stderr about scripts that use something removed from Python or a package."""

from __future__ import annotations

import sys

__all__ = ["Notices"]


class Notices:
    """Prints each notice once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def tell(self, what: str, since: str, instead: str) -> None:
        """Say what is gone since when, and what is taken in its place."""
        if what not in self._said:
            self._said.add(what)
            print(f"fluid run: {what} is gone since {since}; taking {instead}", file=sys.stderr)
