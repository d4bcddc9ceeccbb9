"""Limits on the size of programs, so that a small file cannot cause a long run or a huge
allocation.

Exceeding one is an error of a kind that its reader documents, raised before time or memory is
spent. docs/security.md lists them with their errors.
"""

MAX_RANK = 9
"""Maximum rank of a tensor, as in release 1.8.5."""

MAX_LOD_LEVELS = 64
"""Maximum LoD levels of a variable; each is a separate variable."""

MAX_BYTES = (1 << 63) - 1
"""Maximum bytes of a value whose sizes are all known."""

MAX_OUTPUTS = 1 << 16
"""Maximum number of tensors into which an op splits another."""

MAX_ARRAY_ITEMS = 1 << 24
"""Maximum number of items of a tensor array."""

MAX_NESTED_BLOCKS = 16
"""Maximum nesting of blocks, including the main one. Python allows 20 nested loops in a function.
"""

MAX_ONNX_ELEMENTS = 2**28
"""Maximum elements of a value between two nodes of an ONNX file, as far as sizes are known."""

MAX_SIZE_SYMBOLS = 2048
"""Maximum names, numbers and quotients in the expression of one size."""

MAX_SIZE_DEPTH = 48
"""Maximum nesting of floor divisions in the expression of one size."""

MAX_SIZE_TEXT = 8192
"""Maximum characters of one size in `.ir` text."""

MAX_INTEGER_BITS = 64
"""Maximum bits of an integer in `.ir` text."""
