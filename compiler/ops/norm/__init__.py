"""Ops that normalise."""
