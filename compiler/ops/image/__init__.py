"""Ops of images: convolution, pooling, resizing, regions."""
