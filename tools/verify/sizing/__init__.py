"""Cases of `sizes.py`: `problem` is what is computed, `judge` compares, `sweep` runs them.

`op_cases` scales the samples of ops, `layer_cases` lists programs of `programs`, which `recorder`
records; `targets` compile and run them.
"""
