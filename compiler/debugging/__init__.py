"""Tools around the compiler: compare, bisect, reduce test cases, explain a compilation."""
