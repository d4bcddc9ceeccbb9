"""Dataclasses whose methods are made late are as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, field, fields, replace
from threading import Barrier
from typing import Any, ClassVar

import pytest

from compiler.support.dataclass import dataclass

Maker = Callable[[type], Any]


def many_fields(decorate: Maker) -> Any:
    """A class with each kind of field."""

    @decorate
    class Many:
        """Many fields."""

        shared: ClassVar[int] = 7
        first: int
        second: str = "b"
        third: list[int] = field(default_factory=lambda: [3])
        hidden: int = field(default=4, repr=False)
        ignored: int = field(default=5, compare=False)
        keyword: int = field(default=6, kw_only=True)
        later: int = field(init=False)
        made: dict[str, int] = field(init=False, default_factory=dict, hash=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "later", self.first + 1)

    return Many


def no_fields(decorate: Maker) -> Any:
    """A class without fields."""

    @decorate
    class Nothing:
        """No fields."""

    return Nothing


def one_field(decorate: Maker) -> Any:
    """A class with a field."""

    @decorate
    class One:
        """One field."""

        value: float

    return One


def own_methods(decorate: Maker) -> Any:
    """A class that defines what would be made."""

    @decorate
    class Own:
        """Own methods."""

        value: int

        def __init__(self, value: int = 1) -> None:
            object.__setattr__(self, "value", value * 2)

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

    return Own


CLASSES = [many_fields, no_fields, one_field, own_methods]
OPTIONS = [{}, {"frozen": True}, {"eq": False}, {"frozen": True, "eq": False}]
ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}), ((1,), {}), ((2,), {}), ((float("nan"),), {}), ((1, "c", []), {"keyword": 1}),
    ((1,), {"ignored": 2}), ((1,), {"hidden": 2}), ((1, 2, 3, 4, 5, 6), {}), ((), {"no": 1}),
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("define", CLASSES, ids=lambda define: define.__name__)
def test_it_is_as_the_standard_one(define: Callable[..., Any], options: dict[str, bool]) -> None:
    ours = define(dataclass(**options))
    standard = define(dataclasses.dataclass(**options))
    seen = [behaviour(cls) for cls in (ours, standard)]
    assert seen[0] == seen[1]
    assert str(inspect.signature(ours)) == str(inspect.signature(standard))


def behaviour(cls: Any) -> list[Any]:
    """What a class does with each of the arguments, and its objects with each other."""
    results: list[Any] = [cls.__match_args__, [each.name for each in fields(cls)]]
    objects: list[Any] = []
    for args, keywords in ARGUMENTS:
        try:
            objects.append(cls(*args, **keywords))
        except TypeError as error:
            results.append(str(error))
    for each in objects:
        results += [outcome(hash, each) == outcome(hash, copy.copy(each))]
        results += [outcome(function, each) for function in (repr, vars, dataclasses.asdict)]
        results += [each == other for other in [*objects, 1]]
        results += [outcome(setattr, copy.copy(each), name, 1) for name in ("value", "first", "x")]
        results += [outcome(delattr, copy.copy(each), name) for name in ("value", "first", "x")]
        results += [outcome(lambda each: vars(replace(each, first=9)), each)]
    return results


def outcome(function: Callable[..., Any], *args: Any) -> str | int:
    """What a function returns, or its error, as text without addresses; numbers as they are."""
    try:
        value = function(*args)
    except (TypeError, AttributeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return value if isinstance(value, int) else str(value).split(" object at ")[0]


@dataclass(frozen=True)
class Base:
    """A base that the tests extend and store."""

    value: int


@dataclass(frozen=True)
class Derived(Base):
    """A subclass."""

    more: int = 2


def test_subclasses_have_the_fields_of_their_bases() -> None:
    assert Derived(1) == Derived(1, 2) != Base(1)
    assert repr(Derived(1)) == "Derived(value=1, more=2)"

    @dataclasses.dataclass(frozen=True)
    class Standard(Base):
        more: int

    assert repr(Standard(1, 2)).endswith("Standard(value=1, more=2)")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'more'"):
        Standard(1, 2).more = 3  # type: ignore[misc]
    with pytest.raises(TypeError, match="cannot inherit non-frozen"):

        class Changing(Base):
            """Not frozen."""

        dataclass(Changing)

    class Plain(Base):
        """No dataclass: its own attributes can be set."""

        def __init__(self) -> None:
            super().__init__(4)
            self.own = 5

    assert (Plain().value, Plain().own) == (4, 5)
    with pytest.raises(FrozenInstanceError):
        Plain().value = 6  # type: ignore[misc]


def test_objects_are_compared_before_one_is_initialised() -> None:
    assert copy.deepcopy(Base(3)) == Base(3)
    unused = one_field(dataclass(frozen=True))
    bare = object.__new__(unused)
    vars(bare)["value"] = 1.0
    assert bare == copy.copy(bare) and hash(bare) and "value=1.0" in repr(bare)


def test_threads_make_the_first_objects_at_once() -> None:
    for _ in range(20):
        cls, barrier = one_field(dataclass(frozen=True)), Barrier(4)

        def make(cls: Any = cls, barrier: Barrier = barrier) -> Any:
            barrier.wait()
            return cls(1.5).value

        with ThreadPoolExecutor(4) as threads:
            assert [call.result() for call in [threads.submit(make) for _ in range(4)]] == [1.5] * 4


def test_a_cycle_is_written_once() -> None:
    @dataclass
    class Node:
        """A node of a list."""

        next: Any

    node = Node(None)
    node.next = node
    assert repr(node).endswith("Node(next=...)")
