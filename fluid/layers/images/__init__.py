"""Layers for images: convolution, pooling, resizing, object detection."""
