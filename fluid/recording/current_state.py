"""Current state during recording; `fluid.framework` has the private names that scripts import."""

from __future__ import annotations

from typing import Protocol

from fluid import unique_name
from fluid.running.flags import cpu_count
from fluid.running.places import selected_gpus

__all__ = [
    "cpu_num",
    "cuda_ids",
    "debug_string",
    "generate_control_dev_var_name",
]


class ProtobufMessage(Protocol):
    """A protobuf message."""

    def FindInitializationErrors(self) -> list[str]:
        """The names of required fields that are not set."""
        ...

    def IsInitialized(self) -> bool:
        """Whether all required fields are set."""
        ...


def cpu_num() -> int:
    """How many CPU devices data-parallel runs have."""
    return cpu_count()


def cuda_ids() -> list[int]:
    """The numbers of the GPUs that a run uses by default."""
    return selected_gpus()


def generate_control_dev_var_name() -> str:
    """A new name for a variable that only orders ops."""
    return unique_name.generate("__control_var@")


def debug_string(proto: ProtobufMessage, throw_on_error: bool = True) -> str:
    """A message as text. ValueError where a required field is missing and that is an error."""
    missing = proto.FindInitializationErrors() if not proto.IsInitialized() else []
    if throw_on_error and missing:
        raise ValueError(f"{', '.join(missing)} are not initialized in {type(proto).__name__}")
    return str(proto)
