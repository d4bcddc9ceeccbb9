"""Scope: maps names to tensors, kept from one step to the next.

A scope created by `new_scope` also sees its parent's names. Bound steps hold the arrays themselves,
so each family of scopes shares one count of arrays created or replaced: as long as `generation` is
unchanged, the bound arrays are still those of the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from itertools import chain
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from compiler.errors import CompileError
from compiler.ir.types import Array
from runtime.tensors.contents import Clock
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope_values import LodRankTable, LoDTensorArray, SelectedRows

Kept = TypeVar("Kept", SelectedRows, LoDTensorArray)


class Variable:
    """A variable of a scope; the handle that `find_var` returns.

    The first access decides its type: a tensor, sparse rows, a list of tensors, an integer or a
    float. Accessing it as another type raises CompileError from then on.
    """

    __slots__ = ("_held", "_tensor")

    def __init__(self, tensor: LoDTensor) -> None:
        self._tensor = tensor
        self._held: SelectedRows | LoDTensorArray | int | float | None = None

    def get_tensor(self) -> LoDTensor:
        """Return the tensor; empty until it is set. CompileError if it holds another type."""
        if self._held is not None:
            raise _holds(self._held, "a tensor")
        return self._tensor

    @property
    def holds_value(self) -> bool:
        """Whether it holds another type than a tensor, which steps do not see."""
        return self._held is not None

    @property
    def holds_rows(self) -> bool:
        """Whether it holds sparse rows."""
        return isinstance(self._held, SelectedRows)

    @property
    def holds_array(self) -> bool:
        """Whether it holds a list of tensors."""
        return isinstance(self._held, LoDTensorArray)

    def get_selected_rows(self) -> SelectedRows:
        """Return the sparse rows, without rows until some are set."""
        return self._keep(SelectedRows)

    def get_lod_tensor_array(self) -> LoDTensorArray:
        """Return the list of tensors, empty until some are appended."""
        return self._keep(LoDTensorArray)

    def get_lod_rank_table(self) -> LodRankTable:
        """The rank table that `lod_rank_table` computed; CompileError if it holds none."""
        tensor = self.get_tensor()
        table = tensor.read()
        if table is None or table.ndim != 2 or table.shape[1] != 2 or table.dtype.kind != "i":
            raise _holds(tensor, "a rank table")
        return LodRankTable(table)

    def set_int(self, value: int) -> None:
        """Set an integer."""
        self._expect_no_tensor("an int")
        self._held = int(value)

    def get_int(self) -> int:
        """Return the integer; CompileError if there is none."""
        if not isinstance(self._held, int):
            raise _holds(self._held, "an int")
        return self._held

    def is_int(self) -> bool:
        """Whether it holds an integer."""
        return isinstance(self._held, int)

    def set_float(self, value: float) -> None:
        """Set a float."""
        self._expect_no_tensor("a float")
        self._held = float(value)

    def get_float(self) -> float:
        """Return the float; CompileError if there is none."""
        if not isinstance(self._held, float):
            raise _holds(self._held, "a float")
        return self._held

    def is_float(self) -> bool:
        """Whether it holds a float."""
        return isinstance(self._held, float)

    def _keep(self, kind: type[Kept]) -> Kept:
        """Return the value as `kind`, created on first access."""
        self._expect_no_tensor(f"a {kind.__name__}")
        if self._held is None:
            self._held = kind()
        if not isinstance(self._held, kind):
            raise _holds(self._held, f"a {kind.__name__}")
        return self._held

    def _expect_no_tensor(self, wanted: str) -> None:
        if self._tensor.peek() is not None:
            raise _holds(self._tensor, wanted)


def _holds(held: object, wanted: str) -> CompileError:
    actual = "nothing yet" if held is None else type(held).__name__
    return CompileError(f"a variable of a scope holds {actual}, not {wanted}")


class Scope:
    """Variables by name, with a parent scope for lookups (fluid 1.8.5 `Scope`)."""

    def __init__(self) -> None:
        self._variables: dict[str, Variable] = {}
        self._parent: Scope | None = None
        self._children: WeakSet[Scope] = WeakSet()
        self.clock = Clock()
        self.beside: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        """Values that other objects associate with this scope for its lifetime."""

    @property
    def generation(self) -> int:
        """Grows whenever an array of this scope or its relatives is created or replaced."""
        return self.clock.now

    def var(self, name: str) -> Variable:
        """Return the variable of this name in this scope itself, created if missing."""
        if name not in self._variables:
            self._variables[name] = Variable(LoDTensor(clock=self.clock))
            self.clock.tick()  # it may hide one of a parent
        return self._variables[name]

    def find_var(self, name: str) -> Variable | None:
        """Return the variable of this name here or in the nearest ancestor that has it, or None."""
        holders = (scope._variables for scope in self._line() if name in scope._variables)
        variables = next(holders, None)
        return None if variables is None else variables[name]

    def erase(self, names: Iterable[str]) -> None:
        """Remove variables of this scope itself; unknown names are ignored."""
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
        self._children.add(kid)
        return kid

    def _remove_from_pool(self) -> None:  # pyright: ignore[reportUnusedFunction] - scripts
        """Nothing: a scope is freed with its last reference."""

    def drop_kids(self) -> None:
        """Empty every scope made by `new_scope`, and theirs."""
        for kid in self._kids():
            kid.drop_kids()
            kid.erase(kid.local_var_names())
        self._children.clear()

    def _kids(self) -> list[Scope]:
        """The scopes made by `new_scope` that are alive."""
        return list(self._children)

    @property
    def root(self) -> Scope:
        """The outermost scope whose names this one sees."""
        return list(self._line())[-1]

    def names(self) -> list[str]:
        """The names that `find_var` finds, this scope's first, in creation order."""
        return list(dict.fromkeys(chain.from_iterable(map(Scope.local_var_names, self._line()))))

    def local_var_names(self) -> list[str]:
        """The names of this scope itself, in creation order."""
        return list(self._variables)

    def arrays(self) -> Arrays:
        """The arrays of this scope by name, as compiled steps read and create them."""
        return Arrays(self)


