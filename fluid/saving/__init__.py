"""Saving and loading of parameters, models and training state."""
