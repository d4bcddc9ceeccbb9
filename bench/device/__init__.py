"""What is measured on a GPU: small programs of one family of kernels each, and their clock."""
