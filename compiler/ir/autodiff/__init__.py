"""Reverse-mode differentiation at the level of programs: the walk and the sums of gradients."""
