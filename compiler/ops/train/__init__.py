"""Updates of parameters, tables of vectors, sparse rows."""
