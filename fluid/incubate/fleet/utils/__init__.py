"""Helpers: `fleet_util`, and `http_server`, a key-value server."""
