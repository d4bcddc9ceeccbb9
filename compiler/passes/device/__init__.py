"""Passes that prepare a graph for a device.

Read `assign_targets` (placement of ops on host or device, and copies between them), `narrow_floats`
(half precision), `layout` with `permuted_values` (channels-last images), `draw_keys` (counter-based
RNG) and `name_sizes` (names for data-dependent sizes).
"""
