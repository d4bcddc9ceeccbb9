"""Mutants of source code (`sizes`), and proofs that a change of a PTX kernel is harmless.

A change is harmless if it cannot change what the kernel computes: `effects`, `orders`, `proofs`.
"""
