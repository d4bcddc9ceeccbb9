"""Ops that make tensors, give them other shapes, pick, place and join their elements."""
