"""`Strategy`: what is called while a model is compressed, for subclasses."""

from __future__ import annotations

from fluid.contrib.slim.strategies.context import Context

__all__ = ["Strategy"]


class Strategy:
    """Does nothing; subclasses act from `start_epoch` to `end_epoch`."""

    def __init__(self, start_epoch: int = 0, end_epoch: int = 0) -> None:
        self.start_epoch, self.end_epoch = start_epoch, end_epoch

    def on_compression_begin(self, context: Context) -> None:
        """Called before the first epoch."""

    def on_epoch_begin(self, context: Context) -> None:
        """Called before each epoch."""

    def on_batch_begin(self, context: Context) -> None:
        """Called before each batch."""

    def on_batch_end(self, context: Context) -> None:
        """Called after each batch."""

    def on_epoch_end(self, context: Context) -> None:
        """Called after each epoch."""

    def on_compression_end(self, context: Context) -> None:
        """Called after the last epoch."""

    def saved_state(self) -> dict[str, object]:
        """Return what a checkpoint keeps of it: numbers, strings, and lists of them."""
        return {}

    def restore_from_checkpoint(self, context: Context, state: dict[str, object]) -> None:
        """Continue from what `saved_state` returned; the next epoch is `context.epoch_id`."""
