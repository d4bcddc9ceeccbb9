"""Program to Graph and back: the walk over blocks, control flow and its gradients."""
