"""What the gradients of a tape are asked with, and where they live."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import (
    ArgumentError,
    MissingGradientError,
    NotConnectedError,
    OperandError,
    ShapeError,
)

# Arguments of gradient.


def test_one_tensor_in_gives_one_tensor_and_an_iterable_gives_a_list():
    tape = nt.GradientTape(persistent=True)
    x, y = tape.watch(nt.tensor(2.0), nt.tensor(3.0))
    z = x * y
    assert tape.gradient(z, x).item() == 3.0
    for sources in ([x, y], (x, y), (t for t in (x, y)), {"x": x, "y": y}.values()):
        result = tape.gradient(z, sources)
        assert type(result) is list
        assert [g.item() for g in result] == [3.0, 2.0]
    assert tape.gradient(z, [x])[0].item() == 3.0
    assert tape.gradient(z, []) == []
    assert tape.gradient((t for t in (z, x)), x).item() == 4.0
    assert tape.gradient(targets=z, sources=x).item() == 3.0


def test_gradient_wants_tensors():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(2.0))
    with pytest.raises(OperandError, match=r"^gradient: targets must be .*float"):
        tape.gradient(4.0, x)
    with pytest.raises(OperandError, match=r"^gradient: sources must be .*int"):
        tape.gradient(x * x, [x.id])


def test_a_target_that_is_a_source_has_derivative_one():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor([2.0, 3.0]))
    y = x * x
    assert [g.tolist() for g in tape.gradient([x, y], [x, y])] == [[5.0, 7.0], [1.0, 1.0]]


def test_targets_that_are_not_scalar_are_seeded_with_ones():
    x = nt.tensor([[1.0, 2.0], [3.0, 4.0]])
    with nt.Tape(persistent=True) as tape:
        y = x * x
    assert tape.gradient(y, x).tolist() == [[2.0, 4.0], [6.0, 8.0]]
    assert tape.backward(y)[x].tolist() == [[2.0, 4.0], [6.0, 8.0]]
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    nt.compute_gradients(w * w)
    assert w.grad.tolist() == [2.0, 4.0]


def test_tensor_backward_wants_a_scalar_or_a_gradient():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ShapeError, match=r"the tensor has shape \(2,\); give gradient=, or reduce it with sum"):
        (w * w).backward()
    assert w.grad is None
    (w * w).backward(nt.tensor([1.0, 10.0]))
    assert w.grad.tolist() == [2.0, 40.0]


@pytest.mark.parametrize("as_given", [nt.tensor, np.array], ids=["tensor", "array"])
def test_output_gradients_replace_the_ones(as_given):
    tape = nt.GradientTape(persistent=True)
    x = tape.watch(nt.tensor([1.0, 2.0]))
    y, z = x * x, x * 3.0
    assert tape.gradient([y], x, output_gradients=[as_given([1.0, 10.0])]).tolist() == [2.0, 40.0]
    assert tape.gradient([y, z], x, [as_given([1.0, 10.0]), None]).tolist() == [5.0, 43.0]
    assert tape.gradient(y, x, output_gradients=as_given([1.0, 10.0])).tolist() == [2.0, 40.0]


def test_a_number_is_an_output_gradient_of_a_scalar():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(3.0))
    assert tape.gradient(x * x, x, output_gradients=2.0).item() == 12.0


def test_output_gradients_are_checked():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor([1.0, 2.0]))
    with pytest.raises(ArgumentError, match=r"2 targets and 1 output_gradients were given"):
        tape.gradient([x, x * x], x, output_gradients=[nt.ones(2)])
    with pytest.raises(ShapeError, match=r"the gradient given has shape \(3,\) and the tensor \(2,\)"):
        tape.gradient(x * x, x, output_gradients=nt.ones(3))


def test_backward_takes_a_gradient_to_start_from():
    x = nt.tensor([1.0, 2.0])
    with nt.Tape() as tape:
        y = x * x
    assert tape.backward(y, gradient=nt.tensor([1.0, 10.0]))[x].tolist() == [2.0, 40.0]


# Where gradients live.


def test_backward_adds_to_grad_of_leaves_that_require_it_and_returns_all():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    x = nt.tensor([3.0, 4.0])
    with nt.Tape() as tape:
        loss = (w * x).sum()
    grads = tape.backward(loss)
    assert w.grad.tolist() == [3.0, 4.0]
    assert grads[w].tolist() == [3.0, 4.0]
    # Watched only: in the map, no .grad.
    assert grads[x].tolist() == [1.0, 2.0]
    assert x.grad is None
    assert grads.delivered == {w.id}


def test_the_map_holds_this_call_and_grad_the_sum():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    tape = nt.GradientTape()
    assert tape.backward((w * 3.0).sum())[w].tolist() == [3.0, 3.0]
    assert tape.backward((w * 4.0).sum())[w].tolist() == [4.0, 4.0]
    assert w.grad.tolist() == [7.0, 7.0]


def test_the_map_and_grad_share_no_memory():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    grads = nt.GradientTape().backward((w * 3.0).sum())
    grads[w][0] = 100.0
    assert w.grad.tolist() == [3.0, 3.0]


def test_gradient_only_returns():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    nt.GradientTape().gradient(w * w, w)
    assert w.grad is None


def test_tensor_backward_returns_none():
    w = nt.tensor(1.0, requires_grad=True)
    assert (w * w).backward() is None


def test_gradients_look_up_by_tensor():
    x, y, other = nt.tensor([1.0, 2.0]), nt.tensor([3.0, 4.0]), nt.tensor([5.0])
    with nt.Tape() as tape:
        loss = (x * y).sum()
    grads = tape.backward(loss)
    assert isinstance(grads, nt.Gradients)
    assert grads[x].tolist() == grads.get(x).tolist() == [3.0, 4.0]
    assert x in grads
    assert other not in grads
    assert x.id not in grads
    assert grads.get(other) is None
    assert grads.get(other, "nothing") == "nothing"
    assert len(grads) == 2
    assert {id(t) for t in grads.tensors()} == {id(x), id(y)}
    assert {number: g.tolist() for number, g in grads.items()} == {x.id: [3.0, 4.0], y.id: [1.0, 2.0]}
    assert [id(t) for t in grads] == [id(t) for t in grads.tensors()]
    with pytest.raises(MissingGradientError, match=r"the loss does not depend on .* get\(\) gives None"):
        grads[other]
    with pytest.raises(OperandError, match=r"^Gradients: look up by .*tensor.* not by int"):
        grads[x.id]


def test_a_look_up_of_what_is_no_tensor_raises_one_kind_of_error():
    x = nt.tensor(2.0)
    with nt.Tape() as tape:
        loss = x * x
    with pytest.raises(OperandError, match=r"^Gradients: look up by .*tensor.* not by int"):
        tape.backward(loss).get(x.id)


def test_the_gradient_of_an_intermediate_names_its_two_repairs():
    x = nt.tensor(2.0)
    with nt.Tape() as tape:
        z = x * x
        loss = z * 3.0
    grads = tape.backward(loss)
    with pytest.raises(KeyError) as error:
        grads[z]
    assert str(error.value) == (
        "Gradients: this tensor is an intermediate result, whose gradient is not kept; use "
        'tape.backward(loss, keep="all"), or tape.watch(tensor) before backward.'
    )
    assert z not in grads


def test_keep_all_gives_the_gradients_of_intermediates():
    x = nt.tensor(2.0)
    with nt.Tape() as tape:
        z = x * x
        loss = z * 3.0
    grads = tape.backward(loss, keep="all")
    assert grads[z].item() == 3.0
    assert grads[loss].item() == 1.0
    assert grads[x].item() == 12.0
    assert z in grads
    with pytest.raises(ArgumentError, match=r"keep is 'some'; .*\"leaves\" or \"all\""):
        tape.backward(loss, keep="some")


def test_a_watched_intermediate_has_its_gradient_in_the_map():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(2.0))
    z = tape.watch(x * x)
    unwatched = z * 5.0
    grads = tape.backward(unwatched * z)
    assert grads[z].item() == 40.0
    assert grads[x].item() == 160.0
    assert z in grads
    assert unwatched not in grads
    assert len(grads) == 2
    assert z.grad is None


def test_a_watched_intermediate_is_a_source_and_its_graph_goes_on():
    tape = nt.GradientTape(persistent=True)
    x = tape.watch(nt.tensor(2.0))
    z = tape.watch(x * x)
    loss = z * z
    assert [g.item() for g in tape.gradient(loss, [z, x])] == [8.0, 32.0]


def test_backward_of_an_untracked_loss_explains():
    with pytest.raises(NotConnectedError, match=r"^backward: the tensor depends on nothing that is tracked\."):
        nt.Tape().backward(nt.tensor(1.0))
    with pytest.raises(OperandError, match="wants the loss tensor itself, not float"):
        nt.Tape().backward(1.0)


def test_derivatives_by_what_a_generator_or_a_dict_gives_are_all_there():
    layer = nt.nn.Linear(3, 2)
    with nt.Tape(persistent=True) as tape:
        out = layer(nt.ones(3))
        other = out * 2.0
    shapes = [(2, 2, 3), (2, 2)]
    assert [j.shape for j in tape.jacobian(out, layer.parameters())] == shapes
    assert [j.shape for j in tape.forward_gradient(layer.parameters(), out)] == shapes
    both = tape.forward_gradient(layer.parameters(), iter([out, other]))
    assert [[j.shape for j in each] for each in both] == [shapes, shapes]
    ones = [nt.ones(2, 3), nt.ones(2)]
    moved = tape.forward_gradient(layer.parameters(), [out, other], iter(ones))
    assert [t.tolist() for t in moved] == [[4.0, 4.0], [8.0, 8.0]]
    named = {"weight": layer.weight, "rest": [layer.bias]}
    for found in (tape.jacobian(out, named), tape.forward_gradient(named, out)):
        assert (found["weight"].shape, found["rest"][0].shape) == tuple(shapes)
    assert tape.forward_gradient(named, out, {"rest": [ones[1]], "weight": ones[0]}).tolist() == [4.0, 4.0]


def test_derivatives_of_a_tape_that_are_recorded_can_be_differentiated_by_parameters():
    computed = {
        "gradient": lambda tape, y, x: tape.gradient(y, x, create_graph=True),
        "direction": lambda tape, y, x: tape.forward_gradient(x, y, nt.ones_like(x), create_graph=True),
        "forward_gradient": lambda tape, y, x: tape.forward_gradient(x, y, create_graph=True),
        "jacobian": lambda tape, y, x: tape.jacobian(y, x, create_graph=True),
    }
    for name, derivative in computed.items():
        w, x = nt.tensor(2.0, requires_grad=True), nt.tensor(3.0)
        with nt.Tape() as tape:
            y = w * x**2
        ((derivative(tape, y, x) - 1.0) ** 2).backward()
        assert w.grad.item() == 132.0, name


def test_the_outermost_of_nested_tapes_can_be_asked_to_record():
    w, x = nt.tensor([2.0, 1.0], requires_grad=True), nt.tensor(3.0)
    with nt.Tape() as outer:
        with nt.Tape() as inner:
            y = (w * x**3).sum()
        slope = inner.gradient(y, x)
    (outer.gradient(slope, x, create_graph=True) ** 2).backward()
    assert w.grad.tolist() == [1944.0, 1944.0]
