"""Code that compares native steps with the reference implementations of their ops.

`reference_rows` writes the ops of a step as literals, `step_checks` the calls around its kernels.
"""
