"""A compilation as one page: what each pass did, the graph, the memory, the code."""
