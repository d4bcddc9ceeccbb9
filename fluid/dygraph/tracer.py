"""The tracer of eager mode, which is `fluid.eager.tracers.Tracer`."""

from fluid.eager.tracers import Tracer

__all__ = ["Tracer"]
