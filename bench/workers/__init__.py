"""Processes that run a part of a bench: ours, the reference's, torch's."""
