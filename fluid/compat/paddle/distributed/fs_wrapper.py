"""File systems of checkpoints, `paddle.distributed.fs_wrapper` of release 1.8."""

from fleet.file_systems import BDFS, FS, LocalFS

__all__ = ["BDFS", "FS", "LocalFS"]
