"""Text matching: products of two sequences as pictures of their own sizes, and trees."""
