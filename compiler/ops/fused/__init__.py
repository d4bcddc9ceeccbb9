"""Fused ops that Paddle's own passes write into saved models: short programs of other ops."""
