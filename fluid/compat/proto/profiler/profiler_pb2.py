"""Messages of a profile: events on a time line, in nanoseconds."""

from __future__ import annotations

from compiler.ir.model_format.schema import declare
from fluid.compat.proto.messages import EnumType, ProtoMessage

__all__ = [
    "Event", "MemCopy", "MemEvent", "Profile",
]  # fmt: skip

_PACKAGE = "paddle.platform.proto"
declare("""
MemCopy
    1 optional uint64 bytes
enum Event.EventType CPU=0 GPUKernel=1
Event
    1 optional string name
    2 optional uint64 start_ns
    3 optional uint64 end_ns
    5 optional int64 device_id
    6 optional int64 sub_device_id
    7 optional MemCopy memcopy
    8 optional Event.EventType type
    9 optional string detail_info
enum MemEvent.Place CUDAPlace=0 CPUPlace=1 CUDAPinnedPlace=2
MemEvent
    1 optional uint64 start_ns
    2 optional uint64 end_ns
    3 optional uint64 bytes
    4 optional MemEvent.Place place
    5 optional uint64 thread_id
    6 optional uint32 device_id
    7 optional string alloc_in
    8 optional string free_in
Profile
    1 repeated Event events
    2 optional uint64 start_ns
    3 optional uint64 end_ns
    4 repeated MemEvent mem_events
""", _PACKAGE)  # fmt: skip


class MemCopy(ProtoMessage, package=_PACKAGE):
    """The bytes that were copied."""


class Event(ProtoMessage, package=_PACKAGE):
    """An interval of a thread or a stream."""

    EventType = EnumType(f"{_PACKAGE}.Event.EventType")


class MemEvent(ProtoMessage, package=_PACKAGE):
    """An allocation and its release."""

    Place = EnumType(f"{_PACKAGE}.MemEvent.Place")


class Profile(ProtoMessage, package=_PACKAGE):
    """All events of a run."""
