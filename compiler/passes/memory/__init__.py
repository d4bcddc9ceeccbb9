"""Passes that schedule ops and plan memory.

Read `schedule` with `schedules` (order of the kernels), `recompute` with `rematerialisation`
(values computed twice instead of kept), `reuse_memory` with `views` (slots, in-place ops,
sub-buffers), and `insert_deletes` (values without a slot).
"""
