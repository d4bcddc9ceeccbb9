"""Layers of sequences: recurrent networks, decoding, beam search, structured losses."""
