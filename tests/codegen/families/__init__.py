"""Kernels compared with the reference implementation on random shapes, one family of ops per file.

`EXAMPLES=20 pytest tests/codegen/families` tries twenty times as many shapes, new ones in each run.
"""
