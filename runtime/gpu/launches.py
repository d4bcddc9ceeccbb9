"""Kernels compiled to machine code, called as generated modules call them.

A module calls `kernel[(grid,)](x, y, N, LANES=1024, INDEX=INDEX)`. Arguments known when a kernel is
compiled are in its code; they are only compared with those of the call. The others are packed as
the manifest describes: addresses of tensors and numbers, eight bytes apart, and a list of their
addresses. Triton's compiler appends addresses of scratch memory, which these kernels do not need.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from compiler.support.dataclass import dataclass
from runtime.errors import PlaceError
from runtime.gpu.drivers import Driver

_SLOT = 8
_TOGETHER = "launch_cooperative_grid"
"""The constant of kernels whose programs wait for each other."""
_MOST = 1 << 20
_LAYOUT = {
    "i1": "?7x", "i8": "b7x", "u8": "B7x", "i16": "h6x", "u16": "H6x", "i32": "i4x", "u32": "I4x",
    "i64": "q", "u64": "Q", "fp32": "f4x", "fp64": "d",
}  # fmt: skip
"""The struct format of a parameter of each type, eight bytes each."""


@dataclass(frozen=True)
class ManifestRow:
    """A kernel's row of a manifest; see `compiler.codegen.ahead.manifest`."""

    kernel: str
    gpu: str
    file: str
    entry: str
    parameters: tuple[str, ...]
    nothing: int
    constants: Mapping[str, object]
    threads: int
    shared: int

    @staticmethod
    def of(row: Mapping[str, Any]) -> ManifestRow:
        """Parse a row from plain data. Raises KeyError, TypeError or ValueError if it is
        malformed.
        """
        parsed = ManifestRow(
            row["kernel"], row["gpu"], row["file"], row["entry"], tuple(row["parameters"]),
            row["nothing"], dict(row["constants"]), row["threads"], row["shared"],
        )  # fmt: skip
        words: list[object] = [
            parsed.kernel,
            parsed.gpu,
            parsed.file,
            parsed.entry,
            *parsed.parameters,
        ]
        if not all(isinstance(word, str) for word in words):
            raise TypeError(f"not a list of names: {words}")
        numbers = (parsed.nothing, parsed.threads, parsed.shared)
        if not all(type(number) is int and 0 <= number <= _MOST for number in numbers):
            raise ValueError(f"not valid kernel numbers: {numbers}")
        if any(
            _plain(parameter) not in _LAYOUT
            for parameter in parsed.parameters
            if parameter[:1] != "*"
        ):
            raise ValueError(f"not a list of parameters: {parsed.parameters}")
        return parsed


class Launcher:
    """A kernel of one device. `stream` returns the current stream.

    `variants` are other ones of the same name, compiled with other constants.
    """

    def __init__(
        self, row: ManifestRow, driver: Driver, code: bytes, stream: Callable[[], int]
    ) -> None:
        self.row = row
        self._driver = driver
        self._stream = stream
        self._function = driver.load(code, row.entry, row.shared)
        layout = "".join(map(_layout, row.parameters)) + "Q" * row.nothing
        self._layout = struct.Struct(f"<{layout}")
        count = len(row.parameters) + row.nothing
        self._addresses = ctypes.c_void_p * count
        self._nothing = (0,) * row.nothing
        self.variants: list[Launcher] = []
        self._together = bool(row.constants.get(_TOGETHER))
        self._aligned = [i for i, kind in enumerate(row.parameters) if kind.endswith(":16")]

    @property
    def drivers(self) -> list[Driver]:
        """The drivers that launch it and its variants."""
        return [launcher._driver for launcher in (self, *self.variants)]

    def __getitem__(self, grid: Sequence[int]) -> Callable[..., None]:
        return partial(self._launch, grid)

    def _launch(self, grid: Sequence[int], *arguments: Any, **constants: object) -> None:
        if constants != self.row.constants:
            self._variant(constants)._launch(grid, *arguments, **constants)
            return
        if 0 in grid:
            return
        buffer = ctypes.create_string_buffer(self._packed(arguments), self._layout.size)
        start = ctypes.addressof(buffer)
        addresses = self._addresses(*range(start, start + self._layout.size, _SLOT))
        row = self.row
        if self._driver.announce is not None:
            self._driver.announce(_tensors(arguments))
        size, stream = (grid, row.threads, row.shared), self._stream()
        self._driver.launch(self._function, *size, stream, addresses, self._together)

    def _packed(self, arguments: Sequence[Any]) -> bytes:
        """Pack addresses and numbers as the code expects them."""
        values = [
            argument if isinstance(argument, int) else argument.data_ptr() for argument in arguments
        ]
        for index in self._aligned:
            if values[index] % 16:
                raise PlaceError(
                    f"{self.row.kernel}: argument {index} is {values[index]}, not a multiple of 16"
                )
        try:
            return self._layout.pack(*values, *self._nothing)
        except struct.error as error:
            raise PlaceError(f"{self.row.kernel}: its arguments do not fit: {error}") from error

    def _variant(self, constants: Mapping[str, object]) -> Launcher:
        """The variant compiled with these constants; PlaceError if there is none."""
        for variant in self.variants:
            if variant.row.constants == constants:
                return variant
        raise self._mismatch(constants)

    def _mismatch(self, constants: Mapping[str, object]) -> PlaceError:
        built = dict(self.row.constants)
        if constants.get("INDEX") == "int64" and built.get("INDEX") == "int32":
            hint = "a value has 2^31 elements or more: compile the package with --large"
        else:
            hint = f"it was compiled with {built}"
        return PlaceError(f"{self.row.kernel} is launched with {dict(constants)}", hint=hint)


def by_name(launchers: Iterable[Launcher]) -> dict[str, Launcher]:
    """The launcher of each kernel, which has the others of the same name as variants."""
    by_kernel: dict[str, Launcher] = {}
    for launcher in launchers:
        first = by_kernel.setdefault(launcher.row.kernel, launcher)
        if first is not launcher:
            first.variants.append(launcher)
    return by_kernel


def _tensors(arguments: Sequence[Any]) -> list[tuple[str, int, int]]:
    """The number, address and bytes of each argument that is a tensor."""
    return [
        (f"argument {index}", argument.data_ptr(), argument.numel() * argument.element_size())
        for index, argument in enumerate(arguments)
        if not isinstance(argument, int)
    ]


def _plain(kind: str) -> str:
    return kind.partition(":")[0]


def _layout(kind: str) -> str:
    return "Q" if kind.startswith("*") else _LAYOUT[_plain(kind)]
