"""Memory planners, lower bounds of their memory, and recorded lifetimes."""
