"""Files of tensors, and saves that appear whole or not at all."""
