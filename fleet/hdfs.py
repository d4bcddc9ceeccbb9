"""`HDFSClient` of fleets: files and folders to and from Hadoop, by several threads.

Source: `incubate/fleet/utils/hdfs.py` of release 1.8.5.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from fluid.reading.hadoop import HadoopClient, logger

__all__ = ["HDFSClient", "get_logger"]


def get_logger(name: str, level: int, fmt: str) -> logging.Logger:
    """A logger that writes to `hdfs.log` in the current folder."""
    created = logging.getLogger(name)
    created.setLevel(level)
    handler = logging.FileHandler("hdfs.log", mode="w")
    handler.setFormatter(logging.Formatter(fmt=fmt))
    created.addHandler(handler)
    return created


class HDFSClient(HadoopClient):
    """A client of Hadoop's files by `hadoop_home/bin/hadoop fs`.

    `configs` are its settings: "fs.default.name" and "hadoop.job.ugi". Methods return False and log
    where a command fails.
    """

    def cat(self, hdfs_path: str) -> str:
        """The text of a file, stripped; empty if it cannot be read."""
        if not self.is_file(hdfs_path):
            return ""
        has_succeeded, text = self.shell.run("-cat", hdfs_path, retries=1)
        return text.strip() if has_succeeded else ""

    def is_file(self, hdfs_path: str) -> bool:
        """Whether a path is a file."""
        return self.is_exist(hdfs_path) and not self.shell.holds("-d", hdfs_path)

    def lsr(self, hdfs_path: str, excludes: list[str] | None = None) -> list[str]:
        """The paths of files below a folder, without `excludes`."""
        if not self.is_exist(hdfs_path):
            return []
        entries = self.shell.entries(hdfs_path, recursive=True, retries=1)
        paths = [entry.path for entry in entries if not entry.is_folder]
        return [path for path in paths if path not in (excludes or ())]

    @staticmethod
    def split_files(files: list[str], trainer_id: int, trainers: int) -> list[str]:
        """The contiguous share of a trainer.

        >>> [HDFSClient.split_files(["a", "b", "c"], trainer, 2) for trainer in range(2)]
        [['a', 'b'], ['c']]
        """
        size, more = divmod(len(files), trainers)
        first = trainer_id * size + min(trainer_id, more)
        return files[first : first + size + (trainer_id < more)]

    def download(
        self,
        hdfs_path: str,
        local_path: str,
        multi_processes: int = 5,
        overwrite: bool = False,
        retry_times: int = 5,
    ) -> list[str]:
        """Download what is in a folder by several threads; returns all files of the local one.

        With `overwrite`, files that are there are replaced.
        """
        self.make_local_dirs(local_path)
        paths = self.ls(hdfs_path)
        for path in paths if overwrite else []:
            Path(self.remote_name(local_path, path)).unlink(missing_ok=True)
        get = partial(self.get, local_path=local_path, retries=retry_times)
        with ThreadPoolExecutor(multi_processes) as pool:
            list(pool.map(get, paths))
        return [str(file) for file in sorted(Path(local_path).rglob("*")) if file.is_file()]

    def upload(
        self,
        hdfs_path: str,
        local_path: str,
        multi_processes: int = 5,
        overwrite: bool = False,
        retry_times: int = 5,
    ) -> None:
        """Upload a file, or what is in a local folder, by several threads.

        With `overwrite`, the folder in Hadoop is emptied first.
        """
        local = Path(local_path)
        paths = list(local.iterdir()) if local.is_dir() else [local] * local.exists()
        if not paths:
            logger.info("there is nothing to upload in %s", local_path)
            return
        if overwrite and self.is_exist(hdfs_path):
            self.delete(hdfs_path)
            self.makedirs(hdfs_path)
        put = partial(self.put, hdfs_path=hdfs_path, retries=retry_times)
        with ThreadPoolExecutor(multi_processes) as pool:
            list(pool.map(put, map(str, paths)))

    def upload_dir(self, dest_dir: str, local_dir: str, overwrite: bool = False) -> bool:
        """Copy a local folder into a folder, which is created; `overwrite` replaces it there."""
        local, target = local_dir.rstrip("/"), dest_dir.rstrip("/")
        there = self.remote_name(target, local)
        if overwrite and self.is_exist(there):
            self.delete(there)
        if not self.is_exist(target):
            self.makedirs(target)
        return self.put(local, target, retries=5)
