"""Rewrites the text of a kernel so that it checks the bounds of all that it loads and stores.

The finished text is rewritten, so that no generator of kernels can leave a check out; a pointer of
unknown origin is an error. Each pointer `%p` gets a value `%p.bounds`, the address of a record with
the bounds of the array that it was computed from: an argument of the kernel, or its own memory. An
access out of bounds is noted in a report, and other memory is accessed instead.

A kernel with checks finds the records in front of its arguments; `runtime.native.bounds` puts them
there.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from compiler.codegen.native.bounds.accesses import LOAD, Lines, checked_access, within
from compiler.codegen.native.bounds.ir_lines import expect, nbytes, operands, type_of, value_of

RECORD = 32
"""Bytes of the bounds of an array: its start, its bytes, the report, the bounds of arguments."""

_DEFINE = re.compile(r"define (internal )?(.+?) @(\w+)\((.*)\) nounwind \{$")
_ADDRESS = re.compile(r"  (%\S+) = getelementptr .+?, (?:ptr|<\d+ x ptr>) (%[\w.]+), ")
_SELECT = re.compile(r"  (%\S+) = select (i1 \S+), ptr (%[\w.]+), ptr (%[\w.]+)$")
_PHI = re.compile(r"  (%\S+) = phi ptr (.*)$")
_ALLOCA = re.compile(r"  (%\S+) = alloca (?:\[(\d+) x )?(\w+)\]?, align \d+$")
_SLOT = re.compile(r"  (%\S+) = load ptr, ptr (%[\w.]+), align 8$")
_CALL = re.compile(r"  (?:(%\S+) = )?call (\S+) @(\w+)\((.*)\)$")
_HARMLESS = re.compile(r"  (call void @llvm\.prefetch\.|%\S+ = ptrtoint ptr |;|ret void$)")
_POINTER = re.compile(r"\bptr\b")
_RESULT = "{ ptr, ptr }"
"""The result of a function that returns a pointer: the pointer and its bounds."""


def with_bounds_checks(text: str) -> str:
    """The text of a module with a kernel that checks the bounds of every access.

    Raises UncheckedLine for a pointer whose bounds cannot be known from the text.
    """
    defined = frozenset(re.findall(r"^define .*?@(\w+)\(", text, re.MULTILINE))
    parts: list[str] = []
    for part in text.split("\n\n"):
        lines = part.strip().splitlines()
        parts.append("\n".join(_instrumented(lines, defined)))
    return "\n\n".join([*parts, _functions()])


def _instrumented(lines: Lines, defined: frozenset[str]) -> Lines:
    """The lines of one function, or of declarations."""
    match = _DEFINE.match(lines[0]) if lines else None
    if match is None:
        return [line for line in lines if line not in _declarations()]
    function = _Checked(match, lines, defined)
    return [
        function.head(),
        *(checked_line for line in lines[1:] for checked_line in function.line(line)),
    ]


@cache
def _functions() -> str:
    return Path(__file__).with_name("checks.ll").read_text(encoding="utf-8")


@cache
def _declarations() -> frozenset[str]:
    return frozenset(line for line in _functions().splitlines() if line.startswith("declare "))


class _Checked:
    """A function that is rewritten line by line."""

    def __init__(self, found: re.Match[str], lines: Lines, defined: frozenset[str]) -> None:
        self._is_entry, self._result, self._name = not found[1], found[2], found[3]
        self._parameters = operands(found[4])
        self._pointers = [
            value_of(parameter) for parameter in self._parameters if parameter.startswith("ptr ")
        ]
        self._defined = defined
        addresses = filter(None, map(_ADDRESS.match, lines))
        self._origins = {address[1]: address[2] for address in addresses}
        self._count = 0

    def head(self) -> str:
        """The line that begins it: a function called by the kernel gets bounds of pointers, too."""
        internal, result = "" if self._is_entry else "internal ", self._result
        parameters = [*self._parameters]
        if not self._is_entry:
            parameters += [f"ptr {pointer}.bounds" for pointer in self._pointers]
            result = _RESULT if result == "ptr" else result
        return f"define {internal}{result} @{self._name}({', '.join(parameters)}) nounwind {{"

    def line(self, line: str) -> Lines:
        """The lines that replace one."""
        if line == "entry:":
            return [line, *self._entry()]
        if not _POINTER.search(line) or _HARMLESS.match(line):
            return [line, *self._own_memory(line)]
        for rewrite in (self._derived, self._slot, self._access, self._ret, self._call):
            rewritten = rewrite(line)
            if rewritten is not None:
                return rewritten
        expect(line, False)
        return []

    def _bounds(self, pointer: str) -> str:
        """The name of a pointer's bounds: those of what it was computed from."""
        while pointer in self._origins:
            pointer = self._origins[pointer]
        return f"{pointer}.bounds"

    def _entry(self) -> Lines:
        """The bounds of the kernel's arguments."""
        if not self._pointers:
            return []
        first = self._bounds(self._pointers[0])
        address = f"  {first} = getelementptr i8, ptr %arguments, i64 {-RECORD}"
        return [*([address] if self._is_entry else []), *_owner(first)]

    def _own_memory(self, line: str) -> Lines:
        """The bounds of memory of the function's own."""
        match = _ALLOCA.match(line)
        if match is None:
            return []
        expect(line, bool(self._pointers))
        name, size = match[1], int(match[2] or 1) * nbytes(type_of(match[3]))
        words = (f"{name}.start", str(size), "%own.report", "%own.arguments")
        lines = [
            f"  {name}.bounds = alloca [4 x i64], align 8",
            f"  {name}.start = ptrtoint ptr {name} to i64",
        ]
        for place, word in enumerate(words):
            lines += [
                f"  {name}.word{place} = getelementptr i64, ptr {name}.bounds, i64 {place}",
                f"  store i64 {word}, ptr {name}.word{place}, align 8",
            ]
        return lines

    def _derived(self, line: str) -> Lines | None:
        """A pointer computed from others."""
        if _ADDRESS.match(line):
            return [line]
        if match := _SELECT.match(line):
            a, b = map(self._bounds, match.group(3, 4))
            return [line, f"  {match[1]}.bounds = select {match[2]}, ptr {a}, ptr {b}"]
        if match := _PHI.match(line):
            pairs = re.sub(r"\[(%[\w.]+),", lambda each: f"[{self._bounds(each[1])},", match[2])
            return [line, f"  {match[1]}.bounds = phi ptr {pairs}"]
        return None

    def _slot(self, line: str) -> Lines | None:
        """An argument, whose bounds are in front of the arguments."""
        match = _SLOT.match(line)
        if match is None:
            return None
        name, slot = match[1], match[2]
        expect(line, self._is_entry and self._bounds(slot) == "%arguments.bounds")
        return [
            within(f"{name}.slot", slot, 8, "%arguments.bounds", LOAD),
            f"  {name} = load ptr, ptr {name}.slot, align 8",
            f"  {name}.known = icmp eq ptr {name}.slot, {slot}",
            f"  {name}.at = ptrtoint ptr {slot} to i64",
            f"  {name}.first = ptrtoint ptr %arguments to i64",
            f"  {name}.back = sub i64 {name}.first, {name}.at",
            f"  {name}.records = mul i64 {name}.back, {RECORD // 8}",
            f"  {name}.behind = sub i64 {name}.records, {RECORD}",
            f"  {name}.shift = select i1 {name}.known, i64 {name}.behind, i64 0",
            f"  {name}.bounds = getelementptr i8, ptr %arguments.bounds, i64 {name}.shift",
        ]

    def _access(self, line: str) -> Lines | None:
        self._count += 1
        return checked_access(line, self._count, self._bounds)

    def _ret(self, line: str) -> Lines | None:
        """A function's result that is a pointer."""
        if not line.startswith("  ret ptr "):
            return None
        pointer = line.removeprefix("  ret ptr ")
        return [
            f"  %result.pointer = insertvalue {_RESULT} poison, ptr {pointer}, 0",
            f"  %result.both = insertvalue {_RESULT} %result.pointer, "
            f"ptr {self._bounds(pointer)}, 1",
            f"  ret {_RESULT} %result.both",
        ]

    def _call(self, line: str) -> Lines | None:
        """A call of another function of the module, which gets the bounds of its pointers, too."""
        match = _CALL.match(line)
        if match is None or match[3] not in self._defined:
            return None
        args = operands(match[4])
        pointers = [value_of(arg) for arg in args if arg.startswith("ptr ")]
        listed = ", ".join([*args, *(f"ptr {self._bounds(pointer)}" for pointer in pointers)])
        if match[2] != "ptr":
            assigned = f"{match[1]} = " if match[1] else ""
            return [f"  {assigned}call {match[2]} @{match[3]}({listed})"]
        return [
            f"  {match[1]}.both = call {_RESULT} @{match[3]}({listed})",
            f"  {match[1]} = extractvalue {_RESULT} {match[1]}.both, 0",
            f"  {match[1]}.bounds = extractvalue {_RESULT} {match[1]}.both, 1",
        ]


def _owner(bounds: str) -> Lines:
    """The words that bounds of the function's own memory share with those of its arguments."""
    return [
        f"  %own.report.at = getelementptr i8, ptr {bounds}, i64 16",
        "  %own.report = load i64, ptr %own.report.at, align 8",
        f"  %own.arguments.at = getelementptr i8, ptr {bounds}, i64 24",
        "  %own.arguments = load i64, ptr %own.arguments.at, align 8",
    ]
