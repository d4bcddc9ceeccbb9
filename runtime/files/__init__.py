"""Files of tensors, and atomic saves."""
