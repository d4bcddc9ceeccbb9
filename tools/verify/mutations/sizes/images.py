"""Mutants of native kernels of images: windows, depthwise sums, Winograd, transpositions."""

from tools.verify.mutations.sizes.mutant import DROPPED, ONE_ELEMENT, TWICE, UNMASKED, WRONG, Mutant

FOLDER = "compiler/codegen/native/images/"
WINDOWS, POSITIONS = FOLDER + "window_loops.py", FOLDER + "positions.py"
DEPTHWISE, RUNS, BLOCKS = FOLDER + "depthwise_gradient.py", FOLDER + "runs.py", FOLDER + "blocks.py"
TILES, WINOGRAD = FOLDER + "winograd_tiles.py", FOLDER + "winograd_kernels.py"

BEYOND = "tests/codegen/native/test_beyond_thresholds.py"
OF_WINDOWS = (f"{BEYOND}::test_depthwise", f"{BEYOND}::test_pooling")
OF_WINOGRAD = (f"{BEYOND}::test_winograd",)
OF_BLOCKS = (f"{BEYOND}::test_blocks_of_tiles_of_which_the_last_is_smaller",)
OF_TRANSPOSES = (f"{BEYOND}::test_transposes",)
WIDE = ("tests/codegen/native/test_images.py::test_code_of_wide_windows_is_a_loop_over_their_taps",)

