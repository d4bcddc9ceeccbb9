"""Ops that create, reshape, index, gather, scatter and join tensors."""
