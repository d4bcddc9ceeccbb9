"""Matching of users, items and texts: matching matrices of sequence pairs, trees, and n-grams.

`ragged_images`, `match_matrix`, `var_conv` and `topk_pooling` share ragged batches of images;
`tree_conv` and `item_trees` traverse trees; `pyramid_hash` embeds n-grams by the hashes of
`term_hashes`; `rank_attention` is independent of the others.
"""
