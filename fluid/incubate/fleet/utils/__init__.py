"""Helpers: `fleet_util`, `hdfs`, and `http_server`, a key-value server."""
