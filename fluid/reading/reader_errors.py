"""Errors of a script's own generator, raised by the loader that reads from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from fluid.core import EnforceNotMet

__all__ = ["checked"]

T = TypeVar("T")


def checked(batches: Iterable[T]) -> Iterator[T]:
    """Yield the batches; an error of the generator becomes an EnforceNotMet too.

    Release 1.8.5 raises EnforceNotMet in place of the script's error. The error raised here is of
    both classes and has the script's message, attributes and traceback, so that scripts written
    for either catch it.

    >>> next(checked({}[n] for n in "a"))
    Traceback (most recent call last):
    KeyError: 'a'
    """
    try:
        yield from batches
    except EnforceNotMet:
        raise
    except Exception as error:
        raise _of_both_classes(error).with_traceback(error.__traceback__) from error


def _of_both_classes(error: Exception) -> Exception:
    kind = type(error)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    bases = (EnforceNotMet,) if issubclass(EnforceNotMet, kind) else (kind, EnforceNotMet)
    both = type(kind.__name__, bases, names)
    raised = both.__new__(both, *error.args)
    raised.args = error.args
    attributes = {"message": str(error), "op": "", "source": "", "hint": "", **vars(error)}
    for name, value in attributes.items():
        setattr(raised, name, value)
    return raised
