"""Proofs that kernels access their operands only, and the checks that are left of them."""
