"""Mutants of convolutions in NumPy, and of kernels on a GPU, run by Triton's interpreter."""

from tools.verify.mutations.sizes.mutant import DROPPED, NARROW, TWICE, UNMASKED, WRONG, Mutant

TILES, IM2COL = "compiler/ops/image/conv_tiles.py", "compiler/ops/image/im2col.py"
TRITON = "compiler/codegen/triton/"
EMIT = TRITON + "emit.py"
SORTS, SCANS = "compiler/ops/math/sort_kernels.py", "compiler/ops/math/cumsum.py"
JOINS, ROWS = "compiler/ops/shape/concat_kernels.py", "compiler/ops/duplicate_rows.py"
GEOMETRY = "compiler/ops/image/conv_geometry.py"

OF_TILES = ("tests/ops/image/test_conv_tiles.py::test_tiles_equal_the_whole_gives",)
BEYOND = "tests/codegen/triton/test_beyond_thresholds.py"
FAR_APART = ("tests/ops/image/test_conv.py::test_images_of_windows_far_apart",)
TILED = (f"{BEYOND}::test_loops_over_tiles",)

MUTANTS = (
    # ---- convolutions in NumPy ----
    Mutant(
        "last tile of rows dropped", DROPPED, "tile_positions", TILES,
        "for first in range(0, outputs.shape[2], rows)",
        "for first in range(0, outputs.shape[2] - rows + 1, rows)",
        OF_TILES,
    ),
    Mutant(
        "rows of two tiles not added up", DROPPED, "tile_positions", TILES,
        "np.add(target, block.swapaxes(0, 1), out=target)",
        "np.copyto(target, block.swapaxes(0, 1))",
        OF_TILES,
    ),
    Mutant(
        "products of a smaller tile not cleared", UNMASKED, "tile_positions", TILES,
        "    if (d_outputs.shape[0], d_outputs.shape[2]) != valid.shape[1:3]:", "    if False:",
        OF_TILES,
    ),
    Mutant(
        "contributions of tiles not added up", DROPPED, "column_elements", TILES,
        "added = target if n == first == 0 else share[..., :used]", "added = target",
        OF_TILES,
    ),
    Mutant(
        "last chunk of channels dropped", DROPPED, "column_elements", TILES,
        "for c in range(0, d_images.shape[1], chunk):",
        "for c in range(0, d_images.shape[1] - chunk + 1, chunk):",
        OF_TILES,
    ),
    Mutant(
        "chunks of channels read the first filters", TWICE, "column_elements", TILES,
        "matrix = filters[..., start : start + used]", "matrix = filters[..., :used]",
        OF_TILES,
    ),
    Mutant(
        "last block of images dropped", DROPPED, "image_block", IM2COL,
        "for first in range(0, len(images), block):",
        "for first in range(0, len(images) - block + 1, block):",
        ("tests/ops/image/test_conv.py::test_blocks_of_a_few_images",),
    ),
    Mutant(
        "windows gathered one by one are neighbours", TWICE, "unused_products", IM2COL,
        "steps = [*steps, rows.stride * width, columns.stride]",
        "steps = [*steps, rows.stride * width, 1]",
        ("tests/ops/image/test_conv.py::test_no_frame_is_shifted",),
    ),
    Mutant(
        "variables of a long step are the first one", WRONG, "captured_variables",
        "compiler/codegen/assemble.py",
        '*(f"{name}={name}" for name in valid if len(valid) > CLOSURE.value)]',
        '*(f"{name}={valid[0]}" for name in valid if len(valid) > CLOSURE.value)]',
        ("tests/ops/test_numpy_and_device_thresholds.py::test_in_numpy",),
    ),
    Mutant(
        "all constants of an array are the first", WRONG, "listed_constants",
        "compiler/ops/shared_kernels.py",
        "value = listed(k, i, numbers, dtype) if table is None else table[i]",
        "value = listed(k, i, numbers, dtype) if table is None else table[0]",
        ("tests/ops/test_native.py::test_forward",),
    ),
    Mutant(
        "last blocks of an attention dropped", DROPPED, "attention_units",
        "compiler/codegen/native/attention/forward.py",
        "indices.divide(indices.mul(n, total), UNITS.value) for n",
        "indices.divide(indices.mul(n, total), UNITS.value + 1) for n",
        ("tests/codegen/native/attention/test_forward.py::test_attention_equals_its_definition",),
    ),
    # ---- schedules of kernels on a GPU ----
    Mutant(
        "last tile of a loop dropped", DROPPED, "loop_tile", EMIT,
        'self.body.line(f"for start in range(0, {stop}, {loop.width}):")',
        'self.body.line(f"for start in range(0, {stop} - {loop.width} + 1, {loop.width}):")',
        TILED,
    ),
    Mutant(
        "tiles of a loop not joined", DROPPED, "strided_loop_tile", EMIT,
        "{_COMBINE[str(part.extra)].format(total, value)}", "{value}",
        TILED,
    ),
    Mutant(
        "tail of a tile counts", UNMASKED, "persistent_tile", EMIT,
        'value = f"tl.where({loop.live} & live, {value}, {self._identity(part)})"',
        'value = f"{value}"',
        TILED,
    ),
    Mutant(
        "moments of tiles without their own squares", WRONG, "loop_tile", EMIT,
        'before = "" if loop.persistent else f"{squares} + "', 'before = ""',
        (f"{BEYOND}::test_layer_norm",),
    ),
    Mutant(
        "loop of different ends is as long as the shortest", DROPPED, "ragged_tile", EMIT,
        'stop = f"tl.max(tl.where(live, {self._loop_end(index)}, 0))"',
        'stop = f"tl.min(tl.where(live, {self._loop_end(index)}, 0))"',
        (f"{BEYOND}::test_rows_of_several_chunks",),
    ),
    Mutant(
        "elements behind the last not masked", UNMASKED, "program_elements", EMIT,
        'return f"lane < {self._size(count)}"', 'return "lane >= 0"',
        ("tests/tools/ptx/test_op_samples.py::test_a_few_ops_agree",),
    ),
    Mutant(
        "programs compute the first one's elements", TWICE, "program_tile", EMIT,
        'lane = f"tl.program_id(0).to(INDEX) * LANES + tl.arange(0, LANES){side}"',
        'lane = f"tl.program_id(0).to(INDEX) * 0 + tl.arange(0, LANES){side}"',
        (f"{BEYOND}::test_elements",),
    ),
    Mutant(
        "last program not launched", DROPPED, "programs", EMIT,
        "grid = program_count(self._count(), self.schedule.elements)",
        "grid = f\"max(1, {program_count(self._count(), self.schedule.elements)} - 1)\"",
        (f"{BEYOND}::test_elements",),
    ),
    Mutant(
        "padded parts counted without their padding", TWICE, "coalesced", TRITON + "values.py",
        'return f"lane // {self.padded}"', 'return f"lane // {product(self.kernel.shape[1:])}"',
        (f"{BEYOND}::test_split_reductions",),
    ),
    Mutant(
        "parts read on into the next", TWICE, "split_programs", EMIT,
        'live = f"({live}) & ({loop.name} < first + {self._size(part)})"', "pass",
        (f"{BEYOND}::test_split_reductions",),
    ),
    Mutant(
        "all parts read the first", TWICE, "unsplit_elements", EMIT,
        'first = {place} * {self._size(self.kernel.split_size)}")', 'first = {place} * 0")',
        (f"{BEYOND}::test_split_reductions",),
    ),
    Mutant(
        "indices of large tensors narrow", NARROW, "narrow_elements", TRITON + "module_writer.py",
        "if fixed >= SMALL.value:", "if False:",
        (f"{BEYOND}::test_indices_of_large_tensors_have_64_bits",),
    ),
    Mutant(
        "indices of large open tensors narrow", NARROW, "narrow_elements",
        TRITON + "module_writer.py",
        "< {SMALL.value} else tl.int64", "< {SMALL.value} else tl.int32",
        (f"{BEYOND}::test_indices_of_large_tensors_have_64_bits",),
    ),
    Mutant(
        "graphs of launches have names that a step assigns", WRONG, "captured_launches",
        TRITON + "graph_segments.py",
        "if fixed is not None and not assigned.isdisjoint(_NAME.findall(used)):", "if False:",
        ("tests/passes/device/test_capture_step.py"
         "::test_graphs_have_no_lines_of_the_host_and_no_names_of_the_step",),
    ),
    Mutant(
        "results that the host reads are in memory of the caller", WRONG, "fetched_bytes",
        TRITON + "module_writer.py",
        "if v.home not in used and v.region == WHOLE)", "if v.region == WHOLE)",
        ("tests/codegen/triton/test_module_writer.py"
         "::test_a_result_that_the_host_reads_stays_in_the_arena",),
    ),
    Mutant(
        "rows of a program after its first block dropped", DROPPED, "row_sum_warps",
        TRITON + "row_sums.py", "{count}, {self.kernel.programs} * LANES):",
        "{count}, {count}):", ("tests/codegen/triton/test_row_sums.py",),
    ),
    # ---- products on a GPU ----
    Mutant(
        "all parts of a product read the first", TWICE, "splits", TRITON + "products.py",
        'first = ({self._index(0)}) * {length}")', 'first = ({self._index(0)}) * 0")',
        (f"{BEYOND}::test_split_products",),
    ),
    Mutant(
        "last tile along K dropped", DROPPED, "split_iterations", TRITON + "products.py",
        'self.body.line(f"for start in range(0, {iterations}, INNER):")',
        'self.body.line(f"for start in range(0, {iterations} - INNER, INNER):")',
        (f"{BEYOND}::test_split_products",),
    ),
    Mutant(
        "tail along K not masked", UNMASKED, "split_product_programs", TRITON + "products.py",
        '"left": is_even and all(is_multiple(inner, tile.inner) for tile in tiles),',
        '"left": True,',
        (f"{BEYOND}::test_split_products",),
    ),
    Mutant(
        "columns behind the last not masked", UNMASKED, "product_programs", TRITON + "products.py",
        '"j": all(is_multiple(self.columns, tile.columns) for tile in tiles),', '"j": True,',
        (f"{BEYOND}::test_products_behind_whole_tiles",),
    ),
    # ---- ops on a GPU ----
    Mutant(
        "groups of a convolution read the first channels", TWICE, "group_side",
        "compiler/ops/image/conv_kernels.py",
        "return image_element(g, images, n, plus(first_channel(k, group, depth), c), at, inside)",
        "return image_element(g, images, n, c, at, inside)",
        (f"{BEYOND}::test_convolutions_in_groups",),
    ),
    Mutant(
        "last tap that covers an element dropped", DROPPED, "skipped_taps", GEOMETRY,
        "(window.kernel + (window.tap_step - 1)) // window.tap_step",
        "max(1, window.kernel // window.tap_step)",
        FAR_APART,
    ),
    Mutant(
        "taps behind the last not masked", UNMASKED, "skipped_taps", GEOMETRY,
        "            inside = both(inside, tap < k.size(window.kernel))\n", "            pass\n",
        FAR_APART,
    ),
    Mutant(
        "taps that cover an element are neighbours", TWICE, "phase_kernels", GEOMETRY,
        "tap = plus(times(number, step), k.mod(first, step))",
        "tap = plus(number, k.mod(first, step))",
        FAR_APART,
    ),
    Mutant(
        "last element of a transposed tile dropped", DROPPED, "transpose_side",
        "compiler/ops/shape/transpose.py",
        "k.unravel(k.loop(product(sizes)), sizes)", "k.unravel(k.loop(product(sizes) - 1), sizes)",
        (f"{BEYOND}::test_transposes",),
    ),
    Mutant(
        "a block's own sum counts before it", TWICE, "scan_block", SCANS,
        "sums.at(i, r, j, where=r < part, other=0)", "sums.at(i, r, j, where=r <= part, other=0)",
        (f"{BEYOND}::test_running_sums",),
    ),
    Mutant(
        "sums of earlier blocks dropped", DROPPED, "strided_scan_block", SCANS,
        "total = value if starts is None else value + starts[i, part, j]", "total = value",
        (f"{BEYOND}::test_running_sums",),
    ),
    Mutant(
        "the first value selected again", TWICE, "selected_values", SORTS,
        "eligible = precedes(k, values[i, n - 1, j], indices[i, n - 1, j], value, r, largest)",
        "eligible = r >= 0",
        (f"{BEYOND}::test_sorted_rows",),
    ),
    Mutant(
        "equal values share a rank", DROPPED, "sorted_values", SORTS,
        "return first | (same & k.less(i, j))", "return first",
        (f"{BEYOND}::test_sorted_rows",),
    ),
    Mutant(
        "ranks count from the first that is kept", WRONG, "sorted_values", SORTS,
        "in_range = rank < k.size(count)\n    k.store(values, (i, rank, j)",
        "in_range = rank < k.size(count) - 1\n    k.store(values, (i, rank, j)",
        (f"{BEYOND}::test_sorted_rows",),
    ),
    Mutant(
        "joined parts read on", UNMASKED, "joined_parts", JOINS,
        "own = (column >= first) & (column < stop)", "own = column >= first",
        (f"{BEYOND}::test_joined_and_split_rows",),
    ),
    Mutant(
        "later groups of parts stored over the first", TWICE, "joined_parts", JOINS,
        "place = _shifted(k, column, starts[0] * inner)", "place = column",
        (f"{BEYOND}::test_joined_and_split_rows",),
    ),
    Mutant(
        "rows of a block behind the last part stored", UNMASKED, "split_block", JOINS,
        "own = (place < rows * run) & (at < k.size(outer * run))", "own = place >= 0",
        (f"{BEYOND}::test_joined_and_split_rows",),
    ),
    Mutant(
        "rows equal to those of earlier chunks lead, too", TWICE, "counted_rows", ROWS,
        "ahead = k.where(here, rank - below, k.where(earlier, upto - below, 0))",
        "ahead = k.where(here, rank - below, 0)",
        (f"{BEYOND}::test_rows_of_several_chunks",),
    ),
    Mutant(
        "last chunk of rows dropped", DROPPED, "counted_rows", ROWS,
        "number = (count + CHUNK.value - 1) // CHUNK.value", "number = count // CHUNK.value",
        (f"{BEYOND}::test_rows_of_several_chunks",),
    ),
    Mutant(
        "last iteration of a long window dropped", DROPPED, "unrolled_iterations",
        "compiler/ops/image/unrolled_reductions.py",
        "self.loop = None if few else k.loop(count)",
        "self.loop = None if few else k.loop(count - 1)",
        (f"{BEYOND}::test_windows",),
    ),
    Mutant(
        "statistics of long channels are the first one's", TWICE, "norm_positions",
        "compiler/ops/norm/batch_norm_kernels.py",
        "y = (x - saved[0][c]) * (saved[1][c] * factors[0][c]) + factors[1][c]",
        "y = (x - saved[0][c * 0]) * (saved[1][c] * factors[0][c]) + factors[1][c]",
        (f"{BEYOND}::test_batch_norm",),
    ),
)  # fmt: skip
