"""All mutants of the code beyond thresholds."""

from bench.mutations.sizes import images, loops, others, products

MUTANTS = (*loops.MUTANTS, *products.MUTANTS, *images.MUTANTS, *others.MUTANTS)
