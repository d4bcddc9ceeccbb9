"""Scope: names and the tensors they stand for, kept from one step to the next.

A scope made by `new_scope` also sees its parent's names. Bound steps hold the arrays themselves, so
each family of scopes shares one count of arrays made or replaced: while `generation` stands still,
what is bound is still what the names stand for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from compiler.ir.types import Array
from runtime.selected_rows import SelectedRows
from runtime.tensor import Clock, LoDTensor


class Variable:
    """The place of a name in a scope; the handle `find_var` gives."""

    __slots__ = ("_rows", "_tensor")

    def __init__(self, tensor: LoDTensor) -> None:
        self._tensor = tensor
        self._rows: SelectedRows | None = None

    def get_tensor(self) -> LoDTensor:
        """The tensor kept here; empty until it is set. ValueError where rows are kept here."""
        if self._rows is not None:
            raise ValueError("the variable holds SelectedRows: call get_selected_rows")
        return self._tensor

    def get_selected_rows(self) -> SelectedRows:
        """The rows kept here, empty until they are set. ValueError where a tensor is kept here."""
        if self._tensor.peek() is not None:
            raise ValueError("the variable holds a LoDTensor: call get_tensor")
        if self._rows is None:
            self._rows = SelectedRows()
        return self._rows

    @property
    def holds_rows(self) -> bool:
        """Whether it is SelectedRows that are kept here."""
        return self._rows is not None


class Scope:
    """Variables by name, with those of a parent behind them (fluid 1.8.5 `Scope`)."""

    def __init__(self) -> None:
        self._variables: dict[str, Variable] = {}
        self._parent: Scope | None = None
        self._kids: WeakSet[Scope] = WeakSet()
        self.clock = Clock()
        self.beside: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        """What others keep for this scope as long as it is there."""

    @property
    def generation(self) -> int:
        """Grows whenever an array of this scope or its relatives is made or replaced."""
        return self.clock.now

    def var(self, name: str) -> Variable:
        """The variable of this name in this very scope, made where it is missing."""
        if name not in self._variables:
            self._variables[name] = Variable(LoDTensor(clock=self.clock))
            self.clock.tick()  # it may hide one of a parent
        return self._variables[name]

    def find_var(self, name: str) -> Variable | None:
        """The variable of this name here or in the nearest parent that has it, or None."""
        holders = (scope._variables for scope in self._line() if name in scope._variables)
        variables = next(holders, None)
        return None if variables is None else variables[name]

    def erase(self, names: Iterable[str]) -> None:
        """Forget these variables of this very scope; names it does not have are let pass."""
        for name in names:
            self._variables.pop(name, None)
        self.clock.tick()

    def _line(self) -> Iterator[Scope]:
        """This scope, its parent, and so on."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope._parent

    def new_scope(self) -> Scope:
        """An empty scope that sees the names of this one."""
        kid = Scope()
        kid._parent, kid.clock = self, self.clock
        self._kids.add(kid)
        return kid

    def drop_kids(self) -> None:
        """Empty every scope made by `new_scope`, and theirs."""
        for kid in list(self._kids):
            kid.drop_kids()
            kid.erase(kid.local_var_names())
        self._kids.clear()

    @property
    def root(self) -> Scope:
        """The outermost scope whose names this one sees."""
        return list(self._line())[-1]

    def names(self) -> list[str]:
        """The names that `find_var` finds, this scope's first, in the order they came."""
        return list(dict.fromkeys(chain.from_iterable(map(Scope.local_var_names, self._line()))))

    def local_var_names(self) -> list[str]:
        """The names of this very scope, in the order they came."""
        return list(self._variables)

    def arrays(self) -> Arrays:
        """The arrays of this scope by name, as compiled steps read and make them."""
        return Arrays(self)


class Arrays(MutableMapping[str, Array]):
    """A scope seen as a mapping from names to arrays; empty variables do not show.

    Setting an array makes it the storage of the variable, without copying it.
    """

    def __init__(self, scope: Scope, *, peeks: bool = False) -> None:
        self._scope = scope
        self._clock = scope.clock
        self._peeks = peeks

    def peeking(self) -> Arrays:
        """The same, giving arrays as they are, which may be behind their twins on a device."""
        return Arrays(self._scope, peeks=True)

    @property
    def generation(self) -> int:
        """The scope's: grows when an array is made or replaced."""
        return self._clock.now

    def __getitem__(self, name: str) -> Array:
        found = self._scope.find_var(name)
        tensor = found.get_tensor() if found and not found.holds_rows else None
        array = None if tensor is None else tensor.peek() if self._peeks else tensor.array
        if array is None:
            raise KeyError(name)
        return array

    def __setitem__(self, name: str, array: Array) -> None:
        found = self._scope.find_var(name) or self._scope.var(name)
        found.get_tensor().adopt(array)

    def on_device(self, name: str, device: str) -> Any:
        """The twin of an array on a device, as `LoDTensor.on_device` has it; KeyError if empty."""
        found = self._scope.find_var(name)
        if found is None or found.holds_rows or found.get_tensor().peek() is None:
            raise KeyError(name)
        return found.get_tensor().on_device(device)

    def __delitem__(self, name: str) -> None:
        if name not in self._scope.local_var_names():
            raise KeyError(name)
        self._scope.erase([name])

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._scope.names() if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
