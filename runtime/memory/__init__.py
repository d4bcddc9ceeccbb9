"""Arenas: packing, allocation and the memory limit of a step."""
