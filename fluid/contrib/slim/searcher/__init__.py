"""Search for the best tokens, which stand for networks."""

from fluid.contrib.slim.searcher import controller
from fluid.contrib.slim.searcher.controller import EvolutionaryController, SAController

__all__ = ["EvolutionaryController", "SAController", "controller"]
