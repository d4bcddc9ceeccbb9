"""PTX text to kernels.

The whole module is read: variables, and the entries with their parameters, registers and
instructions. Functions take the place of their calls; those that are only declared are refused when
they are called. Hostile text gets a PtxSyntaxError with its line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tools.ptx.errors import PtxSyntaxError, UnsupportedInstruction
from tools.ptx.instructions import BYTES, Kernel, Parameter, Variable
from tools.ptx.text.body import Body
from tools.ptx.text.calls import Function, without_calls
from tools.ptx.text.reader import Reader
from tools.ptx.text.tokens import tokens
from tools.ptx.text.variables import STATE, variable

_LINKING = (".visible", ".extern", ".weak", ".common")
_THREADS = (".reqntid", ".maxntid")
_ONE_NUMBER = (".minnctapersm", ".maxnreg", ".maxclusterrank")


def parse(text: str) -> Mapping[str, Kernel]:
    """Return the kernels of PTX text by name.

    Raises PtxSyntaxError with the line, or UnsupportedInstruction for a directive unknown here.
    """
    return _Module(Reader(list(tokens(text)))).kernels()


class _Module:
    def __init__(self, reader: Reader) -> None:
        self._read = reader
        self._target = ""
        self._variables: dict[str, Variable] = {}
        self._found: dict[str, Kernel] = {}
        self._functions: dict[str, Function] = {}

    def kernels(self) -> Mapping[str, Kernel]:
        while not self._read.at_end:
            self._directive()
        if not self._target:
            raise PtxSyntaxError("PTX without .target")
        return {name: self._whole(kernel) for name, kernel in self._found.items()}

    def _whole(self, kernel: Kernel) -> Kernel:
        inlined = without_calls(kernel, self._functions)
        variables = {**self._variables, **inlined.variables}
        return replace(inlined, target=self._target, variables=variables)

    def _directive(self) -> None:
        token = self._read.next()
        word = token.text
        if token.kind == "file":
            self._read.file(word)
        elif token.kind == "loc" or word in _LINKING:
            pass
        elif word in (".version", ".address_size"):
            self._read.word()
        elif word == ".target":
            self._target = self._read.word()
            self._read.skip_list()
        elif word in STATE:
            self._variable(word)
        elif word == ".entry":
            self._entry()
        else:
            self._other(word)

    def _variable(self, space: str) -> None:
        declared = variable(self._read, space)
        self._variables[declared.name] = declared

    def _other(self, word: str) -> None:
        if word == ".func":
            self._function()
        elif word == ".section":
            self._read.skip_section()
        else:
            raise self._read.error(f"unexpected {word!r}")

    def _entry(self) -> None:
        name = self._read.word()
        parameters = self._parameters()
        required, most = self._limits()
        kernel = self._body(name, parameters)
        if name in self._found:
            raise self._read.error(f"two kernels are named {name}")
        self._found[name] = replace(kernel, required_threads=required, most_threads=most)

    def _function(self) -> None:
        """Read a function; one that is only declared is left out."""
        results = self._parameters()
        name = self._read.word()
        parameters = self._parameters()
        while self._read.peek() in (".noreturn", ".noinline"):
            self._read.next()
        if self._read.peek() == ";":
            self._read.take(";")
            return
        body = self._body(name, parameters)
        taken, returned = (tuple(parameter.name for parameter in e) for e in (parameters, results))
        self._functions[name] = Function(name, taken, returned, body)

    def _body(self, name: str, parameters: tuple[Parameter, ...]) -> Kernel:
        body = Body(self._read)
        body.read()
        return Kernel(
            name, "", parameters, tuple(body.registers), body.variables, tuple(body.instructions),
            body.labels,
        )  # fmt: skip

    def _parameters(self) -> tuple[Parameter, ...]:
        if self._read.peek() != "(":
            return ()
        self._read.take("(")
        parameters: list[Parameter] = []
        while self._read.peek() != ")":
            parameters.append(self._parameter())
            if self._read.peek() == ",":
                self._read.take(",")
        self._read.take(")")
        return tuple(parameters)

    def _parameter(self) -> Parameter:
        self._read.take(".param")
        kind = ""
        while (word := self._read.word())[0] == ".":
            if word == ".align":
                self._read.number()
            elif word[1:] in BYTES:
                kind = word[1:]
            elif word not in (".ptr", ".global", ".shared", ".const", ".local"):
                raise UnsupportedInstruction(f"parameters with {word} are not supported")
        if not kind:
            raise self._read.error(f"the parameter {word} has no type")
        return Parameter(word, kind, self._read.array_size(1))

    def _limits(self) -> tuple[tuple[int, int, int] | None, int]:
        required, most = None, 1024
        while self._read.peek() != "{":
            word = self._read.word()
            if word in _THREADS:
                numbers = self._read.numbers()
                x, y, z = (*numbers, 1, 1)[:3]
                required = (x, y, z) if word == ".reqntid" else required
                most = x * y * z if word == ".maxntid" else most
            elif word in _ONE_NUMBER:
                self._read.number()
            else:
                raise UnsupportedInstruction(f"the directive {word} of a kernel is not supported")
        return required, most
