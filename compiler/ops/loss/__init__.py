"""Losses, over classes, numbers, ranks and whole sequences."""
