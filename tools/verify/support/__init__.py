"""Shared code of verification: processes with limits, damaged files, faults, kinds of saves."""
