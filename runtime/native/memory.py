"""Loads object files into executable memory.

Memory is first written, then made executable; it is never both. Instructions and constants are in
separate pages, of which only the former may be executed.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from compiler.support.dataclass import dataclass
from runtime.native import build
from runtime.native.elf import ARM, BadObject, Object, Relocation, Section, parse
from runtime.native.relocate import STUB_BYTES, apply, stub

_PAGE = mmap.PAGESIZE
_READ, _EXECUTE = 1, 4
_MOST = 1 << 30
"""Most bytes of code in one region."""
_LIBRARY = ("memcpy", "memmove", "memset")
"""Functions of the C library that LLVM may call."""


@dataclass(frozen=True)
class Code:
    """Machine code in memory: addresses of its functions by name; freed with this object."""

    addresses: Mapping[str, int]
    memory: object


def load(objects: Mapping[str, bytes], functions: Mapping[str, Sequence[str]]) -> Code:
    """Load object files by name, and find the functions that each of them defines.

    Raises BadObject if one is malformed or does not define a function.
    """
    parsed = {name: parse(data) for name, data in objects.items()}
    if not _may_load(parsed.values()):
        names = [function for addresses in functions.values() for function in addresses]
        return Code(*build.link(list(objects.values()), names))
    return _Loader(list(parsed.values())).load([functions[name] for name in parsed])


def _may_load(objects: Iterable[Object]) -> bool:
    """Whether memory can be made executable here; AArch64 needs its caches synchronised, too."""
    if sys.platform != "linux" or _c_library() is None:
        return False
    return all(obj.architecture != ARM or _clear_cache() is not None for obj in objects)


@cache
def _clear_cache() -> Any:
    """The function of the C compiler's library that synchronises the caches, or None."""
    try:
        return ctypes.CDLL("libgcc_s.so.1").__clear_cache
    except (OSError, AttributeError):
        return None


Place = tuple[int, int]
"""An object's number and a section of it."""


class _Loader:
    """Places sections of objects in one region, applies relocations, and protects it."""

    def __init__(self, objects: Sequence[Object]) -> None:
        self._objects = objects
        self._offsets: dict[Place, int] = {}
        self._stubs = dict.fromkeys(self._external())
        code_end = self._arrange(0, executable=True)
        self._stub_start = -(-code_end // STUB_BYTES) * STUB_BYTES
        self._code_size = _whole_pages(self._stub_start + STUB_BYTES * len(self._stubs))
        self._size = _whole_pages(self._arrange(self._code_size, executable=False))

    def load(self, functions: Sequence[Sequence[str]]) -> Code:
        """Load the objects; returns the addresses of the functions of each."""
        memory = mmap.mmap(-1, max(self._size, _PAGE), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        memory[: self._size] = bytes(self._image(base))
        _protect(base, self._code_size, _READ | _EXECUTE)
        _protect(base + self._code_size, self._size - self._code_size, _READ)
        if any(obj.architecture == ARM for obj in self._objects):
            _clear_cache()(ctypes.c_void_p(base), ctypes.c_void_p(base + self._code_size))
        offsets = {
            name: self._function(number, name)
            for number, names in enumerate(functions)
            for name in names
        }
        return Code(
            {name: base + offset for name, offset in offsets.items()}, _Memory(memory, base)
        )

    def _sections(self) -> Iterator[tuple[Place, Section]]:
        for number, obj in enumerate(self._objects):
            for section, loaded in obj.sections.items():
                yield (number, section), loaded

    def _external(self) -> Iterator[str]:
        """Yield the names that relocations refer to and no object defines."""
        for obj in self._objects:
            for relocation in obj.relocations:
                symbol = obj.symbols[relocation.symbol]
                if symbol.section is None:
                    yield symbol.name

    def _arrange(self, start: int, executable: bool) -> int:
        """Choose offsets of sections from `start`; returns their end."""
        for place, section in self._sections():
            if section.executable == executable:
                start = -(-start // section.align) * section.align
                self._offsets[place] = start
                start += len(section.data)
        if start > _MOST:
            raise BadObject(f"{start} bytes of machine code are too many")
        return start

    def _image(self, base: int) -> bytearray:
        """The contents of the region, which begins at address `base`."""
        image = bytearray(self._size)
        stubs = self._place_stubs(image)
        for number, obj in enumerate(self._objects):
            filled = {place: bytearray(loaded.data) for place, loaded in obj.sections.items()}
            for relocation in obj.relocations:
                target = base + relocation.addend + self._target(number, relocation, stubs)
                code = filled[relocation.section]
                place = base + self._offsets[number, relocation.section] + relocation.offset
                apply(obj.architecture, relocation.kind, code, relocation.offset, target, place)
            for section, code in filled.items():
                start = self._offsets[number, section]
                image[start : start + len(code)] = code
        return image

    def _target(self, number: int, relocation: Relocation, stubs: Mapping[str, int]) -> int:
        """Return the offset of the symbol that a relocation refers to."""
        symbol = self._objects[number].symbols[relocation.symbol]
        if symbol.section is None:
            return stubs[symbol.name]
        return self._offsets[number, symbol.section] + symbol.offset

    def _place_stubs(self, image: bytearray) -> dict[str, int]:
        """Write a jump to each function of the C library; returns their offsets."""
        offsets: dict[str, int] = {}
        for nth, name in enumerate(self._stubs):
            start = self._stub_start + nth * STUB_BYTES
            code = stub(self._objects[0].architecture, _library_function(name))
            image[start : start + STUB_BYTES] = code
            offsets[name] = start
        return offsets

    def _function(self, number: int, name: str) -> int:
        """Return the offset of a function; BadObject if its object does not define it."""
        for symbol in self._objects[number].symbols:
            if symbol.name == name and symbol.is_entry and symbol.section is not None:
                return self._offsets[number, symbol.section] + symbol.offset
        raise BadObject(f"an object file does not define {name}")


@dataclass(frozen=True)
class _Memory:
    """A mapped region; unmapped with this object."""

    memory: mmap.mmap
    base: int


def _protect(start: int, size: int, mode: int) -> None:
    """Change the protection of pages; OSError if the system does not allow it."""
    if not size:
        return
    library = _c_library()
    if library.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(size), mode):
        number = ctypes.get_errno()
        raise OSError(number, "memory cannot be made executable; does a policy forbid it?")


@cache
def _c_library() -> Any:
    """The C library, or None where programs cannot name it."""
    try:
        return ctypes.CDLL(None, use_errno=True)
    except (OSError, TypeError):
        return None


def _library_function(name: str) -> int:
    """The address of a function of the C library; BadObject if it is not one of those allowed."""
    if name not in _LIBRARY:
        raise BadObject(f"an object file calls {name!r}, which kernels may not")
    return ctypes.cast(getattr(_c_library(), name), ctypes.c_void_p).value or 0


def _whole_pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
