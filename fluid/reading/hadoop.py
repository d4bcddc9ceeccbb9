"""Files of a Hadoop file system, by the command `hadoop fs`.

Clients of release 1.8 (`fluid.contrib.utils.hdfs_utils`, `incubate.fleet.utils.hdfs`) share it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from posixpath import join

from compiler.support.dataclass import dataclass

__all__ = ["HadoopClient", "HadoopEntry", "HadoopShell", "logger"]

logger = logging.getLogger("fluid.hadoop")
RETRY_SECONDS = 3.0
"""Delay before a failed command is run again."""
FIELDS = 8
"""Columns of a line of `-ls`; the first is the mode, the last the path."""


@dataclass(frozen=True)
class HadoopEntry:
    """A line of `-ls`."""

    path: str
    is_folder: bool
    modified: str


class HadoopShell:
    """Runs `HADOOP_HOME/bin/hadoop fs -Dkey=value …`; variables in the path are expanded.

    `command` replaces the path of the program.
    """

    def __init__(
        self, hadoop_home: str | None, configs: Mapping[str, object], command: str = "hadoop"
    ) -> None:
        home = None if hadoop_home is None else os.path.expandvars(hadoop_home)
        program = command if home is None else f"{home}/bin/hadoop"
        settings = [f"-D{name}={value}" for name, value in configs.items()]
        self.pre_commands = [program, "fs", *settings]

    def run(self, *arguments: str, retries: int = 0) -> tuple[bool, str]:
        """Run a command, up to `retries` times again if it fails.

        Returns whether it succeeded, and its output. A program that cannot be started has failed.
        """
        output = ""
        for attempt in range(retries + 1):
            if attempt:
                time.sleep(RETRY_SECONDS)
            status, output, error = self._run_once(arguments)
            if not status:
                return True, output
            logger.warning("hadoop fs %s: status %s: %s", " ".join(arguments), status, error)
        return False, output

    def holds(self, test: str, path: str) -> bool:
        """Whether `-test` of a path holds: "-e" that it exists, "-d" that it is a folder."""
        return not self._run_once(["-test", test, path])[0]

    def entries(self, path: str, recursive: bool = False, retries: int = 0) -> list[HadoopEntry]:
        """The entries of a folder; empty if it cannot be listed."""
        _, output = self.run("-lsr" if recursive else "-ls", path, retries=retries)
        lines = [line.split(maxsplit=FIELDS - 1) for line in output.splitlines()]
        return [
            HadoopEntry(line[7], line[0].startswith("d"), f"{line[5]} {line[6]}")
            for line in lines
            if len(line) == FIELDS
        ]

    def _run_once(self, arguments: Sequence[str]) -> tuple[int, str, str]:
        try:
            done = subprocess.run(
                [*self.pre_commands, *arguments], capture_output=True, text=True, check=False
            )
        except OSError as error:
            return error.errno or 1, "", str(error)
        return done.returncode, done.stdout, done.stderr


class HadoopClient:
    """What both clients of release 1.8 have: they return False and log where a command fails."""

    def __init__(self, hadoop_home: str, configs: Mapping[str, object]) -> None:
        self.shell = HadoopShell(hadoop_home, configs)
        self.pre_commands = self.shell.pre_commands

    def is_exist(self, hdfs_path: str) -> bool:
        """Whether a path exists."""
        return self.shell.holds("-e", hdfs_path)

    def is_dir(self, hdfs_path: str) -> bool:
        """Whether a path is a folder."""
        return self.is_exist(hdfs_path) and self.shell.holds("-d", hdfs_path)

    def delete(self, hdfs_path: str) -> bool:
        """Remove a file or a folder; True also if it does not exist."""
        if not self.is_exist(hdfs_path):
            logger.warning("HDFS path: %s does not exist", hdfs_path)
            return True
        return self.shell.run("-rmr" if self.is_dir(hdfs_path) else "-rm", hdfs_path)[0]

    def rename(self, hdfs_src_path: str, hdfs_dst_path: str, overwrite: bool = False) -> bool:
        """Move a file or a folder. False if the target exists, unless `overwrite`."""
        if self.is_exist(hdfs_dst_path) and not (overwrite and self.delete(hdfs_dst_path)):
            logger.error("HDFS path: %s exists and overwrite=False", hdfs_dst_path)
            return False
        return self.shell.run("-mv", hdfs_src_path, hdfs_dst_path, retries=1)[0]

    @staticmethod
    def make_local_dirs(local_path: str) -> None:
        """Create a local folder and its parents, unless it exists."""
        Path(local_path).mkdir(parents=True, exist_ok=True)

    def makedirs(self, hdfs_path: str) -> bool | None:
        """Create a folder and its parents; None if the path exists."""
        if self.is_exist(hdfs_path):
            logger.error("HDFS path: %s exists", hdfs_path)
            return None
        run = self.shell.run  # Hadoop 1 has no -p, and creates parents without
        return run("-mkdir", hdfs_path)[0] or run("-mkdir", "-p", hdfs_path, retries=1)[0]

    def ls(self, hdfs_path: str) -> list[str]:
        """The paths in a folder; empty if it does not exist."""
        if not self.is_exist(hdfs_path):
            return []
        return [entry.path for entry in self.shell.entries(hdfs_path, retries=1)]

    def put(self, local_path: str, hdfs_path: str, retries: int) -> bool:
        """Copy a local file or folder into a folder."""
        return self.shell.run("-put", local_path, hdfs_path, retries=retries)[0]

    def get(self, hdfs_path: str, local_path: str, retries: int) -> bool:
        """Copy a file or folder into a local folder."""
        return self.shell.run("-get", hdfs_path, local_path, retries=retries)[0]

    def remote_name(self, folder: str, local_path: str) -> str:
        """The path of a local file within a folder."""
        return join(folder, PurePath(local_path).name)
