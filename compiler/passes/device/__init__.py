"""Passes that prepare a graph for a device: placement, precision, layout, RNG keys."""
