"""Matching of users, items and texts: products of two sequences as pictures, trees, runs of words.

`pictures`, `match_matrix`, `var_conv` and `topk_pooling` go together; `tree_conv` and `item_trees`
walk trees; `pyramid_hash` looks runs of words up by `term_hashes`; `rank_attention` stands alone.
"""
