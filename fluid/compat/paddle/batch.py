"""`paddle.batch`: a reader of batches made of a reader of samples."""

from fluid.reading.decorators import batch

__all__ = ["batch"]
