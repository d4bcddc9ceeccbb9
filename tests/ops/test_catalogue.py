"""docs/ops.md equals the registry."""

from pathlib import Path

from tests.ops.catalogue import catalogue

TABLE = Path(__file__).resolve().parents[2] / "docs" / "ops.md"


def test_the_table_of_ops_is_up_to_date(update: bool) -> None:
    if update:
        TABLE.write_text(catalogue(), encoding="utf-8")
    assert TABLE.read_text(encoding="utf-8") == catalogue(), "run pytest with --update"
