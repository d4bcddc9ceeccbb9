"""Module: generated Python source and what it expects. Plain data that `runtime` loads.

The source defines one function:

    def bind(take, params, N): ...    # one argument for each of `dims`
        return step

`take(buffer, dtype, shape, offset, strides)` gives an array over buffer number `buffer` of
`buffers`, the last two in bytes and left out where it has the buffer's beginning; `params` maps
names to the arrays of persistable state, which the step updates in place; the rest are the numbers
that the names in `dims` stand for. `step(*feeds)` computes once and returns a tuple with an array
for each of `fetches`, valid until the next step. Everything else here also stands in the source as
literals, so that a module saved to a file, edited by hand and loaded again is whole.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any, cast

from compiler.errors import ParseError
from compiler.ir.cached_property import cached_property
from compiler.ir.dims import Size, evaluate, parse_size
from compiler.pack import Life
from compiler.plan import Buffer, Tensor
from compiler.record import Record


@dataclass(frozen=True)
class KernelSpec:
    """A kernel of a device: the types of its parameters, and the constants it is compiled with.

    A type ends in ":16" where the parameter is divisible by 16. `options` are what its launches
    tell the compiler, such as `num_warps`, where that is not as usual.
    """

    name: str
    types: Mapping[str, str]
    constants: Mapping[str, int]
    options: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Module:
    """Generated source for one target, with the values it is fed, keeps, returns and stores.

    `dims` are the names of sizes fixed at binding; `buffers` the memory a step works in, with
    lives in steps; `params` the persistable state by name, first version only. `collectives` has a
    line for each collective op in order: op, variable, element type and shape (`?` for sizes that
    are not fixed), attributes; ranks compare them before they begin. `record` is how it was made,
    where it was made here: what `compiler.explain` starts from. `memory_limit` is how many bytes a
    step may take in all; the source does not say it.
    """

    name: str
    target: str
    source: str
    dims: tuple[str, ...]
    feeds: tuple[Tensor, ...]
    params: tuple[Tensor, ...]
    fetches: tuple[Tensor, ...]
    buffers: tuple[Buffer, ...]
    kernels: tuple[KernelSpec, ...] = ()
    collectives: tuple[str, ...] = ()
    record: Record | None = field(default=None, compare=False, repr=False)
    memory_limit: int | None = field(default=None, compare=False)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the source, in hex: the module's identity."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def filename(self) -> str:
        """What tracebacks call the source."""
        return f"<module {self.digest[:12]}>"

    @cached_property
    def code(self) -> CodeType:
        """The source as Python compiled it; SyntaxError where it is no Python."""
        return compile(self.source, self.filename, "exec", dont_inherit=True)

    def save(self, path: str | Path) -> None:
        """Write the source to a file that runs as a script and loads again."""
        Path(path).write_text(self.source, encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> Module:
        """Read a module from its file without running it; ParseError where it is not one."""
        return Module.parse(Path(path).read_text(encoding="utf-8"))

    @staticmethod
    def parse(source: str) -> Module:
        """Read a module from its source without running it; ParseError where it is not one."""
        values = _literals(source)
        return Module(
            name=values["NAME"],
            target=values["TARGET"],
            source=source,
            dims=values["DIMS"],
            feeds=tuple(_tensor(row) for row in values["FEEDS"]),
            params=tuple(_tensor(row) for row in values["PARAMS"]),
            fetches=tuple(_tensor(row) for row in values["FETCHES"]),
            buffers=tuple(_buffer(row) for row in values["BUFFERS"]),
            kernels=tuple(KernelSpec(*row) for row in values.get("KERNELS", ())),
            collectives=values.get("COLLECTIVES", ()),
        )


def lives_of(buffers: Iterable[Buffer], sizes: Mapping[str, int]) -> list[Life]:
    """Buffers as `pack` takes them, given what each name in their sizes stands for."""
    return [Life(each.start, each.stop, evaluate(each.nbytes, sizes)) for each in buffers]


_FIELDS = ("NAME", "TARGET", "DIMS", "FEEDS", "PARAMS", "FETCHES", "BUFFERS")
_KNOWN = (*_FIELDS, "KERNELS", "COLLECTIVES")
"""What is read of a module's source; modules of the host have no kernels, few have collectives."""


def _literals(source: str) -> Mapping[str, Any]:
    """The literal assignments at the top of a module's source."""
    try:
        assigned = [node for node in ast.parse(source).body if isinstance(node, ast.Assign)]
        pairs = [(cast(ast.Name, node.targets[0]).id, node.value) for node in assigned]
        found = {name: ast.literal_eval(value) for name, value in pairs if name in _KNOWN}
    except (SyntaxError, ValueError, AttributeError) as error:
        raise ParseError(f"this is not a generated module: {error}") from error
    for name in _FIELDS:
        if name not in found:
            raise ParseError(f"this is not a generated module: it does not assign {name}")
    return found


def _tensor(row: tuple[Any, ...]) -> Tensor:
    name, dtype, shape, *flags = row
    return Tensor(name, dtype, tuple(map(_size, shape)), *map(bool, flags))


def _buffer(row: tuple[Any, ...]) -> Buffer:
    name, nbytes, start, stop, *flags = row
    return Buffer(name, _size(nbytes), start, stop, *map(bool, flags))


def _size(value: int | str) -> Size:
    return parse_size(value) if isinstance(value, str) else value
