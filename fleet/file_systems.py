"""File systems of checkpoints: `paddle.distributed.fs_wrapper` of release 1.8."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from pathlib import Path, PurePosixPath

from fluid.reading.hadoop import HadoopShell

__all__ = ["BDFS", "FS", "LocalFS"]


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


class BDFS(FS):
    """A Hadoop file system by the command `hadoop fs`. Commands that fail are logged.

    `time_out` and `sleep_inter`, in milliseconds, have no effect.
    """

    def __init__(
        self,
        hdfs_name: str,
        hdfs_ugi: str,
        time_out: int = 20 * 60 * 1000,
        sleep_inter: int = 1000,
    ) -> None:
        settings = {"fs.default.name": hdfs_name, "hadoop.job.ugi": hdfs_ugi}
        self._shell = HadoopShell(None, settings)

    def list_dirs(self, fs_path: str) -> list[str]:
        """The names of the folders in a folder; empty if it does not exist."""
        return self.entry_names(fs_path)[0] if self.stat(fs_path) else []

    def ls_dir(self, fs_path: str) -> list[str]:
        """The names in a folder, folders first."""
        folders, files = self.entry_names(fs_path)
        return folders + files

    def entry_names(self, fs_path: str) -> tuple[list[str], list[str]]:
        """The names of the folders and of the files in a folder."""
        folders, files = list[str](), list[str]()
        for entry in self._shell.entries(fs_path):
            (folders if entry.is_folder else files).append(PurePosixPath(entry.path).name)
        return folders, files

    def is_dir(self, fs_path: str) -> bool:
        """Whether a path is a folder."""
        return self._shell.holds("-d", fs_path)

    def stat(self, fs_path: str) -> bool:
        """Whether a path exists."""
        return self._shell.holds("-e", fs_path)

    def upload(self, local_path: str, fs_path: str) -> None:
        """Copy a local file or folder to this file system."""
        self._shell.run("-put", local_path, fs_path)

    def download(self, fs_path: str, local_path: str) -> None:
        """Copy a file or folder of this file system into a local folder."""
        self._shell.run("-get", fs_path, f"{local_path}/")

    def mkdir(self, fs_path: str) -> None:
        """Create a folder, unless the path exists."""
        if not self.stat(fs_path):
            self._shell.run("-mkdir", fs_path)

    def mv(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Rename a path."""
        self._shell.run("-mv", fs_src_path, fs_dst_path)

    def rmr(self, fs_path: str) -> None:
        """Remove a folder recursively, if it exists."""
        if self.stat(fs_path):
            self._shell.run("-rmr", fs_path)

    def rm(self, fs_path: str) -> None:
        """Remove a file, if it exists."""
        if self.stat(fs_path):
            self._shell.run("-rm", fs_path)

    def delete(self, fs_path: str) -> None:
        """Remove a file or a folder, if it exists."""
        if self.is_dir(fs_path):
            self.rmr(fs_path)
        else:
            self.rm(fs_path)

    def need_upload_download(self) -> bool:
        """True: files are written to a local folder first."""
        return True
