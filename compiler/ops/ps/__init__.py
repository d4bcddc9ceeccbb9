"""Ops of programs whose parameters live on servers: exchange of variables, rows of tables."""
