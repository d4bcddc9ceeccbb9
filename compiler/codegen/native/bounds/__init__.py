"""Bounds checks of native code: every load and store of a kernel's finished IR is compared with the
bounds of the array that its address was computed from.

Read in this order: `checks.ll` (the functions that compare and report), `instrument` (rewrites the
text of a kernel), `accesses` (loads and stores), `ir_lines` (what is read from a line of IR).
"""
