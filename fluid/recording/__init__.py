"""Recording of programs: blocks, variables, operators, and argument checks."""
