"""Parameter updates, embedding tables, sparse gradients."""
