"""Flags of the reference: `fluid.set_flags` and FLAGS_* environment variables.

Most of them tune the reference's allocators and threads, which this runtime does not have: their
values are stored and have no effect. FLAGS_check_nan_inf stops a run at the first op that computes
NaN or infinity. `CPU_NUM`, the number of CPU devices, is read here too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache
from types import NoneType
from typing import TypeAlias, cast

from compiler.errors import CompileError, did_you_mean
from compiler.support.settings.paddle import CPU_NUM, FLAGS, FLAGS_check_nan_inf
from compiler.support.settings.setting import Environ, export
from fluid.recording.arguments import typed

__all__ = ["Flags", "cpu_count", "get_flags", "set_flags"]

FlagValue: TypeAlias = bool | int | float | str

DEFAULTS: dict[str, FlagValue] = {each.name: each.default for each in FLAGS}
"""The flags of release 1.8.5 for CPU and GPU, with their defaults."""


_FIXED = dict.fromkeys(
    ["FLAGS_free_idle_chunk", "FLAGS_free_when_no_cache_hit", "FLAGS_use_mkldnn"], False
)
"""Flags that are only read, through the mapping of all flags."""


def from_env(environ: Environ = None) -> dict[str, FlagValue]:
    """The flags with values from environment variables of the same names.

    >>> from_env({"FLAGS_check_nan_inf": "true"})["FLAGS_check_nan_inf"]
    True
    """
    return {each.name: each.read(environ) for each in FLAGS}


_values = cache(from_env)
"""The values of all flags: those of the environment when the first is used, unless set since."""


def checks_numbers() -> bool:
    """Whether FLAGS_check_nan_inf is set."""
    return bool(_values()[FLAGS_check_nan_inf.name])


@typed
def set_flags(flags: Mapping[str, object]) -> None:
    """Set flags, all of them or, on an error, none; values are converted to the flag's type.

    Raises TypeError for no dict and for a value of another type, ValueError for an unknown flag.

    >>> set_flags({"FLAGS_eager_delete_tensor_gb": 1})
    >>> get_flags("FLAGS_eager_delete_tensor_gb")
    {'FLAGS_eager_delete_tensor_gb': 1.0}
    >>> set_flags({"FLAGS_eager_delete_tensor_gb": 0.0})
    """
    converted = {name: _as_flag(_known(name, "set"), value) for name, value in flags.items()}
    _values().update(converted)


@typed
def get_flags(flags: str | list[str] | tuple[str, ...]) -> dict[str, FlagValue]:
    """The values of flags by name; ValueError for an unknown one.

    >>> get_flags(["FLAGS_benchmark", "FLAGS_paddle_num_threads"])
    {'FLAGS_benchmark': False, 'FLAGS_paddle_num_threads': 1}
    """
    names = [flags] if isinstance(flags, str) else flags
    return {name: _values()[_known(name, "get")] for name in names}


class Flags(MutableMapping[str, FlagValue]):
    """All flags as a mapping; assignment calls `set_flags`, and flags cannot be removed.

    Some flags can only be read. CompileError for an unknown flag and for those.
    """

    def __getitem__(self, name: str) -> FlagValue:
        return _FIXED[name] if name in _FIXED else _values()[_known(name, "get")]

    def __contains__(self, name: object) -> bool:
        return name in DEFAULTS or name in _FIXED

    def get(self, name: str, default: object = None) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The value of a flag, or `default` if there is no such flag."""
        return self[name] if self.__contains__(name) else default

    def is_public(self, name: str) -> bool:
        """Whether `set_flags` may set a flag."""
        return name in DEFAULTS

    def __setitem__(self, name: str, value: FlagValue) -> None:
        if name in _FIXED:
            raise CompileError(f"{name} is not writable")
        set_flags({name: value})

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"{name} cannot be removed: flags have defaults")

    def __iter__(self) -> Iterator[str]:
        return iter([*_values(), *_FIXED])

    def __len__(self) -> int:
        return len(_values()) + len(_FIXED)


def _known(name: str, verb: str) -> str:
    if name not in DEFAULTS:
        hint = did_you_mean(str(name), DEFAULTS)
        raise CompileError(
            f"Flag {name} cannot {verb} its value through this function; {hint}".rstrip("; ")
        )
    return name


def _as_flag(name: str, value: object) -> FlagValue:
    kind = type(DEFAULTS[name])
    if kind is str and isinstance(value, str):
        return value
    if kind is bool and isinstance(value, int | float | NoneType):
        return bool(value)
    number = cast(float, value)
    if kind is str or isinstance(value, str) or kind(number) != number:
        raise TypeError(f"{name} takes a value of type {kind.__name__}, but received {value!r}")
    return kind(number)


def cpu_count() -> int:
    """Number of CPU devices of a data-parallel run: `CPU_NUM`, which is set to 1 if missing."""
    number = CPU_NUM.read()
    if number is None:
        export({CPU_NUM.name: "1"})
        print(NO_CPU_NUM, file=sys.stderr)
    return number or 1


NO_CPU_NUM = (
    "CPU_NUM is not set in the environment: it is set to 1, so that the program runs on one CPU "
    "device; for 4 devices run `export CPU_NUM=4` first"
)
