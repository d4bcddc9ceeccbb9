"""The first folder of PYTHONPATH under `fluid run`: Python runs `sitecustomize` at its start."""
