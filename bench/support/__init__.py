"""Shared code of benchmarks: tables, result lines, damaged files."""
