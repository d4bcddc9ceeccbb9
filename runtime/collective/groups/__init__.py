"""Groups: how the arrays of a ring are moved, by torch's engines or through shared memory.

Read `group` (the interface) first, then `engine_group` (Gloo, NCCL), `shared_group` and `segment`.
"""
