"""Tile sizes, tables of measured ones, strides and the schedules of reductions."""
