"""File systems of checkpoints: `paddle.distributed.fs_wrapper` of release 1.8."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from pathlib import Path

__all__ = ["FS", "LocalFS"]


class FS(ABC):
    """A file system of checkpoints. Scripts may define others."""

    @abstractmethod
    def list_dirs(self, fs_path: str) -> list[str]:
        """The names of the folders in a folder, sorted; empty if it does not exist."""

    @abstractmethod
    def ls_dir(self, fs_path: str) -> list[str]:
        """The names in a folder, sorted."""

    @abstractmethod
    def stat(self, fs_path: str) -> bool:
        """Whether a path exists."""

    @abstractmethod
    def upload(self, local_path: str, fs_path: str) -> None:
        """Copy a local folder to this file system."""

    @abstractmethod
    def download(self, fs_path: str, local_path: str) -> None:
        """Copy a folder of this file system to a local one."""

    @abstractmethod
    def mkdir(self, fs_path: str) -> None:
        """Create a folder and its parents."""

    @abstractmethod
    def mv(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Rename a path."""

    @abstractmethod
    def rmr(self, fs_path: str) -> None:
        """Remove a folder recursively."""

    @abstractmethod
    def rm(self, fs_path: str) -> None:
        """Remove a file."""

    @abstractmethod
    def delete(self, fs_path: str) -> None:
        """Remove a file or a folder, if it exists."""

    @abstractmethod
    def need_upload_download(self) -> bool:
        """Whether files are written to a local folder first, then copied."""


class LocalFS(FS):
    """The file system of this machine, or one that is mounted here."""

    def list_dirs(self, fs_path: str) -> list[str]:
        """The names of the folders in a folder, sorted; empty if it does not exist."""
        if not self.stat(fs_path):
            return []
        return sorted(entry.name for entry in Path(fs_path).iterdir() if entry.is_dir())

    def ls_dir(self, fs_path: str) -> list[str]:
        """The names in a folder, sorted. Raises FileNotFoundError."""
        return sorted(entry.name for entry in Path(fs_path).iterdir())

    def stat(self, fs_path: str) -> bool:
        """Whether a path exists."""
        return Path(fs_path).exists()

    def upload(self, local_path: str, fs_path: str) -> None:
        """Copy a folder. Raises FileExistsError if the target exists."""
        shutil.copytree(local_path, fs_path)

    def download(self, fs_path: str, local_path: str) -> None:
        """Copy a folder. Raises FileExistsError if the target exists."""
        shutil.copytree(fs_path, local_path)

    def mkdir(self, fs_path: str) -> None:
        """Create a folder and its parents. Raises AssertionError if a file has that name."""
        if Path(fs_path).is_file():
            raise AssertionError(f"{fs_path} is already a file")
        Path(fs_path).mkdir(parents=True, exist_ok=True)

    def mv(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Rename a path. Raises OSError as `os.rename` does."""
        Path(fs_src_path).rename(fs_dst_path)

    def rmr(self, fs_path: str) -> None:
        """Remove a folder recursively. Raises OSError."""
        shutil.rmtree(fs_path)

    def rm(self, fs_path: str) -> None:
        """Remove a file. Raises FileNotFoundError."""
        Path(fs_path).unlink()

    def delete(self, fs_path: str) -> None:
        """Remove a file or a folder, if it exists; links are not followed."""
        path = Path(fs_path)
        if path.is_dir() and not path.is_symlink():
            self.rmr(fs_path)
        else:
            path.unlink(missing_ok=True)

    def need_upload_download(self) -> bool:
        """False: files are written directly."""
        return False
