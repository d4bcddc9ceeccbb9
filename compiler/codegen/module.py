"""Module: generated Python source and its interface. Plain data that `runtime` loads.

The source defines one function:

    def bind(take, params, N): ...    # one argument for each of `dims`
        return step

`take(buffer, dtype, shape, offset, strides)` returns an array over buffer number `buffer` of
`buffers`; the last two are in bytes and omitted for a view that starts at the beginning; `params`
maps names to the arrays of persistable state, which the step updates in place; the other arguments
are the values of `dims`. `step(*feeds)` computes once and returns a tuple with an array for each of
`fetches`, valid until the next step. All other fields are also literals in the source, so that a
module saved to a file, edited by hand and loaded again is complete.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import astuple, field
from pathlib import Path
from types import CodeType
from typing import Any, cast

from compiler.errors import ParseError
from compiler.ir.dims import Dim, Size, evaluate, parse_size
from compiler.pack import Lifetime
from compiler.plan import Buffer, Tensor
from compiler.record import Record
from compiler.support.cached_property import cached_property
from compiler.support.dataclass import dataclass
from compiler.support.escape import expect_one_line
from compiler.support.shared_arrays import SharedArrays
from compiler.support.syntax_trees import syntax_tree
from compiler.support.text_files import write_text


@dataclass(frozen=True)
class KernelSpec:
    """A device kernel: the types of its parameters, and the constants it is compiled with.

    A type ends in ":16" if the parameter is divisible by 16. `options` are launch options other
    than the defaults, such as `num_warps`.
    """

    name: str
    types: Mapping[str, str]
    constants: Mapping[str, int]
    options: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Module:
    """Generated source for one target, with its feeds, parameters, fetches and buffers.

    `dims` are the names of sizes fixed at binding; `buffers` the memory a step works in, with
    lifetimes in steps; `params` the persistable state by name, first version only. `kernels_ir` is
    the LLVM IR of native kernels by name, for the CPUs that `machine` names; with `checks_bounds`
    they check every access. `objects` are their object files, if a package has them. `collectives`
    has a line for each collective op in order: op, variable, element type and shape (`?` for sizes
    that are not fixed), attributes; ranks compare them before they begin. `record` is the
    compilation it came from, if compiled in this process: what `compiler.explain` starts from.
    `memory_limit` is the most bytes a step may use; it is not part of the source. `prepared` are
    arrays made from constants, for a module whose constants are always the same.
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
    machine: str = ""
    kernels_ir: Mapping[str, str] = field(default_factory=dict[str, str])
    checks_bounds: bool = False
    record: Record | None = field(default=None, compare=False, repr=False)
    memory_limit: int | None = field(default=None, compare=False)
    objects: Mapping[str, bytes] = field(
        default_factory=dict[str, bytes], compare=False, repr=False
    )
    prepared: SharedArrays | None = field(default=None, compare=False, repr=False)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the source, in hex: the module's identity."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def filename(self) -> str:
        """The file name of the source in tracebacks."""
        return f"<module {self.digest[:12]}>"

    @cached_property
    def code(self) -> CodeType:
        """The compiled source; SyntaxError if it is not valid Python.

        The kernels' IR is left out: no function reads it, and it may be most of the source.
        """
        return compile(without_ir(self.source), self.filename, "exec", dont_inherit=True)

    def save(self, path: str | Path) -> None:
        """Write the source to a file that runs as a script and loads again."""
        write_text(Path(path), self.source)

    @staticmethod
    def load(path: str | Path) -> Module:
        """Read a module from its file without running it; ParseError if it is not a module."""
        return Module.parse(Path(path).read_text(encoding="utf-8"))

    @staticmethod
    def parse(source: str) -> Module:
        """Parse a module from its source without running it; ParseError if it is not a module."""
        values = _literals(source)
        return Module.of(source, {**values, "KERNELS_IR": _texts(values.get("KERNELS_IR", {}))})

    @staticmethod
    def of(source: str, values: Mapping[str, Any]) -> Module:
        """Make a module of its source and the values that it assigns, as `values` returns them."""
        return Module(
            name=values["NAME"],
            target=values["TARGET"],
            source=source,
            dims=tuple(values["DIMS"]),
            feeds=tuple(_tensor(row) for row in values["FEEDS"]),
            params=tuple(_tensor(row) for row in values["PARAMS"]),
            fetches=tuple(_tensor(row) for row in values["FETCHES"]),
            buffers=tuple(_buffer(row) for row in values["BUFFERS"]),
            kernels=tuple(KernelSpec(*row) for row in values.get("KERNELS", ())),
            collectives=tuple(values.get("COLLECTIVES", ())),
            machine=values.get("MACHINE", ""),
            kernels_ir=values.get("KERNELS_IR", {}),
            checks_bounds=values.get("CHECKS_BOUNDS", False),
        )

    @property
    def values(self) -> dict[str, Any]:
        """The values that the source assigns, all of which JSON can hold."""
        return {
            "NAME": self.name,
            "TARGET": self.target,
            "DIMS": self.dims,
            "FEEDS": [tensor_row(feed) for feed in self.feeds],
            "PARAMS": [param_row(param) for param in self.params],
            "FETCHES": [tensor_row(fetch) for fetch in self.fetches],
            "BUFFERS": [buffer_row(buffer) for buffer in self.buffers],
            "KERNELS": [astuple(kernel) for kernel in self.kernels],
            "COLLECTIVES": self.collectives,
            "MACHINE": self.machine,
            "KERNELS_IR": self.kernels_ir,
            "CHECKS_BOUNDS": self.checks_bounds,
        }


