"""Cost models: bytes, flops and the least time of plans, and the limits of GPUs."""
