"""Parameter server ops: exchange of variables, and lookups in distributed tables."""
