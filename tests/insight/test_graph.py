"""Graphs as plain data: what is in them, where numbers come from, and the way through JSON and DOT."""

import json
import math
import threading

import numpy as np
import pytest

import numtape as nt
from numtape.core.record import Block
from numtape.errors import NotConnectedError, OperandError, SavedFileError
from numtape.insight.describing import describe, graph_of
from numtape.insight.dot import to_dot
from numtape.insight.graph import Graph
from numtape.insight.graph_flow import mark_all
from numtape.insight.graph_json import from_json, to_json
from numtape.insight.layout import MOST_IN_A_ROW, STEP_X, layout
from numtape.insight.summary import page, text


def model():
    nt.seed(0)
    return nt.nn.Sequential(nt.nn.Linear(4, 8), nt.nn.Tanh(), nt.nn.Linear(8, 3))


def loss_of(net, name="batch"):
    x = nt.tensor(np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32), name=name)
    return (net(x) ** 2).mean()


def leaf(values=(1.0, 2.0), name="x", dtype=None):
    return nt.tensor(values, requires_grad=True, name=name, dtype=dtype)


def test_a_record_says_op_links_shape_bytes_line_and_layer():
    graph = graph_of("to_html", loss_of(model()))
    assert [node.op for node in graph.records] == ["linear", "tanh", "linear", "square", "mean"]
    first = graph.records[0]
    assert [graph.sources[~link].name for link in first.inputs] == ["batch", "0.weight", "0.bias"]
    assert (first.shape, first.dtype, first.nbytes, first.layer) == ((5, 8), "float32", 160, "0")
    assert first.site.startswith("test_graph.py:")
    assert first.site.endswith("(return (net(x) ** 2).mean())")
    assert first.file.endswith("test_graph.py")
    assert graph.records[1].inputs == (0,)
    assert graph.records[3].inputs == (2,)
    assert [layer.name for layer in graph.layers] == ["0", "2"]
    assert [source.kind for source in graph.sources[:3]] == ["constant", "leaf", "leaf"]


def test_a_line_with_a_division_is_shown_whole():
    x = leaf()
    y = x / 2.0
    assert text(nt.records(y)).splitlines()[2].endswith("(y = x / 2.0)")


def test_values_and_norms_come_from_what_the_graph_keeps():
    x = leaf([3.0, -4.0])
    y = nt.exp(x)
    graph = graph_of("to_html", (y * 2.0).sum())
    kept = graph.records[0].numbers
    assert kept["max"] == pytest.approx(math.exp(3.0))
    assert kept["mean"] == pytest.approx((math.exp(3.0) + math.exp(-4.0)) / 2)
    assert kept["grad_norm"] == pytest.approx(math.sqrt(8.0))
    assert graph.sources[0].numbers["grad_norm"] == pytest.approx(2 * math.hypot(math.exp(3.0), math.exp(-4.0)))
    assert graph.target == 2
    assert graph.notes == ()
    assert x.grad is None


def test_drawing_leaves_graph_gradients_and_retained_tensors_alone():
    x = leaf()
    y = nt.exp(x)
    y.retain_grad()
    loss = y.sum()
    graph_of("to_html", loss)
    assert y.grad is None
    loss.backward()
    assert y.grad.tolist() == [1.0, 1.0]


def test_hooks_are_not_called_and_the_page_says_so():
    x = leaf()
    calls = []
    x.register_hook(calls.append)
    graph = graph_of("to_html", (x * x).sum())
    assert calls == []
    assert graph.notes == (
        "No gradient norms: the graph has hooks, and a picture does not call them; run it under "
        "`with nt.profile(values=True) as p` and draw it with profile=p.",
    )


def test_a_freed_graph_is_drawn_with_norms_of_its_leaves():
    x = leaf([3.0, 4.0])
    loss = (x * 1.0).sum() + nt.exp(x).sum()
    before = graph_of("to_html", loss).memory
    loss.backward()
    graph = graph_of("to_html", loss)
    assert {node.kept for node in graph.records} == {"freed"}
    assert graph.memory == before
    assert graph.sources[0].numbers["grad_norm"] == pytest.approx(math.hypot(1 + math.exp(3), 1 + math.exp(4)))
    assert graph.notes == (
        "No gradient norms: a backward has freed the arrays of this graph. Draw it before backward, call backward with "
        "retain_graph=True, or run it under `with nt.profile(values=True) as p` and draw it with profile=p.",
    )


def test_a_rule_that_raises_costs_the_norms_and_not_the_picture():
    @nt.custom_gradient
    def broken(x):
        def gradient(g):
            raise ZeroDivisionError("in my rule")

        return x * 1.0, gradient

    graph = graph_of("to_html", broken(leaf()).sum())
    assert len(graph.records) == 2
    assert "ZeroDivisionError: in my rule" in graph.notes[0]


