"""Readers: decorators, and data loaders that prefetch batches."""
