"""Ops that judge results."""
