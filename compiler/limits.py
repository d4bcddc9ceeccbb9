"""Limits on what programs may say, so that a small file leads to no long run and no huge one.

What goes beyond one is an error of a kind that its reader documents, before time or memory is
spent. docs/security.md lists them with what happens at each.
"""

MAX_RANK = 9
"""Axes of a tensor, as in release 1.8.5."""

MAX_LOD_LEVELS = 64
"""LoD levels of a variable; each is a variable of its own."""

MAX_BYTES = (1 << 63) - 1
"""Bytes of a value whose sizes are all known."""

MAX_NESTED_BLOCKS = 16
"""Blocks inside each other, the main one included. Python allows 20 nested loops in a function."""

MAX_SIZE_SYMBOLS = 2048
"""Names, numbers and quotients in the expression of one size."""

MAX_SIZE_DEPTH = 48
"""Floor divisions inside each other in the expression of one size."""

MAX_SIZE_TEXT = 8192
"""Characters of one size in `.ir` text."""

MAX_INTEGER_BITS = 64
"""Bits of an integer in `.ir` text."""
