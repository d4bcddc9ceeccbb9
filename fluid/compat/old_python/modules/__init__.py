"""Modules that Python had until 3.12; each is loaded under its own name."""
