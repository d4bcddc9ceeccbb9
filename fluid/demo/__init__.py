"""`fluid demo`: train a digit classifier and show every stage of the compiler."""
