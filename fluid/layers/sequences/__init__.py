"""Sequence layers: recurrent networks, decoding, beam search, structured losses."""
