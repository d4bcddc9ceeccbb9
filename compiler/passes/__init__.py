"""Passes: rewrites and decisions on a Graph, one a file, run in the order `pipeline` lists."""
