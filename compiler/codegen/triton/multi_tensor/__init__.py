"""Multi-tensor kernels (horizontal fusion) and global reductions."""
