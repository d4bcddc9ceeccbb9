"""Assignment of variables to servers: round-robin, or by a hash of the name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from zlib import crc32

from compiler.ir.program import GRAD

__all__ = ["HashName", "NamedBlock", "PSDispatcher", "RoundRobin"]


class NamedBlock(Protocol):
    """What has a name: a variable, or a slice of one."""

    @property
    def name(self) -> str | Callable[[], str]:
        """Its name, or a method that returns it, as descriptions of release 1.8 have."""
        ...


class PSDispatcher:
    """Base class that assigns variables to server endpoints; subclasses define `dispatch`."""

    def __init__(self, pserver_endpoints: Sequence[str]) -> None:
        self._eps = pserver_endpoints
        self._step = 0

    @property
    def eps(self) -> Sequence[str]:
        """The endpoints."""
        return self._eps

    def reset(self) -> None:
        """Restart with the first endpoint."""
        self._step = 0

    def dispatch(self, varlist: Iterable[NamedBlock | str]) -> list[str]:
        """The endpoint of each variable. Raises NotImplementedError in the base class."""
        raise NotImplementedError(f"{type(self).__name__} does not say how variables are spread")

    def _endpoint(self, number: int) -> str:
        """An endpoint by index, modulo their number; raises IndexError if there is none."""
        if not self._eps:
            raise IndexError(f"{type(self).__name__} has no endpoints: pass the servers' host:port")
        return self._eps[number % len(self._eps)]


class RoundRobin(PSDispatcher):
    """Round-robin assignment, continued by the next call.

    >>> turns = RoundRobin(["a:1", "b:1"])
    >>> turns.dispatch(["v", "w", "x"]), turns.dispatch(["y"])
    (['a:1', 'b:1', 'a:1'], ['b:1'])
    """

    def dispatch(self, varlist: Iterable[NamedBlock | str]) -> list[str]:
        """The endpoint of each of the variables or names; IndexError without endpoints."""
        endpoints: list[str] = []
        for _ in varlist:
            endpoints.append(self._endpoint(self._step))
            self._step += 1
        return endpoints


class HashName(PSDispatcher):
    """Assignment by a hash of the name: equal in every process, and for the gradient.

    >>> names = HashName(["a:1", "b:1"])
    >>> names.dispatch(["w", "w@GRAD"]) == 2 * names.dispatch(["w"])
    True
    """

    def dispatch(self, varlist: Iterable[NamedBlock | str]) -> list[str]:
        """The endpoint of each of the variables or names; IndexError without endpoints."""
        names = [var if isinstance(var, str) else var.name for var in varlist]
        texts = [name if isinstance(name, str) else name() for name in names]
        return [self._endpoint(crc32(text.replace(GRAD, "").encode())) for text in texts]
