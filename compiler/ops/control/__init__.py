"""Control flow, tensor arrays, beam search, file ops and host ops."""
