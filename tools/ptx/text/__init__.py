"""PTX text read into kernels."""
