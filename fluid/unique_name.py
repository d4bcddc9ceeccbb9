"""Names for what users leave unnamed: `fc_0`, `fc_0.w_0`, `tmp_3` (fluid_spec A.2).

One generator is current at a time; `guard` puts a fresh one in its place, so that a program built
twice gets the same names twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fluid.recording.arguments import typed

__all__ = ["UniqueNameGenerator", "generate", "generate_with_ignorable_key", "guard", "switch"]


class UniqueNameGenerator:
    """Counts from 0 for every key; `prefix` goes before each name."""

    def __init__(self, prefix: str | None = None) -> None:
        self.prefix = prefix or ""
        self.ids: Counter[str] = Counter()

    def __call__(self, key: str) -> str:
        """The next name for a key.

        A key that is itself such a name is prefixed again, as in the reference: checkpoints are
        saved under these names.

        >>> fresh = UniqueNameGenerator("pre_")
        >>> fresh("fc"), fresh("pre_fc_0.w")
        ('pre_fc_0', 'pre_pre_fc_0.w_0')
        """
        count = self.ids[key]
        self.ids[key] += 1
        return f"{self.prefix}{key}_{count}"


generator = UniqueNameGenerator()
"""The generator that is current."""


def generate(key: str) -> str:
    """The next name for a key from the current generator: `fc_0`, then `fc_1`."""
    return generator(key)


@typed
def switch(
    new_generator: UniqueNameGenerator | None = None, new_para_name_checker: Any = None
) -> tuple[UniqueNameGenerator, Any]:
    """Make another generator current, a fresh one by default; returns the one before it.

    The result is a pair as in the reference, and what it gives back is taken: its second part,
    which checks names of dygraph, is of no use here.

    >>> before, checker = switch()
    >>> _ = switch(before, checker)
    """
    global generator
    previous, generator = generator, new_generator or UniqueNameGenerator()
    return previous, new_para_name_checker


@typed
@contextmanager
def guard(new_generator: UniqueNameGenerator | str | bytes | None = None) -> Iterator[None]:
    """Use another generator within a `with` block; a string is the prefix of its names."""
    if isinstance(new_generator, bytes):
        new_generator = new_generator.decode()
    if isinstance(new_generator, str):
        new_generator = UniqueNameGenerator(new_generator)
    previous, _ = switch(new_generator)
    try:
        yield
    finally:
        switch(previous)


def generate_with_ignorable_key(key: str) -> str:
    """The same as `generate`: the key counts wherever programs are recorded."""
    return generate(key)
