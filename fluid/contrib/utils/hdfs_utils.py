"""`HDFSClient` of `fluid.contrib`: single files to and from Hadoop, and folders by many threads.

Source: `contrib/utils/hdfs_utils.py` of release 1.8.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from posixpath import basename, dirname, join, relpath

from fluid.reading.hadoop import HadoopClient, logger

__all__ = ["HDFSClient", "getfilelist", "multi_download", "multi_upload"]


class HDFSClient(HadoopClient):
    """A client of Hadoop's files by `hadoop_home/bin/hadoop fs`.

    `configs` are its settings: "fs.default.name" and "hadoop.job.ugi". Methods return False and log
    where a command fails.
    """

    def upload(
        self, hdfs_path: str, local_path: str, overwrite: bool = False, retry_times: int = 5
    ) -> bool:
        """Copy a local file into a folder. False if it is there, unless `overwrite`, and for
        folders. Raises AssertionError if there is no such file.
        """
        if not Path(local_path).exists():
            raise AssertionError(f"there is no local file {local_path}")
        if Path(local_path).is_dir():
            logger.warning("upload takes files, and %s is a folder", local_path)
            return False
        target = self.remote_name(hdfs_path, local_path)
        if not self.is_exist(hdfs_path):
            self.makedirs(hdfs_path)
        elif self.is_exist(target) and not (overwrite and self.delete(target)):
            logger.error("HDFS path: %s exists and overwrite is False", target)
            return False
        return self.put(local_path, hdfs_path, retry_times)

    def download(
        self, hdfs_path: str, local_path: str, overwrite: bool = False, unzip: bool = False
    ) -> bool:
        """Copy a file into a local folder. False if it is there, unless `overwrite`.

        `unzip` has no effect, as in release 1.8.5.
        """
        if not self.is_exist(hdfs_path):
            logger.error("HDFS path: %s does not exist", hdfs_path)
            return False
        target = self.remote_name(local_path, hdfs_path)
        if Path(target).exists():
            if not overwrite:
                logger.error("local path: %s exists and overwrite is False", target)
                return False
            Path(target).unlink()
        self.make_local_dirs(local_path)
        return self.get(hdfs_path, local_path, retries=5)

    def lsr(self, hdfs_path: str, only_file: bool = True, sort: bool = True) -> list[str]:
        """The paths below a folder, of files only unless `only_file` is False.

        Sorted by the time of their last change, unless `sort` is False.
        """
        if not self.is_exist(hdfs_path):
            return []
        entries = self.shell.entries(hdfs_path, recursive=True, retries=1)
        if sort:
            entries.sort(key=lambda entry: entry.modified)
        return [entry.path for entry in entries if not (only_file and entry.is_folder)]


def multi_download(
    client: HDFSClient,
    hdfs_path: str,
    local_path: str,
    trainer_id: int,
    trainers: int,
    multi_processes: int = 5,
) -> list[str]:
    """Download this trainer's share of the files below a folder, by several threads.

    Returns their local paths. Raises AssertionError if `client` is no HDFSClient.
    """
    _expect_client(client)
    client.make_local_dirs(local_path)
    files = client.lsr(hdfs_path, sort=True)[trainer_id::trainers]
    targets = [join(local_path, relpath(dirname(file), hdfs_path)) for file in files]
    _in_threads(client.download, list(zip(files, targets, strict=True)), multi_processes)
    return [str(Path(target) / basename(file)) for file, target in zip(files, targets, strict=True)]


def multi_upload(
    client: HDFSClient,
    hdfs_path: str,
    local_path: str,
    multi_processes: int = 5,
    overwrite: bool = False,
    sync: bool = True,
) -> None:
    """Upload the files below a local folder, by several threads.

    `sync` has no effect, as in release 1.8.5. Raises AssertionError if `client` is no HDFSClient.
    """
    _expect_client(client)
    files = list(_local_files(local_path))
    targets = [join(hdfs_path, relpath(dirname(file), local_path)) for file in files]
    calls = [(target, file, overwrite) for target, file in zip(targets, files, strict=True)]
    _in_threads(client.upload, calls, multi_processes)


def getfilelist(path: str) -> None:
    """Print the files below a local folder."""
    for file in _local_files(path):
        print(file)


def _local_files(path: str) -> Iterator[str]:
    return (str(file) for file in sorted(Path(path).rglob("*")) if file.is_file())


def _in_threads(
    function: Callable[..., bool], calls: Sequence[tuple[object, ...]], threads: int
) -> None:
    with ThreadPoolExecutor(max(1, threads)) as pool:
        for running in [pool.submit(function, *arguments) for arguments in calls]:
            running.result()


def _expect_client(client: object) -> None:
    if not isinstance(client, HDFSClient):
        raise AssertionError(f"client must be an HDFSClient, not {type(client).__name__}")
