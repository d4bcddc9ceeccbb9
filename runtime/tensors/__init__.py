"""Tensors with LoD, and the scopes that hold them."""
