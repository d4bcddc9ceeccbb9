"""Compatibility with scripts of release 1.8: names and modules they import besides `fluid`."""
