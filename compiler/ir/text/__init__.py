"""The `.ir` text format, and drawings of graphs.

Read in this order: `printer` (what the text looks like; graphs), `program_printer` (programs and
their digests, importable without graphs), `parser` (the grammar), `lexer` (tokens and error
positions), `literals` (names and attribute values), `dot` (Graphviz).
"""
