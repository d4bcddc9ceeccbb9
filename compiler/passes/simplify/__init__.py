"""Passes that remove, fold and merge ops."""
