"""Proofs that a change of a kernel is harmless: it cannot change what the kernel computes."""