def test_a_profile_takes_the_place_of_what_the_graph_keeps():
    loss = nt.exp(leaf()).sum()
    first, second = nt.records(loss)
    profile = {
        first.index: {"seconds": 0.5, "mean": 7.0, "grad_norm": 1e-9, "live_bytes": 8, "backward_live_bytes": 4},
        second.index: {"grad_norm": 1.0, "live_bytes": 16, "backward_live_bytes": 20},
    }
    graph = graph_of("to_html", loss, profile)
    assert graph.records[0].numbers == {
        "seconds": 0.5,
        "mean": 7.0,
        "grad_norm": 1e-9,
        "live_bytes": 8.0,
        "backward_live_bytes": 4.0,
        "flops": 16.0,
    }
    assert graph.records[0].mark == "vanishing"
    assert (graph.memory.forward, graph.memory.backward, graph.memory.is_measured) == ((8, 16), (20, 4), True)


def test_a_profile_that_is_no_mapping_is_refused():
    with pytest.raises(OperandError) as error:
        graph_of("to_html", leaf() * 2.0, profile=[1.0])
    assert str(error.value) == (
        "to_html: the profile is of type list; it must be a mapping from the index of a record to a dict of numbers."
    )


def test_values_that_are_not_finite_are_counted():
    x = leaf([0.0, 1.0, math.nan, -1.0])
    with np.errstate(all="ignore"):
        y = 1.0 / x
    numbers = graph_of("to_html", nt.exp(y).sum()).records[0].numbers
    assert (numbers["nans"], numbers["infs"], numbers["min"], numbers["max"]) == (1.0, 1.0, -1.0, 1.0)


@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16])
def test_half_precision_has_statistics_that_do_not_overflow(dtype):
    x = leaf([60000.0] * 4, dtype=dtype)
    node = graph_of("to_html", nt.relu(x).mean()).records[0]
    assert node.dtype == str(np.dtype(dtype))
    assert node.numbers["mean"] == pytest.approx(60000.0, rel=0.01)


def test_gradients_that_vanish_explode_or_fail_are_marked_by_the_one_nearest_to_the_loss():
    assert mark_all([1e-9, 1e6, 0.0, math.nan, None, 0.5, 2.0]) == [
        "vanishing",
        "exploding",
        "zero",
        "not finite",
        "",
        "",
        "",
    ]
    assert mark_all([0.0, None]) == ["zero", ""]


def test_a_deep_sigmoid_network_has_vanishing_layers():
    nt.seed(0)
    net = nt.nn.Sequential(*[part for _ in range(12) for part in (nt.nn.Linear(4, 4), nt.nn.Sigmoid())])
    graph = graph_of("to_html", loss_of(net))
    assert graph.layers[0].mark == "vanishing"
    assert graph.layers[-1].mark == ""


def test_memory_grows_with_kept_values_and_falls_behind_the_sweep():
    x = nt.tensor(np.ones(1000, np.float32), requires_grad=True)
    memory = graph_of("to_html", nt.exp(nt.exp(x)).sum()).memory
    assert memory.forward == (4000, 8000, 8000)
    # The seed and the cotangent of the newer exp; both cotangents; the older one alone.
    assert memory.backward == (8000 + 4 + 4000, 8000 + 8000, 4000 + 4000)


def test_dropped_values_are_held_from_where_they_are_made_again():
    x = nt.tensor(np.ones(1000, np.float32), requires_grad=True)
    loss = nt.exp(nt.exp(x)).sum()
    block = Block()
    for record in nt.records(loss)[:2]:
        record.array = block
    graph = graph_of("to_html", loss)
    assert [node.kept for node in graph.records] == ["dropped", "dropped", ""]
    assert graph.memory.forward == (0, 0, 0)
    # Both are made again at once, since they were dropped together.
    assert graph.memory.backward == (4 + 4000, 8000 + 8000, 4000 + 4000)


def test_a_view_holds_no_memory_of_its_own():
    x = leaf(np.ones((4, 4), np.float32))
    memory = graph_of("to_html", nt.exp(nt.exp(x).reshape(16)).sum()).memory
    assert memory.forward == (64, 64, 128, 128)


def test_an_op_with_several_outputs_shows_all_shapes():
    x = leaf(np.diag([1.0, 2.0]))
    graph = graph_of("to_html", nt.eigh(x)[0].sum())
    assert graph.records[0].shape == ((2,), (2, 2))
    assert from_json(to_json(graph)).records[0].shape == ((2,), (2, 2))


