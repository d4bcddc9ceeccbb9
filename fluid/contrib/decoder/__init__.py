"""Decoders that run a cell with named states: `states`, `training`, `beam_search_decoder`."""

from fluid.contrib.decoder import beam_search_decoder
from fluid.contrib.decoder.beam_search_decoder import (
    BeamSearchDecoder,
    InitState,
    StateCell,
    TrainingDecoder,
)

__all__ = ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder", "beam_search_decoder"]
