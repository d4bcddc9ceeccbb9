"""Ops on sequences (LoD tensors), and recurrent ops."""
