"""Control flow layers: conditions, branches, loops, arrays."""
