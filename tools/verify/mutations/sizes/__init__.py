"""Mutants of the code beyond thresholds of sizes: one change each, and the tests that fail by it.

`loops`, `products`, `images` and `others` list them by the folder that they change;
`tools.verify.size_mutants` applies them.
"""
