"""Readers: decorators, and loaders that prefetch batches."""
