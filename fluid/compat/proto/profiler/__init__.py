"""Messages of profiles, as scripts of release 1.8 import them: `profiler_pb2`."""

from fluid.compat.proto.profiler import profiler_pb2

__all__ = ["profiler_pb2"]
