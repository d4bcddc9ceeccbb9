"""Image ops: convolution, pooling, resizing, regions of interest."""
