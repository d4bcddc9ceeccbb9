"""Passes that fuse ops into kernels.

Read `fuse_pointwise` and `fuse_epilogue` first; `group_updates` with `fusion_groups` fuses equal
parameter updates horizontally; `fuse_batch_norm`, `split_batch_norm`, `merge_squares` and
`merge_bias_gradients` rewrite ops so that they fuse.
"""
