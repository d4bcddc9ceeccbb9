"""The page in a real browser: it opens without a complaint, and hands find their way in it."""

import time
from pathlib import Path

import pytest

import fluid
from compiler.cost.gpu_limits import GPUS
from compiler.debugging.explanation import Study, study, study_graph
from compiler.ir.text.parser import parse
from compiler.options import Options
from compiler.passes.pipeline import pipeline
from compiler.report.user_lines import Sources
from fluid.cli import main as cli
from tests.report.browser import Browser, chromium
from tests.report.test_page import EVIL, GRAPH
from tests.support.nets import zoo

pytestmark = [
    pytest.mark.skipif(chromium() is None, reason="no chromium on this machine"),
    pytest.mark.slow,
]


def network() -> Study:
    """A training step of a small residual network, whose lines are in this file."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        image, label = (
            fluid.data("image", [None, 3, 16, 16]),
            fluid.data("label", [None, 1], "int64"),
        )
        result = fluid.layers.conv2d(image, 8, 3, padding=1, bias_attr=False)
        result = fluid.layers.batch_norm(result, act="relu")
        more = fluid.layers.conv2d(result, 8, 3, padding=1, act="relu")
        result = fluid.layers.elementwise_add(result, more, act="relu")
        classes = fluid.layers.fc(result, 10, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(classes, label))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return study("small", main, ["image", "label"], [loss.name], {"N": 4})


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    network().save(path, Sources([Path(__file__).parents[2]]))
    return path


@pytest.fixture(scope="module")
def shared():
    with Browser(1300, 820) as result:
        yield result


@pytest.fixture
def browser(shared, page):
    """The page, opened afresh; at the end, nothing that the browser complained of."""
    shared.complaints.clear()
    shared.open(page)
    yield shared
    assert shared.complaints == []


def lit(browser: Browser) -> str:
    """The pass that is chosen, and the view."""
    chosen = "document.querySelector('#rail [aria-current] .name').textContent"
    tab = "document.querySelector('#tabs [aria-selected=true]').textContent"
    return browser.evaluate(f"{chosen} + ' ' + {tab}")


NAMES = ["start", *(pass_.name for pass_ in pipeline(Options()))]


def row(name: str) -> str:
    """A pass in the table."""
    return f"#panel-overview tbody tr:nth-child({NAMES.index(name) + 1}) .link"


def item(name: str) -> str:
    """A pass in the rail."""
    return f"#rail li:nth-child({NAMES.index(name) + 1}) button"


def test_arrows_step_through_the_passes_and_numbers_through_the_views(browser):
    assert lit(browser) == "insert_deletes Overview"
    browser.press("ArrowLeft")
    assert lit(browser) == "reuse_memory Overview"
    while not lit(browser).startswith("fuse_pointwise"):
        browser.press("ArrowLeft")
    browser.press("2")
    assert lit(browser) == "fuse_pointwise Changes"
    assert "@k0" in browser.text("#panel-changes")
    assert "test_browser.py:" in browser.text("#panel-changes")
    assert 'act="relu"' in browser.text("#panel-changes .source")
    for _ in range(30):
        browser.press("ArrowLeft")
    assert lit(browser) == "as written Changes"


def test_clicks_go_from_the_table_to_changes_and_refusals(browser):
    browser.click_on(row("fuse_batch_norm"))
    assert lit(browser) == "fuse_batch_norm Changes"
    assert "statistics of the batch" in browser.text(".missed")
    browser.click_on(".missed .link")
    assert lit(browser) == "fuse_batch_norm Graph"
    assert "missed optimisations\nfuse_batch_norm" in browser.text("#detail")
    assert "● 1 missed" in browser.text("#whatnow")
    browser.press("2")
    browser.click_on(item("fuse_pointwise"))
    assert lit(browser) == "fuse_pointwise Changes"
    before = browser.evaluate("document.querySelectorAll('.diff tr').length")
    browser.click_on(".fold button")
    assert browser.evaluate("document.querySelectorAll('.diff tr').length") > before


def test_search_finds_an_op_and_shows_it_in_the_middle(browser):
    browser.press("/")
    browser.type("batch_norm_grad")
    assert "batch_norm_grad" in browser.text("#found")
    browser.press("Enter")
    assert lit(browser) == "insert_deletes Graph"
    detail = browser.text("#detail")
    assert detail.startswith("batch_norm_grad")
    assert "test_browser.py:" in detail and "f32[N, 8, 16, 16]" in detail and "32.0 KiB" in detail
    box = browser.box("canvas.graph")
    browser.press("Escape")
    assert browser.text("#detail").startswith("Select an op")
    x, y = box["x"], box["y"] + box["height"] / 2
    while "batch_norm_grad" not in browser.text("#tip"):
        x += 20
        assert x < box["x"] + box["width"]
        browser.mouse("mouseMoved", x, y)
        browser.frame()
    assert "f32[N, 8, 16, 16]" in browser.text("#tip")
    browser.click(x, y)
    assert browser.text("#detail").startswith("batch_norm_grad")


def test_the_graph_is_drawn_zooms_and_pans(browser):
    browser.press("3")
    assert "forward" not in browser.evaluate("document.title")
    first = picture(browser)
    browser.press("+")
    second = picture(browser)
    assert first != second
    box = browser.box("canvas.graph")
    x, y = box["x"] + 300, box["y"] + 300
    browser.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
    browser.mouse("mouseMoved", x + 80, y + 60, button="left", buttons=1)
    browser.mouse("mouseReleased", x + 80, y + 60, button="left", clickCount=1)
    browser.frame()
    assert picture(browser) != second
    browser.press("0")
    assert len(set(picture(browser))) > 20


def picture(browser: Browser) -> str:
    browser.frame()
    return browser.evaluate("document.querySelector('canvas.graph').toDataURL()")


def test_the_images_of_passes_differ_where_the_passes_did_something(browser):
    browser.press("3")
    last = picture(browser)
    browser.press("ArrowLeft")
    assert "labelled" in browser.text("#whatnow")
    assert picture(browser) != last


def test_memory_explains_its_peak_and_every_step(browser):
    browser.press("4")
    assert browser.text("#alive h3").startswith("Peak: ")
    rows = browser.evaluate("document.querySelectorAll('.alive tbody tr').length")
    assert rows > 3
    browser.press("ArrowDown")
    assert browser.text("#alive h3").startswith("Live: ")
    assert "/step=" in browser.evaluate("location.hash")
    browser.press("p")
    assert browser.text("#alive h3").startswith("Peak: ")
    browser.click_on(".alive tbody tr th .link")
    assert lit(browser) == "insert_deletes Graph"


def test_code_shows_the_functions_that_a_kernel_calls(shared, tmp_path):
    shared.complaints.clear()
    path = tmp_path / "triton.html"
    study_graph("triton", parse(GRAPH), {"N": 8}, target="triton").save(path)
    shared.open(path, "#code")
    assert "calls " in shared.text("#kernel") and "@triton.jit" in shared.text("#kernel")
    assert "[object" not in shared.text("#kernel")
    assert shared.complaints == []


def test_the_overview_has_the_account_of_every_pass(shared, tmp_path):
    shared.complaints.clear()
    path = tmp_path / "account.html"
    seen = study_graph("account", parse(GRAPH), {"N": 8}, target="triton")
    path.write_text(seen.html(gpu=GPUS["h200"]), encoding="utf-8")
    shared.open(path)
    shown = shared.text("#panel-overview")
    assert "Cost on h200, N = 8" in shown and "of ideal" in shown and "bound by" in shown
    assert "mul_scale_relu" in shown and "undefined" not in shown and "NaN" not in shown
    assert shared.complaints == []


def test_code_shows_each_kernel_with_its_ops(browser):
    browser.press("5")
    assert "conv2d + elementwise_add + relu" in browser.text("#kernel h2")
    assert "np." in browser.text("#kernel .listing")
    kernels = browser.evaluate("document.querySelectorAll('#kernels li').length")
    for _ in range(3):
        browser.press("ArrowUp")
    browser.click_on("#kernel details summary")
    assert "def bind(" in browser.text("#kernel details")
    assert kernels > 10


def test_an_address_leads_to_the_place_it_names(browser, page):
    browser.press("3")
    for _ in range(3):
        browser.press("ArrowDown")
    address, detail = browser.evaluate("location.hash"), browser.text("#detail")
    assert address.startswith("#graph/insert_deletes/op=")
    browser.open(page, address)
    assert browser.text("#detail") == detail
    for odd in (
        "#none/none/op=none",
        "#memory/x/step=99999&kernel=-3",
        "#%E0%A4%A",
        "#code//kernel=z",
    ):
        browser.open(page, odd)
        assert (
            browser.evaluate("document.querySelectorAll('main > section:not([hidden])').length")
            == 1
        )


def test_it_is_accessible(browser):
    """Everything one can press has a name; what is drawn has one too; the tabs are tabs."""
    nameless = (
        "[...document.querySelectorAll('button, input, canvas, [role]')].filter((e) =>"
        " !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length"
        " || e.getAttribute('aria-hidden') || e.getAttribute('aria-labelledby'))).map((e) => e.outerHTML)"
    )
    for view in "12345":
        browser.press(view)
        left = [html for html in browser.evaluate(nameless) if 'id="found"' not in html]
        assert [html for html in left if 'id="tip"' not in html] == []
    assert browser.evaluate("document.documentElement.lang") == "en"


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1300, "dark")])
def test_it_fits_small_and_dark_screens(page, width, scheme):
    with Browser(width, 800, scheme) as browser:
        browser.open(page)
        for view in "12345":
            browser.press(view)
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
        dark = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert max(int(part) for part in dark.strip("rgb()").split(",")) < 60
        assert browser.complaints == []


def test_a_name_that_is_a_script_is_shown_and_does_nothing(shared, tmp_path):
    shared.complaints.clear()
    quoted = '"' + EVIL.replace('"', '\\"') + '"'
    text = GRAPH.replace("Out=h:", f"Out={quoted}:").replace("X=h", f"X={quoted}")
    path = tmp_path / "evil.html"
    study_graph(EVIL, parse(text.replace("train.py:2", quoted)), {"N": 8}).save(path)
    shared.open(path)
    for view in "12345":
        shared.press(view)
        assert "onerror" not in shared.evaluate("document.querySelector('img')?.outerHTML || ''")
    shared.press("3")
    shared.press("ArrowDown")
    assert "onerror" in shared.text("#detail")
    assert "caught" not in shared.evaluate("document.title").split(" · ")[0]
    assert shared.evaluate("document.scripts.length") == 3
    assert shared.complaints == []


def test_resnet_50_is_inspected_within_ten_seconds_and_moves_smoothly(shared, tmp_path, capsys):
    shared.complaints.clear()
    model, path = tmp_path / "resnet50.pdmodel", tmp_path / "report.html"
    main = zoo.build(fluid, "resnet50", image=112).main
    model.write_bytes(main.desc.serialize_to_string())
    start = time.process_time()
    assert cli.main(["inspect", str(model), "--size", "N=8", "--html", str(path)]) == 0
    assert time.process_time() - start < 10
    assert "momentum × 161" in capsys.readouterr().out
    shared.open(path, "#graph/schedule")
    frames = shared.evaluate(
        "new Promise((done) => { const times = []; const canvas = document.querySelector('canvas.graph');"
        " const step = (now) => { times.push(now); canvas.dispatchEvent(new WheelEvent('wheel', {deltaY: 40}));"
        " times.length < 21 ? requestAnimationFrame(step) : done(times[20] - times[0]); };"
        " requestAnimationFrame(step); })"
    )
    assert frames / 20 < 100, f"{frames / 20:.0f} ms a frame"
    shared.press("0")
    assert shared.complaints == []
