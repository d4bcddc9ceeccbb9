"""Tile sizes, strides and the schedules of reductions."""
