"""Reports on a compilation: HTML page and text tables of passes, graph, memory and code.

Read `page` (assembles the page from the data below and the scripts of the folder `page`), `changes`
(line diff of two stages), `stage_graph` with `graph_layers` and `graph_layout` (the drawing of the
graph), `memory` and `kernel_lines` (arena and code), `roofline` and `tables` (text tables,
formatted by `table`), `native_code` with `roofline_chart` (kernels of native code), `user_lines`
(lines of the users' scripts).
"""