def buffer_lifetimes(buffers: Iterable[Buffer], sizes: Mapping[str, int]) -> list[Lifetime]:
    """Convert buffers to the lifetimes that `pack` takes, given the values of the dims.

    A size that several buffers have is evaluated once: a new batch size waits for it.
    """
    known: dict[str, int] = {}
    lives: list[Lifetime] = []
    for start, stop, nbytes in ((each.start, each.stop, each.nbytes) for each in buffers):
        if not isinstance(nbytes, int):
            text = str(nbytes)
            if text not in known:
                known[text] = evaluate(nbytes, sizes)
            nbytes = known[text]
        lives.append(Lifetime(start, stop, nbytes))
    return lives


_FIELDS = ("NAME", "TARGET", "DIMS", "FEEDS", "PARAMS", "FETCHES", "BUFFERS")
_KNOWN = (*_FIELDS, "KERNELS", "COLLECTIVES", "MACHINE", "KERNELS_IR", "CHECKS_BOUNDS")
"""The assignments read from a module's source; those that are not fields are optional."""


def _literals(source: str) -> Mapping[str, Any]:
    """The literal assignments at the top of a module's source."""
    try:
        assigned = [node for node in syntax_tree(source).body if isinstance(node, ast.Assign)]
        pairs = [(cast(ast.Name, node.targets[0]).id, node.value) for node in assigned]
        literals = {name: ast.literal_eval(value) for name, value in pairs if name in _KNOWN}
    except (SyntaxError, ValueError, AttributeError) as error:
        raise ParseError(f"this is not a generated module: {error}") from error
    for name in _FIELDS:
        if name not in literals:
            raise ParseError(f"this is not a generated module: it does not assign {name}")
    return literals


# ---- the kernels' LLVM IR in a source

_IR, _IR_END = "\nKERNELS_IR = {\n", "\n''',\n}\n"
_NO_IR = "\nKERNELS_IR = {}\n"


def ir_lines(kernels: Mapping[str, str]) -> list[str]:
    """The lines of a source that assign the LLVM IR of kernels, by name."""
    lines = ["KERNELS_IR = {"]
    for name, text in kernels.items():
        lines += [f"    {name!r}: '''", *_printable(text.splitlines()), "''',"]
    return [*lines, "}"]


def _printable(lines: list[str]) -> list[str]:
    """Lines of which none has a control character, which are checked at once where none has."""
    return lines if "".join(lines).isprintable() else [*map(expect_one_line, lines)]


def _texts(literals: Mapping[str, str]) -> dict[str, str]:
    """The texts that `ir_lines` wrote as literals, which begin on a line of their own."""
    return {name: text.removeprefix("\n") for name, text in literals.items()}


def without_ir(source: str) -> str:
    """A module's source without the LLVM IR of its kernels, which only a compilation reads."""
    before, _, rest = source.partition(_IR)
    _, marker, after = rest.partition(_IR_END)
    return f"{before}{_NO_IR}{after}" if marker else source


def with_ir(source: str, kernels: Mapping[str, str]) -> str:
    """The source that `without_ir` made from one with these kernels."""
    before, marker, after = source.partition(_NO_IR)
    literals = "".join([f"    {name!r}: '''\n{text}''',\n" for name, text in kernels.items()])
    return f"{before}\nKERNELS_IR = {{\n{literals}}}\n{after}" if marker and kernels else source


# ---- rows of tensors and buffers, as literals in the source


def tensor_row(each: Tensor) -> tuple[Any, ...]:
    """The row of a feed or fetch: name, dtype and shape."""
    return (each.name, each.dtype, tuple(map(_literal, each.shape)))


def param_row(each: Tensor) -> tuple[Any, ...]:
    """The row of state: that of a feed, and its flags up to the last that is true."""
    flags = [each.on_device, each.fixed, each.escapes]
    while flags and not flags[-1]:
        flags.pop()
    return (*tensor_row(each), each.given, *flags)


def buffer_row(each: Buffer) -> tuple[Any, ...]:
    """The row of a buffer: name, bytes, first step, step after the last, and if on the device."""
    row = (each.name, _literal(each.nbytes), each.start, each.stop)
    return (*row, *((True,) if each.on_device else ()))


def _literal(size: Size) -> int | str:
    return str(size) if isinstance(size, Dim) else size


def _tensor(row: tuple[Any, ...]) -> Tensor:
    name, dtype, shape, *flags = row
    return Tensor(name, dtype, tuple(map(_size, shape)), *map(bool, flags))


def _buffer(row: tuple[Any, ...]) -> Buffer:
    name, nbytes, start, stop, *flags = row
    return Buffer(name, _size(nbytes), start, stop, *map(bool, flags))


def _size(value: int | str) -> Size:
    return parse_size(value) if isinstance(value, str) else value
