"""Files of Hadoop."""

from fleet.hdfs import HDFSClient, get_logger

__all__ = ["HDFSClient", "get_logger"]
