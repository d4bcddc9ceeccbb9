"""Models to measure, for any fluid: they keep to Python 3.7 and import nothing but NumPy."""
