"""Native kernels over images [N, H, W, C], and transposes.

Each function returns `products.contraction.Steps`: kernels in order, the names of the arrays that
their slots hold, the elements of scratch arrays (each as large as the op's own, "positions" is of
integers of that size), and in `prepare` the kernels that depend on filters alone. Where a function
takes an `epilogue` (`products.epilogue.Epilogue`), its operands have strides over the axes image,
row, column, channel of the output, which the epilogue calls "out". The batch may be an open size
everywhere; heights and widths everywhere but in Winograd's convolution. Channels are known.

| function | computes | operands | scratch |
|---|---|---|---|
| `depthwise.depthwise` | convolution by channel | images, filters, out | packed |
| `depthwise_gradient.depthwise_image_gradient` | gradient | d_out, filters, d_images | packed |
| `depthwise_gradient.depthwise_filter_gradient` | gradient | images, d_out, d_filters | partials |
| `winograd.winograd` | 3 × 3 convolution | images, filters, out | packed, tiles, products, taps |
| `pooling.pool` | windows, maximum or mean | images, out | |
| `pooling.pool_gradient` | its gradient | images, out, d_out, d_images | positions or shares |
| `transposes.transpose` | any order of axes | X, Out | |

Windows on rows and columns are `ir.windows.StaticWindow`, in `sliding.ImageWindows` with the
channels, `vectors.Channels`.
`winograd.winograd` returns `BlockedSteps`, whose calls run for each `winograd.BLOCK` = 0, 1, …
below `blocks`; `winograd.pays` says whether it beats direct convolution. The gradient of a 3 × 3
convolution by its images is `winograd` on flipped filters with the padding 2 - padding.

To read: `positions` (taps and tiles), `window_loops`, `results` (the way to the output), then a
kernel: `depthwise`, `pooling`.
"""
