"""What benches share: tables, result lines, damaged files."""
