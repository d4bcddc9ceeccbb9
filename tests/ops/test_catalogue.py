"""docs/ops.md equals the registry, and the pages have its counts."""

from pathlib import Path

from tests.ops.catalogue import NATIVE, TRITON, catalogue, kernel_count, tabulated

DOCS = Path(__file__).resolve().parents[2] / "docs"
TABLE = DOCS / "ops.md"


def test_the_table_of_ops_is_up_to_date(update: bool) -> None:
    text = catalogue()
    if update:
        TABLE.write_text(text, encoding="utf-8")
    assert TABLE.read_text(encoding="utf-8") == text, "run pytest with --update"


def test_pages_have_the_counts_of_the_table() -> None:
    coverage, native = (
        (DOCS / page).read_text(encoding="utf-8") for page in ("coverage.md", "native.md")
    )
    assert f"{len(tabulated())} ops" in coverage
    assert f"{kernel_count(NATIVE)} have" in native and f", {kernel_count(NATIVE)}," in coverage
    assert f"Triton kernels for {kernel_count(TRITON)}," in coverage
