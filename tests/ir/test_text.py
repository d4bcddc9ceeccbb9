"""Text of graphs and programs: what is printed parses back, and what does not parse says why."""

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import CompileError, ParseError
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.graph import Graph
from compiler.ir.literal import name_text, parse_attributes, parse_name, value_text
from compiler.ir.program import BlockRef, Program, VarKind
from compiler.ir.text import digest, parse, parse_program, same, show, show_op
from compiler.ir.types import TOKEN, DType, TensorType
from compiler.ir.verify import check_grouped, check_ordered, check_stored, verify
from tests.ir.random_graphs import arrays, graphs, random_graph
