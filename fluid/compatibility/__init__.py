"""What scripts of release 1.8 import and expect beside `fluid` itself."""
