"""Programs, graphs and types: what every stage of the compiler speaks of."""
