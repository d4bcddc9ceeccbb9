"""Search for networks: a server with a controller, and agents that try its tokens."""

from fluid.contrib.slim.nas import (
    controller_server,
    light_nas_strategy,
    search_agent,
    search_space,
)
from fluid.contrib.slim.nas.controller_server import ControllerServer
from fluid.contrib.slim.nas.light_nas_strategy import LightNASStrategy
from fluid.contrib.slim.nas.search_agent import SearchAgent
from fluid.contrib.slim.nas.search_space import SearchSpace

__all__ = [
    "ControllerServer", "LightNASStrategy", "SearchAgent", "SearchSpace", "controller_server",
    "light_nas_strategy", "search_agent", "search_space",
]  # fmt: skip
