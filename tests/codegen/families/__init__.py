"""Kernels of one family of ops a file, held against what the ops mean on shapes drawn at random.

`EXAMPLES=20 pytest tests/codegen/families` draws twenty times as many, others in every run.
"""
