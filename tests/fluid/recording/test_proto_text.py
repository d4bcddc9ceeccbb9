"""The text of programs: it shows what a saved program has."""

import pytest

import fluid
from compiler.ir.model_format.protobuf import Message, parse
from fluid import layers
from fluid.recording.proto_text import block_text, message_text


@pytest.mark.parametrize("message", ["plain", 'it\'s "quoted"\\', "naïve\n\x7f", "\udcff", ""])
def test_text_is_that_of_the_saved_program(message: str) -> None:
    """Numbers of enumerations and other types, lists, and text that is escaped."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 4], "float32")
        y = layers.Print(layers.scale(layers.cast(x, "int64"), 0.1), message=message)
        layers.cond(layers.reduce_sum(y) > 1, lambda: layers.fc(x, 3), lambda: layers.fc(x, 3))
    for index, block in enumerate(main.blocks):
        saved = parse(main.serialize_to_string()).many("blocks", Message)[index]
        text = message_text(saved, shortest=True)
        said = [line for line in text.splitlines() if "need_check_feed: false" not in line]
        assert block_text(block).splitlines() == [
            line for line in said if "forward_block" not in line
        ]
    assert 'name: "message"' in str(main)
