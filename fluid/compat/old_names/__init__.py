"""Modules of release 1.8 that only old scripts import, as `paddle.fluid.<module>`.

Each file is a module of that name; nothing else of the package imports them. They are loaded when a
script asks for them.
"""
