"""How programs are recorded: blocks, variables, operators, and the checks of arguments."""
