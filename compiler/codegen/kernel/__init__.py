"""Kernels as every target sees them: their IR, analyses of it, and what op bodies call."""
