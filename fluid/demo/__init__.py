"""`fluid demo`: a network learns real handwritten digits, through every stage of the compiler."""
