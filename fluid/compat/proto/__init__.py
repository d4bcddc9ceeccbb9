"""The messages of saved programs, as scripts of release 1.8 import them: `framework_pb2`.

Those of trainers and profiles are loaded when a script asks for them.
"""

from fluid.compat.proto import framework_pb2

__all__ = ["framework_pb2"]
