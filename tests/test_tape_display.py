"""What a tape shows of what it recorded."""

import copy
import pickle

import numpy as np
import pytest

import numtape as nt
from numtape.errors import (
    GradientError,
    NotConnectedError,
)


def test_backward_steps_show_each_record_with_its_cotangents():
    x = nt.tensor(3.0)
    with nt.Tape() as tape:
        z = x * x
        y = z * 5.0 + x
    steps = list(tape.backward_steps(y))
    assert [record.op.name for record, _, _ in steps] == ["add", "mul", "mul"]
    assert [float(g) for _, g, _ in steps] == [1.0, 1.0, 5.0]
    produced = [[None if c is None else float(c) for c in out] for _, _, out in steps]
    assert produced == [[1.0, 1.0], [5.0, None], [15.0, 15.0]]
    assert [record for record, _, _ in steps] == tape.records[::-1]


def test_backward_steps_show_arrays_for_numbers_too():
    x = nt.tensor([3.0, 1.0, 2.0])
    with nt.Tape() as tape:
        y = x[0] * 2.0 * x[1]
        sign, size = nt.slogdet(nt.diag(nt.stack([y, y * y])))
        loss = size + sign * 0.0
    for _, g, produced in tape.backward_steps(loss):
        for part in (*(g if isinstance(g, list) else [g]), *produced):
            assert part is None or type(part) is np.ndarray


def test_backward_steps_deliver_and_free_nothing():
    w = nt.tensor(3.0, requires_grad=True)
    tape = nt.Tape()
    with tape:
        y = w * w
    assert len(list(tape.backward_steps(y))) == 1
    assert w.grad is None
    y.backward()
    assert w.grad.item() == 6.0


def test_backward_steps_check_their_loss_when_called():
    with pytest.raises(NotConnectedError, match=r"^backward_steps: the tensor depends on nothing"):
        nt.Tape().backward_steps(nt.tensor(1.0))


def test_records_are_listed_oldest_first_and_the_list_is_a_copy():
    x = nt.tensor([1.0, 2.0])
    with nt.Tape() as tape:
        y = (x * x).exp().sum()
    assert [record.op.name for record in tape.records] == ["mul", "exp", "sum"]
    tape.records.clear()
    assert len(tape) == 3
    assert [record.op.name for record in nt.records(y)] == ["mul", "exp", "sum"]
    assert nt.records(nt.tensor(1.0)) == []


def test_an_empty_tape_is_true():
    assert nt.Tape()
    assert len(nt.Tape()) == 0


def test_a_summary_names_ops_inputs_shapes_bytes_and_lines():
    tape = nt.GradientTape()
    x = nt.tensor([[1.0, 2.0]])
    tape.watch(x=x)
    with tape:
        y = (x * 2.0).exp()
        loss = y.sum()
    lines = tape.summary().splitlines()
    assert lines[0].split() == ["record", "op", "inputs", "shape", "dtype", "bytes", "kept", "line"]
    assert lines[2].startswith("%0      mul  x, 2")
    assert lines[3].startswith("%1      exp  %0")
    assert "(1, 2)" in lines[3]
    assert "yes" in lines[3]
    assert "test_tape_display.py" in lines[3]
    assert "y = (x * 2.0).exp()" in lines[3]
    assert lines[4].startswith("%2      sum  %1")
    assert lines[5] == "3 records, 20 bytes computed, 8 bytes kept for derivatives"
    assert tape.summary() == nt.summary(loss)


def test_a_summary_is_readable_after_backward():
    x = nt.tensor([1.0, 2.0], name="x")
    with nt.Tape() as tape:
        loss = (x * np.float32(2.0) * np.ones(2, np.float32)).exp().sum()
    tape.backward(loss)
    text = tape.summary()
    assert text.count("freed") == 4
    assert "array[2]" in text
    assert text.endswith("0 bytes kept for derivatives")
    assert text == nt.summary(loss)


def test_a_long_summary_leaves_out_its_middle():
    x = nt.tensor(1.0)
    with nt.Tape() as tape:
        for _ in range(100):
            x = x * 1.5
    lines = tape.summary().splitlines()
    assert len(lines) == 2 + 41 + 1
    assert "60 more" in lines[22]
    assert lines[-1].startswith("100 records")


def test_printing_a_tape_shows_its_state_and_its_records(capsys):
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(2.0))
    with tape:
        y = x * x
    print(tape)
    shown = capsys.readouterr().out
    assert shown == f"<GradientTape: 1 records, open>\n{tape.summary()}\n"
    tape.gradient(y, x)
    assert repr(tape) == "<GradientTape: 0 records, consumed>"
    tape.close()
    assert repr(tape) == "<GradientTape: 0 records, closed>"
    assert repr(nt.Tape()) == "<Tape: 0 records, open>"


def test_a_notebook_shows_a_tape_as_an_escaped_table():
    tape = nt.GradientTape()
    x = nt.tensor([1.0, 2.0], name="<x>")
    tape.watch(x)
    with tape:
        _ = x * x
    page = tape._repr_html_()
    assert "<table><thead><tr><th>record</th>" in page
    assert "&lt;x&gt;, &lt;x&gt;" in page
    assert "<x>" not in page
    assert page.count("<tr>") == 2
    assert "<summary>1 records, 8 bytes computed, 0 bytes kept for derivatives</summary>" in page


def test_an_empty_tape_can_be_shown():
    assert nt.Tape().summary().splitlines()[-1] == "0 records, 0 bytes computed, 0 bytes kept for derivatives"
    assert "<tbody></tbody>" in nt.Tape()._repr_html_()


def test_gradients_by_a_dict_of_tensors_are_a_dict():
    x, y = nt.tensor(2.0), nt.tensor(3.0)
    with nt.Tape() as tape:
        z = x * y
    found = tape.gradient(z, {"x": x, "both": [x, y]})
    assert {key: nt.tree.map(float, value) for key, value in found.items()} == {"x": 3.0, "both": [3.0, 2.0]}


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_tape_is_not_copied(copied):
    with pytest.raises(GradientError, match="cannot be copied or pickled"):
        copied(nt.GradientTape())
