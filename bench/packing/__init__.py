"""Planners of memory, lower bounds of what they need, and recorded lives."""