def test_a_tape_that_lists_a_part_shows_where_it_comes_from():
    x = leaf()
    before = nt.exp(x)
    with nt.Tape() as tape:
        (before * 2.0).sum()
    graph = describe(tape.records)
    assert [(source.name, source.kind) for source in graph.sources] == [("exp (earlier)", "earlier")]


def test_an_empty_tape_is_an_empty_graph():
    assert graph_of("to_html", nt.Tape()) == graph_of("to_html", [])
    assert layout(graph_of("to_html", [])) == ([], [])
    assert page([]).startswith("<p>0 records, 0 bytes computed, 0 bytes kept for derivatives</p>")


def test_a_leaf_is_an_empty_graph_and_a_streamed_tensor_a_cut_one():
    assert graph_of("to_html", leaf()).records == ()
    inside = []
    nt.jvp(lambda x: inside.append(x * x) or x, np.ones(2), np.ones(2))
    graph = graph_of("to_html", inside[0])
    assert len(graph.records) == 1
    assert graph.notes[0].startswith("No gradient norms: StreamedError: ")


def test_an_untracked_tensor_has_no_graph():
    with pytest.raises(NotConnectedError, match=r"^to_html: the tensor depends on nothing that is tracked"):
        graph_of("to_html", nt.ones(3))


def test_what_is_no_graph_is_refused():
    with pytest.raises(OperandError) as error:
        to_dot("page.html")
    assert str(error.value) == (
        "to_dot: wants a tensor, a tape, a list of records or a graph first, not str; write nt.to_dot(loss, ...)."
    )


def test_json_comes_back_as_it_was():
    loss = loss_of(model())
    once = from_json(to_json(loss))
    assert isinstance(once, Graph)
    assert from_json(to_json(once)) == once
    whole = graph_of("to_json", loss)
    assert [node.inputs for node in once.records] == [node.inputs for node in whole.records]
    assert [node.site for node in once.records] == [node.site for node in whole.records]
    assert once.memory == whole.memory
    assert once.layers[0].norm == pytest.approx(whole.layers[0].norm, rel=1e-5)


@pytest.mark.parametrize("number", [1.9999999999, 2.0, 1234567.5, 123456789.0, -0.99999999, 1e-12, 1e300])
def test_json_of_a_graph_that_was_read_is_the_same_text(number):
    loss = nt.exp(leaf()).sum()
    written = to_json(loss, profile={nt.records(loss)[0].index: {"mean": number}})
    assert to_json(from_json(written)) == written


def test_json_is_written_to_a_file_and_read_from_it(tmp_path):
    path = tmp_path / "graph.json"
    assert to_json(loss_of(model()), path) == path.read_text()
    assert len(from_json(path).records) == len(from_json(str(path)).records) == 5


def test_json_holds_numbers_that_are_not_finite():
    loss = nt.exp(leaf()).sum()
    profile = {nt.records(loss)[0].index: {"mean": math.nan, "max": math.inf, "min": -math.inf, "std": 1e300}}
    written = to_json(loss, profile=profile)
    json.loads(written, parse_constant=pytest.fail)
    numbers = from_json(written).records[0].numbers
    assert math.isnan(numbers["mean"])
    assert (numbers["max"], numbers["min"], numbers["std"]) == (math.inf, -math.inf, 1e300)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d | {"version": 2}, "has version 2, and this numtape reads version 1"),
        (lambda d: d | {"format": "other"}, "not what to_json writes"),
        (lambda d: d | {"sites": []}, "damaged (IndexError"),
        (lambda d: {k: v for k, v in d.items() if k != "memory"}, "damaged (KeyError: 'memory')"),
        (lambda d: d | {"records": [d["records"][0] | {"inputs": [5]}]}, "damaged (ValueError: record 0 reads 5)"),
        (lambda d: d | {"records": [3]}, "damaged (TypeError"),
        (lambda d: d | {"target": 5}, "damaged (ValueError: the target is 5)"),
        (lambda d: d | {"notes": "text"}, "'text' stands where a value of type list belongs"),
        (
            lambda d: d | {"sources": [d["sources"][0] | {"name": None}]},
            "None stands where a value of type str",
        ),
        (lambda d: d | {"sources": [d["sources"][0] | {"bytes": -1}]}, "-1 stands where a number from 0 on belongs"),
        (lambda d: d | {"records": [d["records"][0] | {"params": -1}]}, "-1 stands where a value of type str belongs"),
        (lambda d: d | {"records": [d["records"][0] | {"inputs": [1.5]}]}, "1.5 stands where a value of type int"),
        (lambda d: d | {"records": [d["records"][0] | {"numbers": {"mean": []}}]}, "[] stands where a number belongs"),
        (lambda d: d | {"layers": [{"name": "", "sources": [7], "norm": None, "mark": ""}]}, "has the sources (7,)"),
    ],
)
def test_a_document_that_is_not_ours_or_damaged_is_refused(change, message):
    changed = json.dumps(change(json.loads(to_json(nt.exp(leaf()).sum()))))
    with pytest.raises(SavedFileError) as error:
        from_json(changed)
    assert message in str(error.value)


