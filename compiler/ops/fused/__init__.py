"""Fused ops that Paddle's passes write into saved models, expanded to sequences of other ops."""
