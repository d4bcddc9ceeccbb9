"""Ops of sequences (LoD), and recurrent ops."""
