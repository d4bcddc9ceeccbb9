"""All mutants of the code beyond thresholds, and the thresholds that have none."""

from collections.abc import Mapping

from tools.verify.mutations.sizes import images, loops, others, products

MUTANTS = (*loops.MUTANTS, *products.MUTANTS, *images.MUTANTS, *others.MUTANTS)

HOST = "beyond it the op runs in NumPy, as it does without a kernel"
WITHOUT: Mapping[str, str] = {
    "attention_columns": "beyond it attention is not fused",
    "attention_long": "chooses between two tiles of the same code",
    "attention_one_program": "beyond it gradients are two kernels, which other sizes have too",
    "attention_wide_tile": "chooses between two tiles of the same code",
    "least_tile": "chooses among tiles whose code has mutants of its own",
    "operands": HOST,
    "ranked_values": HOST,
    "reduction_elements": "beyond it a reduction is not split, whose code has mutants of its own",
    "row_of_taps": "beyond it a gradient is a loop kernel, whose code has mutants of its own",
    "split_half": "beyond it a product is split, whose code has mutants of its own",
    "summed_inner": "beyond it a product is a loop along K, whose code has mutants of its own",
}
"""Thresholds beyond which no code begins, each with the reason."""
