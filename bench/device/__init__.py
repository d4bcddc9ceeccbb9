"""GPU measurements: small programs of one family of kernels each, and their clock."""