def test_a_cut_off_document_is_refused():
    with pytest.raises(SavedFileError, match=r"^from_json: the document is damaged or no JSON"):
        from_json(to_json(nt.exp(leaf()).sum())[:-20])
    with pytest.raises(OperandError) as error:
        from_json(3)
    assert str(error.value) == ("from_json: wants the text of a document or a path, not int; write nt.from_json(path).")


def test_dot_names_and_links_everything(tmp_path):
    x = leaf(name='a "quoted" \\ name')
    path = tmp_path / "graph.dot"
    written = to_dot((x * 2.0).sum(), path)
    assert path.read_text() == written
    lines = written.splitlines()
    assert lines[3] == '  s0 [label="a \\"quoted\\" \\\\ name\\n(2,) float32", shape=ellipse];'
    assert lines[4].startswith('  r0 [label="%0 mul\\n(2,) float32\\n2\\ntest_graph.py:')
    assert "  s0 -> r0;" in lines
    assert "  r0 -> r1;" in lines


def test_inputs_stand_above_their_readers_and_no_two_nodes_touch():
    graph = graph_of("to_html", loss_of(model()))
    records, sources = layout(graph)
    for number, node in enumerate(graph.records):
        for link in node.inputs:
            if not isinstance(link, str):
                above = records[link] if link >= 0 else sources[~link]
                assert above[1] < records[number][1]
    places = records + sources
    assert len(set(places)) == len(places)
    for x, y in places:
        assert all(abs(x - other) >= STEP_X - 1 for other, row in places if row == y and other != x)
    # The chain is a straight line.
    assert len({x for x, _ in records}) == 1


def test_a_long_chain_is_folded_into_columns_and_a_wide_row_broken():
    x = leaf()
    y = x
    for _ in range(1000):
        y = nt.sin(y)
    places, _ = layout(graph_of("to_html", y.sum(), values=False))
    width = max(x for x, _ in places) - min(x for x, _ in places)
    height = max(y for _, y in places) - min(y for _, y in places)
    assert 0.8 < width / height < 4
    wide = sum([nt.sin(x) for _ in range(100)], start=nt.tensor(0.0)).sum()
    rows = {}
    for place in layout(graph_of("to_html", wide, values=False))[0]:
        rows.setdefault(place[1], []).append(place)
    assert len(set(places)) == 1001
    assert max(map(len, rows.values())) <= 4 * MOST_IN_A_ROW


def test_a_deep_graph_needs_no_recursion():
    y = leaf()
    for _ in range(5_000):
        y = y + 1.0
    graph = graph_of("to_html", y.sum())
    assert len(from_json(to_json(graph)).records) == 5_001
    assert len(layout(graph)[0]) == 5_001


def test_two_threads_draw_their_own_graphs():
    found = {}

    def draw(count):
        y = leaf(name=f"x{count}")
        for _ in range(count):
            y = nt.tanh(y)
        found[count] = graph_of("to_html", y.sum())

    threads = [threading.Thread(target=draw, args=(count,)) for count in (20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {count: len(graph.records) for count, graph in found.items()} == {20: 21, 30: 31}
    assert found[20].sources[0].name == "x20"


@pytest.mark.parametrize("text", ["not json", "", "no/such/file.json", "a\0b"])
def test_what_is_neither_a_document_nor_a_file_is_named(text):
    with pytest.raises(SavedFileError) as error:
        nt.from_json(text)
    assert str(error.value).startswith(
        f"from_json: {text!r} is neither a document that to_json wrote nor a file that can be read ("
    )
    assert str(error.value).endswith("); give the text itself, or the path of its file.")


def test_a_constant_keeps_its_name_after_a_backward():
    w = nt.ones(40, 40, requires_grad=True, name="w")
    batch = nt.tensor(np.ones((40, 40), np.float32), name="batch")
    loss = (w * batch).sum()
    before = [source.name for source in graph_of("to_json", loss).sources]
    loss.backward()
    assert [source.name for source in graph_of("to_json", loss).sources] == before == ["w", "batch"]
    assert "batch" in nt.summary(loss)
    del batch
    assert "batch" in nt.summary(loss)
