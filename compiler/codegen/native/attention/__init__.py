"""Attention as one kernel, whose scores stay in the cache."""
