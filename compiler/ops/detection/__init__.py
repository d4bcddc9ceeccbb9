"""Object detection ops: boxes, priors, proposals, non-maximum suppression."""
