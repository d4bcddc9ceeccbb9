"""The `.ir` text format: lexer, parser and printers of graphs and programs, and Graphviz."""
