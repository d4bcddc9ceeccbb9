"""Code generation: lowers a plan to one Python module that people can read, edit and run."""
