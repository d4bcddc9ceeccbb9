"""Layers of images: convolution, pooling, resizing, detection."""
