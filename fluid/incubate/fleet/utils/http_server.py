"""A key-value server, by which the processes of a job find each other."""

from fleet.key_value_server import KVHandler, KVHTTPServer, KVServer

__all__ = ["KVHTTPServer", "KVHandler", "KVServer"]
