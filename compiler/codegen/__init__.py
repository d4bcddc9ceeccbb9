"""Plans to source: one module of Python a person can open, read, edit and run by itself."""
