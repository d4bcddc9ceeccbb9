"""Generated names of unnamed objects: `fc_0`, `fc_0.w_0`, `tmp_3`.

One generator is current at a time; `guard` replaces it by a new one, so that a program built twice
has the same names twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

from fluid.recording.arguments import typed

__all__ = ["UniqueNameGenerator", "generate", "generate_with_ignorable_key", "guard", "switch"]


class UniqueNameGenerator:
    """A counter from 0 for every key; `prefix` precedes each name."""

    def __init__(self, prefix: str | None = None) -> None:
        self.prefix = prefix or ""
        self.ids: Counter[str] = Counter()
        self._lock = Lock()
        self.parameters: set[str] = set()
        """The names of the parameters of eager mode, each of which is created once."""

    def __call__(self, key: str) -> str:
        """Return the next name for a key.

        A key that is itself such a name is prefixed again, as in the reference: checkpoints are
        saved under these names.

        >>> fresh = UniqueNameGenerator("pre_")
        >>> fresh("fc"), fresh("pre_fc_0.w")
        ('pre_fc_0', 'pre_pre_fc_0.w_0')
        """
        with self._lock:
            count = self.ids[key]
            self.ids[key] += 1
        return f"{self.prefix}{key}_{count}"


generator = UniqueNameGenerator()
"""The current generator."""


def generate(key: str) -> str:
    """Return the next name for a key from the current generator: `fc_0`, then `fc_1`."""
    return generator(key)


@typed
def switch(
    new_generator: UniqueNameGenerator | tuple[UniqueNameGenerator, object] | None = None,
    new_para_name_checker: object = None,
) -> tuple[UniqueNameGenerator, object]:
    """Set the current generator (default: a new one); returns the previous one.

    The result is a pair as in the reference, and can be passed back, as two arguments or as one:
    the second item, a name checker for dygraph, has no effect here.

    >>> before = switch()
    >>> _ = switch(before)
    """
    global generator
    if isinstance(new_generator, tuple):
        new_generator, new_para_name_checker = new_generator
    previous, generator = generator, new_generator or UniqueNameGenerator()
    return previous, new_para_name_checker


@typed
@contextmanager
def guard(new_generator: UniqueNameGenerator | str | bytes | None = None) -> Generator[None]:
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
    """Same as `generate`: the key is only ignored in dygraph mode."""
    return generate(key)
