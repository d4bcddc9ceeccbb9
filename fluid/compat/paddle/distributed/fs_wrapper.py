"""File systems of checkpoints, `paddle.distributed.fs_wrapper` of release 1.8."""

from fleet.file_systems import FS, LocalFS

__all__ = ["FS", "LocalFS"]