class Arrays(MutableMapping[str, Array]):
    """A scope as a mapping from names to arrays; empty variables are omitted.

    Setting an array makes it the storage of the variable, without copying it. Arrays that are read
    or set here are exposed (`runtime.tensors.contents`), except by `tracked`.
    """

    def __init__(self, scope: Scope, *, peeks: bool = False, exposes: bool = True) -> None:
        self._scope = scope
        self._clock = scope.clock
        self._peeks = peeks
        self._exposes = exposes

    def peeking(self) -> Arrays:
        """The same mapping without synchronisation: arrays may be older than their device
        copies.
        """
        return Arrays(self._scope, peeks=True, exposes=self._exposes)

    def tracked(self) -> Arrays:
        """The same mapping for code that only reads, or writes as a `Writer`."""
        return Arrays(self._scope, peeks=self._peeks, exposes=False)

    @property
    def clock(self) -> Clock:
        """The clock of the scope's family."""
        return self._clock

    @property
    def generation(self) -> int:
        """The scope's generation: grows when an array is created or replaced."""
        return self._clock.now

    @property
    def contents(self) -> int:
        """Differs after any array of the scope or its relatives may have changed."""
        return self._clock.contents

    def tensor(self, name: str) -> LoDTensor | None:
        """The tensor of a name; None if there is none, or if it is empty."""
        variable = self._scope.find_var(name)
        tensor = None if variable is None or variable.holds_value else variable.get_tensor()
        return None if tensor is None or tensor.peek() is None else tensor

    def __getitem__(self, name: str) -> Array:
        tensor = self.tensor(name)
        if tensor is None:
            raise KeyError(name)
        if self._exposes:
            tensor.expose()
        array = tensor.peek() if self._peeks else tensor.read()
        assert array is not None, "tensor() returns none that is empty"
        return array

    def __setitem__(self, name: str, array: Array) -> None:
        variable = self._scope.find_var(name) or self._scope.var(name)
        variable.get_tensor().adopt(array, is_own=not self._exposes)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.tensor(name) is not None

    def on_device(self, name: str, device: str) -> Any:
        """The device copy of an array, as in `LoDTensor.on_device`; KeyError if empty."""
        tensor = self.tensor(name)
        if tensor is None:
            raise KeyError(name)
        return tensor.on_device(device)

    def __delitem__(self, name: str) -> None:
        if name not in self._scope.local_var_names():
            raise KeyError(name)
        self._scope.erase([name])

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._scope.names() if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
