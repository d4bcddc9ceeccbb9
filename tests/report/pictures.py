"""The screenshots in docs/images: `python -m tests.report.pictures`, if chromium is installed."""

from pathlib import Path
from tempfile import TemporaryDirectory

import fluid
from compiler.debugging.explanation import study
from compiler.report.user_lines import Sources
from tests.report.browser import Browser
from tests.support.nets import zoo

ROOT = Path(__file__).resolve().parents[2]
VIEWS = {
    "report.png": "#graph/fuse_pointwise/op=batch_norm_7.tmp_2",
    "memory.png": "#memory/insert_deletes",
}


def main() -> None:
    """Draw the training step of ResNet-50."""
    recorded = zoo.build(fluid, "resnet50", image=112)
    feeds, fetches = ["img", "label"], [recorded.loss.name]
    seen = study("ResNet-50, training step", recorded.main, feeds, fetches, {"N": 8})
    with TemporaryDirectory() as folder, Browser(1360, 850) as browser:
        page = Path(folder) / "report.html"
        seen.save(page, Sources([ROOT]))
        for name, address in VIEWS.items():
            browser.open(page, address)
            browser.screenshot(ROOT / "docs" / "images" / name)
        assert browser.complaints == []


if __name__ == "__main__":
    main()
