"""Flags of the reference: `fluid.set_flags` and FLAGS_* environment variables.

Most of them tune the reference's allocators and threads, which this runtime does not have: their
values are stored and have no effect. FLAGS_check_nan_inf stops a run at the first op that computes
NaN or infinity. `CPU_NUM`, the number of CPU devices, is read here too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from types import NoneType
from typing import Any

from compiler.errors import did_you_mean
from fluid.recording.arguments import typed

__all__ = ["Flags", "cpu_count", "get_flags", "set_flags"]

DEFAULTS: dict[str, bool | int | float | str] = {
    "FLAGS_allocator_strategy": "auto_growth",
    "FLAGS_benchmark": False,
    "FLAGS_check_nan_inf": False,
    "FLAGS_cpu_deterministic": False,
    "FLAGS_cudnn_batchnorm_spatial_persistent": False,
    "FLAGS_cudnn_deterministic": False,
    "FLAGS_cudnn_exhaustive_search": False,
    "FLAGS_eager_delete_tensor_gb": 0.0,
    "FLAGS_enable_parallel_graph": False,
    "FLAGS_enable_rpc_profiler": False,
    "FLAGS_fraction_of_cpu_memory_to_use": 1.0,
    "FLAGS_fraction_of_gpu_memory_to_use": 0.92,
    "FLAGS_fuse_parameter_groups_size": 1,
    "FLAGS_fuse_parameter_memory_size": -1.0,
    "FLAGS_init_allocated_mem": False,
    "FLAGS_initial_cpu_memory_in_mb": 500,
    "FLAGS_inner_op_parallelism": 0,
    "FLAGS_memory_fraction_of_eager_deletion": 1.0,
    "FLAGS_multiple_of_cupti_buffer_size": 1,
    "FLAGS_paddle_num_threads": 1,
    "FLAGS_pe_profile_fname": "",
    "FLAGS_print_sub_graph_dir": "",
    "FLAGS_reader_queue_speed_test_mode": False,
    "FLAGS_sync_nccl_allreduce": True,
    "FLAGS_tracer_profile_fname": "xxgperf",
    "FLAGS_use_pinned_memory": True,
    "FLAGS_use_system_allocator": False,
}
"""The flags of release 1.8.5 for CPU and GPU, with their defaults."""

_BOOLS = dict.fromkeys(["1", "t", "true", "y", "yes"], True) | dict.fromkeys(
    ["0", "f", "false", "n", "no"], False
)


def from_env(environ: Mapping[str, str] = os.environ) -> dict[str, bool | int | float | str]:
    """The flags with values from environment variables of the same names.

    >>> from_env({"FLAGS_check_nan_inf": "true"})["FLAGS_check_nan_inf"]
    True
    """
    from_environ = {name: _parsed(name, environ[name]) for name in DEFAULTS if name in environ}
    return DEFAULTS | from_environ


def _parsed(name: str, text: str) -> bool | int | float | str:
    """Parse a flag's value; raises ValueError with the name of the variable."""
    kind = type(DEFAULTS[name])
    if kind is bool and text.lower() in _BOOLS:
        return _BOOLS[text.lower()]
    try:
        return kind(text if kind is not bool else int(text))
    except ValueError:
        message = f"the environment variable {name} is {text!r}, expected a {kind.__name__}"
        raise ValueError(message) from None


_values = from_env()


def checks_numbers() -> bool:
    """Whether FLAGS_check_nan_inf is set."""
    return bool(_values["FLAGS_check_nan_inf"])


@typed
def set_flags(flags: Mapping[str, Any]) -> None:
    """Set flags, all of them or, on an error, none; values are converted to the flag's type.

    Raises TypeError for no dict and for a value of another type, ValueError for an unknown flag.

    >>> set_flags({"FLAGS_eager_delete_tensor_gb": 1})
    >>> get_flags("FLAGS_eager_delete_tensor_gb")
    {'FLAGS_eager_delete_tensor_gb': 1.0}
    >>> set_flags({"FLAGS_eager_delete_tensor_gb": 0.0})
    """
    given = {name: _as_flag(_known(name, "set"), value) for name, value in flags.items()}
    _values.update(given)


@typed
def get_flags(flags: str | list[str] | tuple[str, ...]) -> dict[str, Any]:
    """The values of flags by name; ValueError for an unknown one.

    >>> get_flags(["FLAGS_benchmark", "FLAGS_paddle_num_threads"])
    {'FLAGS_benchmark': False, 'FLAGS_paddle_num_threads': 1}
    """
    names = [flags] if isinstance(flags, str) else flags
    return {name: _values[_known(name, "get")] for name in names}


class Flags(MutableMapping[str, Any]):
    """All flags as a mapping; assignment calls `set_flags`, and flags cannot be removed."""

    def __getitem__(self, name: str) -> Any:
        return _values[_known(name, "get")]

    def __setitem__(self, name: str, value: Any) -> None:
        set_flags({name: value})

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"{name} cannot be removed: flags have defaults")

    def __iter__(self) -> Iterator[str]:
        return iter(_values)

    def __len__(self) -> int:
        return len(_values)


def _known(name: Any, verb: str) -> str:
    if name not in DEFAULTS:
        hint = did_you_mean(str(name), DEFAULTS)
        raise ValueError(
            f"Flag {name} cannot {verb} its value through this function; {hint}".rstrip("; ")
        )
    return name


def _as_flag(name: str, value: Any) -> bool | int | float | str:
    kind = type(DEFAULTS[name])
    if kind is str and isinstance(value, str):
        return value
    if kind is bool and isinstance(value, int | float | NoneType):
        return bool(value)
    if kind is str or isinstance(value, str) or kind(value) != value:
        raise TypeError(f"{name} takes a value of type {kind.__name__}, but received {value!r}")
    return kind(value)


def cpu_count(environ: MutableMapping[str, str] = os.environ) -> int:
    """Number of CPU devices of a data-parallel run: `CPU_NUM`, which is set to 1 if missing.

    >>> cpu_count({"CPU_NUM": "4"})
    4
    """
    if "CPU_NUM" not in environ:
        environ["CPU_NUM"] = "1"
        print(NO_CPU_NUM, file=sys.stderr)
    number = environ["CPU_NUM"]
    if not number.isdecimal() or int(number) < 1:
        raise ValueError(f"the environment variable CPU_NUM is {number!r}, not a number from 1")
    return int(number)


NO_CPU_NUM = (
    "CPU_NUM is not set in the environment: it is set to 1, so that the program runs on one CPU "
    "device; for 4 devices run `export CPU_NUM=4` first"
)
