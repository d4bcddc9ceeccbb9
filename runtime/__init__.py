"""Runs a Module: places, tensors and scopes, the arena, the loader and the executor's core."""

from runtime.device import CPUPlace, CUDAPinnedPlace, CUDAPlace, Place
from runtime.errors import FeedError, LodError, NotInitialized, PlaceError
from runtime.loader import Counters, Executable, MemoryReport, load
from runtime.tensors.lod_tensor import LoDTensor, create_lod_tensor
from runtime.tensors.scope import Scope

__all__ = [
    "load",
    "Executable",
    "Counters",
    "MemoryReport",
    "Scope",
    "LoDTensor",
    "create_lod_tensor",
    "CPUPlace",
    "CUDAPlace",
    "CUDAPinnedPlace",
    "Place",
    "FeedError",
    "LodError",
    "NotInitialized",
    "PlaceError",
]
