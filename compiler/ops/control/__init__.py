"""Branches, loops, tensor arrays, and what runs beside the numbers."""
