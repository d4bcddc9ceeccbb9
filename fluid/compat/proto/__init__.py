"""The messages of saved programs, as scripts of release 1.8 import them: `framework_pb2`."""

from fluid.compat.proto import framework_pb2

__all__ = ["framework_pb2"]
