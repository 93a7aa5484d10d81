"""The page: one file, whole, without a network, in which nothing that a user can name becomes code."""

import html
import json
import re
from importlib.resources import files

import numpy as np
import pytest

import numtape as nt
from numtape.core.facts import Structure
from numtape.errors import NotConnectedError, OperandError
from numtape.insight.page import SCRIPTS, frame, to_html
from numtape.insight.summary import MOST_DRAWN, page

NASTY = '</script><script>alert(1)</script><img src=x onerror="alert(2)"><!--data--> & \' "'


def leaf(name="x"):
    return nt.tensor([1.0, 2.0], requires_grad=True, name=name)


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


def test_the_page_holds_the_graph_and_where_it_stands(tmp_path):
    path = to_html((leaf() * 2.0).sum(), tmp_path / "tape.html")
    assert path == tmp_path / "tape.html"
    data = data_of(path.read_text())
    assert [record["op"] for record in data["records"]] == ["mul", "sum"]
    assert (data["format"], data["version"], data["title"]) == ("numtape graph", 1, "tape")
    assert len(data["places"]["records"]) == 2


def test_a_name_cannot_become_markup_or_code(tmp_path):
    x = leaf(NASTY)
    loss = x.sum()
    loss.name = NASTY
    text = to_html(loss, tmp_path / "tape.html", title=NASTY).read_text()
    assert text.count("<script") == 2
    assert "<script>alert" not in text
    assert "<img" not in text
    assert f"<title>{html.escape(NASTY)}</title>" in text
    data = data_of(text)
    assert data["sources"][0]["name"] == data["records"][0]["name"] == data["title"] == NASTY


def test_nothing_may_load_and_only_our_script_may_run(tmp_path):
    text = to_html(leaf().sum(), tmp_path / "tape.html").read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert not re.search(r"(?:src|href)=[\"'](?!#)", text)
    assert "http://" not in text
    assert "https://" not in text


def test_scripts_put_text_in_and_never_markup():
    for name in SCRIPTS:
        script = files("numtape.insight").joinpath("page_assets", name).read_text()
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch("):
            assert word not in script, name


def test_ten_thousand_records_stay_under_ten_megabytes(tmp_path):
    x = nt.tensor(np.linspace(0.1, 1.0, 8, dtype=np.float32), requires_grad=True, name="x")
    y = x
    for i in range(5000):
        y = nt.tanh(y * nt.tensor(np.ones(8, np.float32), requires_grad=True, name=f"layers.{i}.weight"))
    path = to_html(y.sum(), tmp_path / "large.html")
    assert len(data_of(path.read_text())["records"]) == 10_001
    assert path.stat().st_size < 10e6


def test_an_old_page_stays_if_the_new_one_cannot_be_made(tmp_path):
    path = tmp_path / "tape.html"
    path.write_text("old")
    with pytest.raises(NotConnectedError):
        to_html(nt.ones(2), path)
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["tape.html"]
    with pytest.raises(FileNotFoundError):
        to_html(leaf().sum(), tmp_path / "nowhere" / "tape.html")


def test_swapped_arguments_are_named():
    with pytest.raises(OperandError) as error:
        to_html("tape.html", leaf().sum())
    assert str(error.value) == "to_html: the path is of type Tensor; write nt.to_html(loss, 'tape.html')."


def test_an_empty_tape_has_a_page(tmp_path):
    assert data_of(to_html(nt.Tape(), tmp_path / "empty.html").read_text())["records"] == []


def test_notebooks_show_the_page_in_a_frame_that_shares_nothing(tmp_path):
    with nt.Tape() as tape:
        (nt.tensor([1.0], name=NASTY) * 2.0).sum()
    shown = tape._repr_html_()
    assert 'sandbox="allow-scripts"' in shown
    assert "<script" not in shown
    inside = html.unescape(re.search(r'srcdoc="([^"]*)"', shown)[1])
    assert data_of(inside)["sources"][0]["name"] == NASTY
    assert "2 records, 8 bytes computed, 0 bytes kept for derivatives</summary><table>" in shown


def test_showing_a_tape_in_a_notebook_runs_no_sweep():
    x = leaf()
    calls = []
    y = x * x
    y.register_hook(calls.append)
    data = data_of(html.unescape(page(nt.records(y.sum()))))
    assert calls == []
    assert data["notes"] == []
    assert "grad_norm" not in json.dumps(data["records"])


def test_a_very_large_tape_is_only_a_table_in_notebooks():
    y = leaf()
    for _ in range(MOST_DRAWN):
        y = y + 1.0
    shown = page(nt.records(y.sum()))
    assert "<iframe" not in shown
    assert shown.count("<tr>") == 42


def test_a_graph_that_was_read_again_has_the_same_page(tmp_path):
    from numtape.insight.describing import graph_of
    from numtape.insight.graph_json import from_json, to_json

    graph = graph_of("to_html", (leaf() * 2.0).sum())
    assert data_of(html.unescape(frame(from_json(to_json(graph))))) == data_of(html.unescape(frame(graph)))


def test_every_kind_of_op_has_a_colour_of_its_own_in_the_legend():
    drawing = (files("numtape.insight") / "page_assets" / "drawing.js").read_text(encoding="utf-8")
    colours = dict(re.findall(r'^  (\w+): \{ colour: "(#\w+)", text: "', drawing, re.MULTILINE))
    kinds = [structure.name.lower() for structure in Structure]
    assert not set(kinds) - set(colours)
    assert len({colours[kind] for kind in kinds}) == len(kinds)
