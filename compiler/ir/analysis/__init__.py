"""Facts about graphs: liveness, placement, allocation, and the verifier of what passes claim."""
