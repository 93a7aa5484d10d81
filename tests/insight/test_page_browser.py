"""The page in a real browser: mouse, keys, search, themes, and nothing in the console."""

import json
import struct

import chromium
import numpy as np
import pytest

import numtape as nt
from numtape.insight.page import to_html
from numtape.insight.summary import page as notebook

pytestmark = pytest.mark.browser

NASTY = "<img src=x onerror=window.broken=1></script><script>window.broken=1</script>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = chromium.Chromium(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A page of a small network: records 0 to 4, with a batch and four parameters."""
    nt.seed(0)
    net = nt.nn.Sequential(nt.nn.Linear(4, 8), nt.nn.Tanh(), nt.nn.Linear(8, 3))
    x = nt.tensor(np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32), name="batch")
    return to_html((net(x) ** 2).mean(), tmp_path_factory.mktemp("pages") / "small.html")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A page of 10,001 records, whose gradients vanish."""
    y = nt.tensor(np.linspace(0.1, 1.0, 8, dtype=np.float32), requires_grad=True, name="x")
    for i in range(5000):
        y = nt.tanh(y * nt.tensor(np.full(8, 0.99, np.float32), requires_grad=True, name=f"layers.{i}.weight"))
    return to_html(y.sum(), tmp_path_factory.mktemp("pages") / "large.html")


@pytest.fixture
def opened(browser, small):
    browser.prefer("light")
    browser.open(small)
    yield browser
    assert browser.problems == []


def selected(browser):
    found = browser.run("document.documentElement.dataset.selected")
    return int(found) if found else None


def scale(browser):
    return float(browser.run("document.getElementById('graph').dataset.scale"))


def text_of(browser, selector):
    return browser.run(f"document.querySelector({json.dumps(selector)}).innerText")


def place_of(browser, record):
    """Return where a record stands on the screen."""
    place = """(() => {
        const canvas = document.getElementById("graph");
        const box = canvas.getBoundingClientRect();
        const place = JSON.parse(document.getElementById("data").textContent).places.records[NUMBER];
        const { x, y, scale } = canvas.dataset;
        return [box.x + box.width / 2 + (place[0] - x) * scale, box.y + box.height / 2 + (place[1] - y) * scale];
    })()"""
    return browser.run(place.replace("NUMBER", str(record)))


def test_the_page_asks_the_network_for_nothing(opened, small):
    assert opened.requests == [small.as_uri()]
    assert text_of(opened, "#totals").startswith("5 records · ")


def test_a_click_selects_a_record_and_shows_all_about_it(opened):
    opened.click(*place_of(opened, 2))
    assert selected(opened) == 2
    details = text_of(opened, "#details")
    for part in (
        "%2 linear",
        "(5, 3)",
        "float32",
        "60 (60 B)",
        "test_page_browser.py:",
        "2.weight (3, 8)",
        "grad norm",
    ):
        assert part in details
    opened.click_on("#details li button")
    assert selected(opened) == 1
    opened.click(*[place_of(opened, 0)[0] - 300, place_of(opened, 0)[1]])
    assert selected(opened) is None


def test_the_wheel_the_buttons_and_the_keys_zoom(opened):
    fitted = scale(opened)
    x, y = place_of(opened, 1)
    opened.wheel(x, y, -400)
    assert scale(opened) > 1.5 * fitted
    # What is under the pointer stays there.
    assert place_of(opened, 1) == pytest.approx([x, y], abs=1.0)
    opened.click_on("#zoom-fit")
    assert scale(opened) == pytest.approx(fitted)
    opened.click_on("#zoom-in")
    assert scale(opened) == pytest.approx(1.3 * fitted)
    opened.click_on("#zoom-out")
    opened.run("document.getElementById('graph').focus()")
    opened.press("+")
    assert scale(opened) == pytest.approx(1.3 * fitted)
    opened.press("0")
    assert scale(opened) == pytest.approx(fitted)


def test_dragging_moves_the_graph_and_selects_nothing(opened):
    x, y = place_of(opened, 1)
    opened.drag((x, y), (x + 90, y - 40))
    assert place_of(opened, 1) == pytest.approx([x + 90, y - 40], abs=1.5)
    assert selected(opened) is None


def test_search_finds_by_op_name_and_shape_and_goes_through_the_matches(opened):
    opened.press("/")
    assert opened.run("document.activeElement.id") == "search"
    opened.type("linear")
    assert text_of(opened, "#search-count") == "2 matches"
    assert opened.run("document.querySelectorAll('.option').length") == 2
    opened.press("Enter")
    assert selected(opened) == 0
    opened.press("Enter")
    assert selected(opened) == 2
    opened.press("Enter", shift=True)
    assert selected(opened) == 0
    opened.press("Escape")
    assert text_of(opened, "#search-count") == ""
    opened.type("2.weight leaf")
    assert text_of(opened, "#search-count") == "1 match"
    opened.press("Escape")
    opened.type("no such thing")
    assert text_of(opened, "#search-count") == "0 matches"


def test_arrow_keys_walk_along_links_and_are_announced(opened):
    opened.run("document.getElementById('graph').focus()")
    opened.press("End")
    assert selected(opened) == 4
    opened.press("ArrowUp", "ArrowUp")
    assert selected(opened) == 2
    opened.press("ArrowDown")
    assert selected(opened) == 3
    opened.press("ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft")
    assert selected(opened) == 0
    announced = opened.run("document.getElementById('live').textContent")
    assert announced.startswith("%0 linear, shape (5, 8), float32, 160 B")
    assert opened.run("document.getElementById('graph').getAttribute('aria-label')") == announced


def test_the_list_is_walked_with_the_keyboard(opened):
    opened.run("document.getElementById('list').focus()")
    opened.press("ArrowDown", "ArrowDown", "ArrowDown")
    assert selected(opened) == 2
    active = opened.run("document.getElementById('list').getAttribute('aria-activedescendant')")
    assert opened.run(f"document.getElementById('{active}').getAttribute('aria-selected')") == "true"
    opened.press("End")
    assert selected(opened) == 9


def test_tab_reaches_everything_in_order_and_the_focus_is_seen(opened):
    seen = []
    for _ in range(13):
        opened.press("Tab")
        seen.append(opened.run("document.activeElement.id || document.activeElement.className || 'canvas'"))
        assert opened.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert seen == [
        "skip",
        "search",
        "search-previous",
        "search-next",
        "theme",
        "zoom-in",
        "zoom-out",
        "zoom-fit",
        "colour",
        "graph",
        "tab-memory",
        "canvas",
        "list",
    ]


def test_every_control_has_a_name(opened):
    nameless = opened.run(
        """[...document.querySelectorAll("button, input, select, canvas, [tabindex]")].filter((one) =>
        !(one.getAttribute("aria-label") || one.getAttribute("aria-labelledby") || one.innerText.trim()
          || (one.labels && one.labels.length))).map((one) => one.outerHTML)"""
    )
    assert nameless == []


def test_charts_select_records_and_tabs_change_with_arrows(opened):
    opened.click_on("#chart-memory canvas")
    assert selected(opened) is not None
    opened.run("document.getElementById('tab-memory').focus()")
    opened.press("ArrowRight")
    assert opened.run("document.activeElement.id") == "tab-flow"
    assert opened.run("document.getElementById('chart-memory').hidden") is True
    opened.press("ArrowRight")
    assert "gradient norm" in text_of(opened, "#chart-layers thead")
    buttons = "[...document.querySelectorAll('#chart-layers button')].map((button) => button.textContent)"
    assert opened.run(buttons) == ["0", "2"]
    opened.click_on("#chart-layers button")
    assert selected(opened) == 0


def test_dark_and_light_follow_the_system_and_the_button(opened):
    colour = "getComputedStyle(document.body).backgroundColor"
    light = opened.run(colour)
    opened.prefer("dark")
    dark = opened.run(colour)
    assert dark != light
    opened.click_on("#theme")
    assert opened.run(colour) == light
    assert opened.run("document.getElementById('theme').getAttribute('aria-pressed')") == "false"


def test_colours_can_tell_numbers_instead_of_kinds(opened):
    assert text_of(opened, "#legend").splitlines() == [
        "elementwise",
        "products (matmul, convolution)",
        "along axes (sum, softmax)",
        "leaf",
        "constant",
    ]
    opened.run(
        "(() => { const s = document.getElementById('colour'); s.value = 'grad_norm';"
        " s.dispatchEvent(new Event('change')); })()"
    )
    opened.settle()
    assert text_of(opened, "#legend").startswith("low: ")


def test_a_screenshot_shows_cards_in_both_themes(opened, tmp_path):
    for theme in ("light", "dark"):
        opened.prefer(theme)
        png = opened.screenshot(tmp_path / f"{theme}.png")
        assert struct.unpack(">II", png[16:24]) == (1280, 800)
        x, y = place_of(opened, 0)
        colours = opened.run(
            f"""(() => {{
            const canvas = document.getElementById("graph");
            const box = canvas.getBoundingClientRect();
            const [x, y] = [{x} - box.x, {y} - box.y];
            const copy = document.createElement("canvas");
            [copy.width, copy.height] = [canvas.width, canvas.height];
            const pixels = copy.getContext("2d", {{ willReadFrequently: true }});
            pixels.drawImage(canvas, 0, 0);
            const at = (dx) => [...pixels.getImageData(x + dx, y, 1, 1).data].slice(0, 3);
            return [at(-81 * canvas.dataset.scale), at(70 * canvas.dataset.scale)];
        }})()"""
        )
        # The band says that linear is a product; the card has the theme's colour.
        assert colours == [[230, 159, 0], {"light": [255, 255, 255], "dark": [32, 37, 43]}[theme]]


def test_names_stay_text(browser, tmp_path):
    x = nt.tensor([1.0, 2.0], requires_grad=True, name=NASTY)
    loss = (x * 2.0).sum()
    loss.name = NASTY
    browser.open(to_html(loss, tmp_path / "nasty.html", title=NASTY))
    browser.run("document.getElementById('graph').focus()")
    browser.press("End", "ArrowUp", "ArrowUp")
    assert NASTY in text_of(browser, "#details h2")
    assert text_of(browser, "#title") == NASTY
    assert browser.run("window.broken === undefined && document.images.length === 0") is True
    assert browser.problems == []
    assert len(browser.requests) == 1


def test_ten_thousand_records_are_searched_and_drawn_without_delay(browser, large):
    browser.open(large)
    assert text_of(browser, "#totals").startswith("10,001 records")
    assert browser.run("document.querySelectorAll('.option').length") < 60
    browser.press("/")
    browser.type("layers.4321 mul")
    assert text_of(browser, "#search-count") == "1 match"
    browser.press("Enter")
    assert selected(browser) == 8642
    browser.press("Escape")
    browser.type("vanishing")
    assert int(text_of(browser, "#search-count").split()[0]) > 1000
    browser.press("Escape")
    browser.run("document.getElementById('graph').focus()")
    browser.press("End", "0", "+", "+", "+", "+", "ArrowUp")
    assert selected(browser) == 9999
    assert browser.problems == []


def test_an_empty_graph_and_a_freed_one_say_so(browser, tmp_path):
    browser.open(to_html([], tmp_path / "empty.html"))
    assert text_of(browser, "#details") == "Nothing was recorded here."
    browser.run("document.getElementById('graph').focus()")
    browser.press("End", "ArrowUp", "+", "0")
    assert browser.problems == []
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    loss = nt.exp(x).sum()
    loss.backward()
    browser.open(to_html(loss, tmp_path / "freed.html"))
    assert text_of(browser, "#notes").startswith("No gradient norms: a backward has freed the arrays")
    assert browser.problems == []


def test_a_narrow_screen_shows_everything_below_each_other(browser, small):
    browser.resize(420, 800)
    browser.open(small)
    assert browser.run("document.documentElement.scrollWidth") <= 420
    browser.resize(1280, 800)
    assert browser.problems == []


def test_the_frame_of_a_notebook_draws_itself(browser, tmp_path):
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><body>{notebook(nt.records(nt.exp(x).sum()))}</body>")
    browser.open(path, ready="document.querySelector('iframe')")
    browser.click_on("iframe")
    browser.screenshot(tmp_path / "notebook.png")
    assert browser.problems == []
