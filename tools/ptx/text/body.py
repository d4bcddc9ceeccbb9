"""The body of a kernel: registers by scope, labels and instructions."""

from __future__ import annotations

import re
from dataclasses import replace

from tools.ptx.errors import PtxSyntaxError
from tools.ptx.instructions import BYTES, Instruction, Not, Register, Symbol, Variable
from tools.ptx.text.calls import in_local_memory
from tools.ptx.text.operands import Operands
from tools.ptx.text.reader import Reader
from tools.ptx.text.tokens import Token
from tools.ptx.text.variables import STATE, variable

MOST_REGISTERS = 1 << 20
_OPCODE = re.compile(r"[a-z][a-z0-9_]*(?:(?:\.|::)[\w]+)*$")


class Body:
    """Reads `{ … }`; afterwards `instructions`, `labels`, `registers` and `variables` hold it."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._scopes: list[dict[str, Register | Symbol]] = []
        self._place = ""
        self.registers: list[Register] = []
        self.variables: dict[str, Variable] = {}
        self.labels: dict[str, int] = {}
        self.instructions: list[Instruction] = []

    def read(self) -> None:
        """Read to the brace that closes the body."""
        self._read.take("{")
        self._scopes.append({})
        while self._scopes:
            self._statement(self._read.next())

    def _statement(self, token: Token) -> None:
        if token.kind == "loc":
            self._place = self._read.place(token.text)
        elif token.kind == "file":
            self._read.file(token.text)
        elif token.text == "{":
            self._scopes.append({})
        elif token.text == "}":
            self._scopes.pop()
        elif token.text[:1] == ".":
            self._directive(token.text)
        elif token.kind == "word" and self._read.peek() == ":":
            self._label(token.text)
        elif token.text != ";":
            self._instruction(token)

    def _label(self, name: str) -> None:
        self._read.take(":")
        if name in self.labels:
            raise self._read.error(f"two labels are named {name}")
        self.labels[name] = len(self.instructions)

    def _directive(self, word: str) -> None:
        if word == ".reg":
            self._declare()
        elif word in STATE:
            declared = variable(self._read, word)
            self.variables[declared.name] = declared
        elif word == ".param":
            self._parameter()
        elif word == ".pragma":
            self._read.next()
            self._read.take(";")
        else:
            raise self._read.error(f"unexpected {word!r}")

    def _parameter(self) -> None:
        """A parameter of a call: a variable of local memory, with a name in this scope alone."""
        declared = variable(self._read, ".local")
        name = f"{declared.name}@{len(self.variables)}"
        self.variables[name] = replace(declared, name=name)
        self._scopes[-1][declared.name] = Symbol(name)

    def _declare(self) -> None:
        kind = self._read.word()[1:]
        if kind != "pred" and kind not in BYTES:
            raise self._read.error(f"registers of type {kind!r} are not known")
        self._registers(BYTES.get(kind, 0))
        while self._read.peek() == ",":
            self._read.take(",")
            self._registers(BYTES.get(kind, 0))
        self._read.take(";")

    def _registers(self, width: int) -> None:
        name = self._read.word()
        if self._read.peek() != "<":
            self._add(name, width)
            return
        self._read.take("<")
        count = self._read.number()
        self._read.take(">")
        if count > MOST_REGISTERS - len(self.registers):
            raise self._read.error(f"{count} registers are too many")
        for number in range(count):
            self._add(f"{name}{number}", width)

    def _add(self, name: str, width: int) -> None:
        register = Register(name, len(self.registers), width)
        self.registers.append(register)
        self._scopes[-1][name] = register

    def _find(self, name: str) -> Register | Symbol | None:
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _instruction(self, first: Token) -> None:
        guard = None
        if first.text == "@":
            guard = self._guard()
            first = self._read.next()
        if first.kind != "word" or not _OPCODE.match(first.text):
            raise PtxSyntaxError(
                f"PTX line {first.line}: an instruction expected, not {first.text!r}"
            )
        words = self._operand_words()
        opcode, *modifiers = first.text.split(".")
        operands = Operands(words, self._find).all()
        text = first.text + " " + " ".join(word.text for word in words)
        created = Instruction(
            opcode, tuple(modifiers), operands, guard, first.line, self._place, text
        )
        self.instructions.append(in_local_memory(created, self.variables))

    def _guard(self) -> Register | Not:
        inverted = self._read.peek() == "!"
        if inverted:
            self._read.take("!")
        name = self._read.word()
        operand = self._find(name)
        if not isinstance(operand, Register) or operand.width:
            raise self._read.error(f"{name} is not a predicate")
        return Not(operand) if inverted else operand

    def _operand_words(self) -> list[Token]:
        words: list[Token] = []
        while (token := self._read.next()).text != ";":
            if token.kind in ("end", "loc", "file"):
                raise self._read.error("';' expected")
            words.append(token)
        return words
