"""`base` has role makers, `collective` and `parameter_server` the fleets, `utils` helpers."""