MUTANTS = (
    # ---- windows ----
    Mutant(
        "tiles of windows read the first one's elements", TWICE, "tile_windows", WINDOWS,
        "base = n.add(tiles.base, n.mul(number, tiles.step))", "base = tiles.base",
        OF_WINDOWS,
    ),
    Mutant(
        "last tile of windows as wide as others", UNMASKED, "tile_windows", POSITIONS,
        "tile = _known_tile(window, first, min(width, window.count - first))",
        "tile = _known_tile(window, first, width)",
        OF_WINDOWS,
    ),
    Mutant(
        "windows behind tiles of an open width dropped", DROPPED, "tile_windows", WINDOWS,
        "        loops.f.loop_if_any(end, count, 1, self.single)\n", "",
        OF_WINDOWS,
    ),
    Mutant(
        "tiles of an open width that leave the image", UNMASKED, "tile_windows", POSITIONS,
        "number = n.div(n.max(n.sub(n.min(inside, count), first), 0), width)",
        "number = n.div(n.max(n.sub(count, first), 0), width)",
        OF_WINDOWS,
    ),
    Mutant(
        "channels behind whole vectors of windows dropped", DROPPED, "tile_windows", WINDOWS,
        "            self.tile(pixel, base, columns, channels.rest, channels.full)\n",
        "            pass\n",
        OF_WINDOWS,
    ),
    Mutant(
        "last tap of a wide window dropped", DROPPED, "unrolled_taps", WINDOWS,
        "return f.loop_if_any(self.first, self.end, axis.period, body, carried)[count:]",
        "end = loops.n.sub(self.end, 1)\n"
        "        return f.loop_if_any(self.first, end, axis.period, body, carried)[count:]",
        WIDE,
    ),
    Mutant(
        "taps of a wide window read one element", ONE_ELEMENT, "unrolled_taps", WINDOWS,
        "f.address(pointer, axis.advance * source.channels, source.nbytes)",
        "f.address(pointer, 0, source.nbytes)",
        WIDE,
    ),
    # ---- gradients of depthwise filters ----
    Mutant(
        "last part of windows reads on", UNMASKED, "depthwise_units", DEPTHWISE,
        "end = n.min(n.add(first, length), count)", "end = n.add(first, length)",
        OF_WINDOWS,
    ),
    Mutant(
        "last rows of windows in no part", DROPPED, "depthwise_units", DEPTHWISE,
        "length = n.ceil_div(count, self.plan.parts)", "length = n.div(count, self.plan.parts)",
        OF_WINDOWS,
    ),
    Mutant(
        "last part of windows not added", DROPPED, "depthwise_units", DEPTHWISE,
        "for part in range(1, plan.parts):", "for part in range(1, plan.parts - 1):",
        OF_WINDOWS,
    ),
    Mutant(
        "parts of windows overlap", TWICE, "depthwise_units", DEPTHWISE,
        "        first = n.mul(part, length)\n", "        first = part\n",
        OF_WINDOWS,
    ),
    # ---- Winograd ----
    Mutant(
        "last block of tiles dropped", DROPPED, "winograd_block", TILES,
        "return (self.total + (self.rows - 1)) // self.rows", "return self.total // self.rows",
        OF_BLOCKS,
    ),
    Mutant(
        "last tiles of a block dropped", DROPPED, "winograd_open_tiles", TILES,
        "return (self.total + (self.blocks - 1)) // self.blocks",
        "return self.total // self.blocks",
        OF_BLOCKS,
    ),
    Mutant(
        "tiles behind the last image computed", UNMASKED, "winograd_block", WINOGRAD,
        '        k.f.when(k.f.compare("ult", place, total), lambda: emit(tile))',
        "        emit(tile)",
        OF_BLOCKS,
    ),
    Mutant(
        "blocks of tiles overlap", TWICE, "winograd_filters", WINOGRAD,
        "row = self.place = n.add(n.mul(block, tiles.rows), down)",
        "row = self.place = n.add(block, down)",
        OF_BLOCKS,
    ),
    Mutant(
        "blocks of open images overlap", TWICE, "winograd_open_tiles", WINOGRAD,
        "self.place = n.add(n.mul(block, n.of(tiles.number)), unit)",
        "self.place = n.add(block, unit)",
        OF_BLOCKS,
    ),
    Mutant(
        "last panel of transformed filters as wide as others", WRONG, "winograd_channels", WINOGRAD,
        "size = n.min(width, n.sub(count, n.mul(panel, width)))", "size = width",
        ("tests/codegen/native/images/test_winograd.py::test_winograd_is_the_convolution",),
    ),
    Mutant(
        "channels behind whole vectors not transformed", DROPPED, "winograd_channels", WINOGRAD,
        "        emit(channels.full * channels.lanes, channels.rest)\n", "        pass\n",
        OF_WINOGRAD,
    ),
    Mutant(
        "filters behind whole vectors not transformed", DROPPED, "winograd_channels", WINOGRAD,
        "lambda: emit(vector, channels.piece), lambda: emit(vector, rest))",
        "lambda: emit(vector, channels.piece), list)",
        OF_WINOGRAD,
    ),
    Mutant(
        "columns beside the image not masked", UNMASKED, "winograd_transforms", WINOGRAD,
        "                value = f.select(inside, value, zero(piece.type))\n", "",
        OF_WINOGRAD,
    ),
    Mutant(
        "rows behind the results stored", UNMASKED, "winograd_transforms", WINOGRAD,
        "        k.f.when(inside, store)", "        store()",
        OF_WINOGRAD,
    ),
    Mutant(
        "whole tiles of open results dropped", DROPPED, "winograd_open_size", WINOGRAD,
        'exact = "uge" if least + 1 == tiles.m else "eq"', 'exact = "eq"',
        OF_WINOGRAD,
    ),
    # ---- transpositions ----
    Mutant(
        "last unit of blocks dropped", DROPPED, "transpose_columns", BLOCKS,
        "units = chunks(given.sizes[along], tall) * chunks(given.sizes[across], wide)",
        "units = chunks(given.sizes[along], tall) * (given.sizes[across] // wide)",
        OF_TRANSPOSES,
    ),
    Mutant(
        "units of blocks begin a block apart", TWICE, "transpose_rows", BLOCKS,
        "n.mul(down, tall), tall, block)", "down, tall, block)",
        OF_TRANSPOSES,
    ),
    Mutant(
        "last unit of blocks writes on", UNMASKED, "transpose_rows", BLOCKS,
        "end = n.min(n.add(start, length), walk.sizes[axis])", "end = n.add(start, length)",
        OF_TRANSPOSES,
    ),
    Mutant(
        "rows behind whole blocks dropped", DROPPED, "transpose_columns", BLOCKS,
        "            f.when(some, lambda: blocks(span.whole, rest))\n", "            pass\n",
        OF_TRANSPOSES,
    ),
    Mutant(
        "rows behind whole blocks of an open size dropped", DROPPED, "transpose_rows", BLOCKS,
        "            f.loop_if_any(span.whole, span.end, 1, one)\n", "            pass\n",
        OF_TRANSPOSES,
    ),
    Mutant(
        "last part of a run writes on", UNMASKED, "run_bytes", RUNS,
        "length = n.min(n.sub(length, start), runs.room)", "length = runs.room",
        OF_TRANSPOSES,
    ),
    Mutant(
        "last part of a run dropped", DROPPED, "run_bytes", RUNS,
        "units = chunks(sizes[-1], runs.room) * product",
        "units = (sizes[-1] // runs.room) * product",
        OF_TRANSPOSES,
    ),
    Mutant(
        "last runs of a unit write on", UNMASKED, "run_bytes", RUNS,
        "end = n.min(n.add(first, runs.group), walk.sizes[outer[-1]])",
        "end = n.add(first, runs.group)",
        OF_TRANSPOSES,
    ),
    Mutant(
        "elements behind whole vectors of a run dropped", DROPPED, "run_bytes", RUNS,
        "            move(n.add(whole, at), count)\n", "            pass\n",
        OF_TRANSPOSES,
    ),
    Mutant(
        "vectors of a run read the first", ONE_ELEMENT, "run_bytes", RUNS,
        "f.address(source, at, element.nbytes)", "f.address(source, 0, element.nbytes)",
        OF_TRANSPOSES,
    ),
)  # fmt: skip
