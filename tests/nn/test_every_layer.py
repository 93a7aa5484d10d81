"""Every layer, over one table: shapes, gradients, modes, states, copies, text, tapes, contexts and bad input."""

import copy
import pickle

import numpy as np
import pytest
from layer_table import LAYERS, LOSSES

import numtape as nt
from numtape import nn, tree
from numtape.nn import Module

ALL = LAYERS + LOSSES
WRONG = [case for case in LAYERS if case.wrong is not None]


def tensors_of(case, dtype=nt.float64):
    """Return the inputs as tensors; one that is given several times stays one."""
    memo = {}

    def convert(x):
        return memo.setdefault(id(x), nt.tensor(x.astype(dtype) if x.dtype == np.float64 else x))

    return tuple(tree.map(convert, x) for x in case.inputs)


def outputs(case, layer, inputs):
    return [out for out in tree.leaves(layer(*inputs, **case.options)) if out is not None]


def loss_of(outs):
    """Return a scalar in which each element of each output has a weight of its own."""
    return sum(((out * np.linspace(-1.0, 2.0, out.size).reshape(out.shape)).sum() for out in outs), start=0.0)


def states_are_equal(a, b):
    left, right = a.state_dict(), b.state_dict()
    return list(left) == list(right) and all(
        left[path].dtype == right[path].dtype and (left[path].array == right[path].array).all() for path in left
    )


def test_every_layer_is_in_the_table():
    classes = {
        name
        for name, found in vars(nn).items()
        if isinstance(found, type) and issubclass(found, Module) and found.__name__ == name
    }
    holders = {
        "Module",
        "Sequential",
        "ModuleList",
        "ModuleDict",
        "ParameterList",
        "ParameterDict",
        "TransformerEncoder",
    }
    assert classes - holders == {case.name for case in ALL}


@pytest.mark.parametrize("case", ALL, ids=str)
@pytest.mark.parametrize("dtype", [nt.float32, nt.float64], ids=str)
def test_output_has_the_shape_and_the_dtype(case, dtype):
    out = outputs(case, case.make(dtype), tensors_of(case, dtype))[0]
    assert out.shape == case.shape
    assert out.dtype == dtype


@pytest.mark.parametrize(
    ("case", "mode"),
    [(case, True) for case in ALL] + [(case, False) for case in ALL if "Batch" in case.name],
    ids=lambda x: {True: "train", False: "eval"}[x] if isinstance(x, bool) else str(x),
)
def test_gradients_of_parameters_and_inputs_are_right(case, mode):
    layer = case.make().train(mode)
    # No gradient shall reach a padding row although the output depends on it.
    if case.arguments.get("padding_idx") is not None:
        layer.padding_idx = None

    def run(model, *inputs):
        return loss_of(outputs(case, model, inputs))

    # One input that is given several times, as in self-attention, is varied as one.
    is_one = all(x is case.inputs[0] for x in case.inputs)
    inputs = case.inputs[:1] if is_one else case.inputs
    repeats = len(case.inputs) if is_one else 1
    check = nt.check_gradients(lambda model, *given: run(model, *given * repeats), layer, *inputs)
    assert check.is_valid, str(check)
    assert len(check.rows) == len(tree.leaves((layer, [x for x in tree.leaves(inputs) if x.dtype == np.float64])))


@pytest.mark.parametrize("case", ALL, ids=str)
def test_every_way_to_gradients_gives_the_same(case):
    layer, inputs = case.make(), tensors_of(case)
    parameters = list(layer.parameters())
    if parameters:
        loss_of(outputs(case, layer, inputs)).backward()
    by_leaves = [p.grad.array for p in parameters]
    layer.zero_grad()
    with nt.Tape() as tape:
        loss = loss_of(outputs(case, layer, inputs))
    grads = tape.backward(loss)
    by_tape = [grads[p].array for p in parameters]
    layer.zero_grad()
    layer.requires_grad_(False)
    watching = nt.GradientTape()
    watching.watch(layer)
    loss = loss_of(outputs(case, layer, inputs))
    by_watching = [g.array for g in watching.gradient(loss, parameters)] if parameters else []
    layer.requires_grad_(True)
    with nt.GradientContext():
        if parameters:
            nt.compute_gradients(loss_of(outputs(case, layer, inputs)))
    by_context = [p.grad.array for p in parameters]
    functional = nt.grad(lambda model: loss_of(outputs(case, model, inputs)))(layer) if parameters else layer
    by_function = [g.array for g in functional.parameters()]
    for way in (by_tape, by_watching, by_context, by_function):
        for expected, found in zip(by_leaves, way, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_state_makes_a_round_trip_bit_for_bit(case):
    layer, other = case.make(rng=0), case.make(rng=1)
    result = other.load_state_dict({path: value.array.copy() for path, value in layer.state_dict().items()})
    assert result == ([], [])
    assert states_are_equal(layer, other)
    layer.eval(), other.eval()
    for out, again in zip(outputs(case, layer, tensors_of(case)), outputs(case, other, tensors_of(case)), strict=True):
        np.testing.assert_array_equal(out.array, again.array)


@pytest.mark.parametrize("case", ALL, ids=str)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies_are_equal_and_apart(case, copied):
    layer = case.make().eval()
    twin = copied(layer)
    assert states_are_equal(layer, twin)
    assert repr(twin) == repr(layer)
    assert [m.training for m in twin.modules()] == [False for _ in layer.modules()]
    assert [type(p) for p in twin.parameters()] == [nn.Parameter for _ in layer.parameters()]
    inputs = tensors_of(case)
    expected = [out.array for out in outputs(case, layer, inputs)]
    with nt.no_grad():
        for value in (*layer.parameters(), *layer.buffers()):
            value[...] = 0
    for out, value in zip(outputs(case, twin, inputs), expected, strict=True):
        np.testing.assert_array_equal(out.array, value)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_text_and_modes(case):
    layer = case.make()
    assert repr(layer).startswith(f"{case.name}(")
    assert repr(layer).endswith(")")
    assert layer.training
    assert layer.eval() is layer
    assert not any(module.training for module in layer.modules())
    assert layer.train().training


class Holder(Module):
    """A model that has a layer two levels down."""

    def __init__(self, layer):
        self.parts = nn.ModuleDict({"layer": layer})

    def forward(self, *args, **options):
        return self.parts["layer"](*args, **options)


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_a_wrong_input_names_the_path_and_the_shape(case):
    model = nn.Sequential(nn.Identity(), nn.Sequential(Holder(case.make())))
    wrong = (nt.tensor(case.wrong),) * (3 if case.name == "MultiheadAttention" else 1)
    with pytest.raises(nt.errors.NumtapeError) as raised:
        model[1][0](*wrong, **case.options)
    message = str(raised.value)
    path = message.split(":")[0]
    assert path in ("parts.layer", "parts.layer.self_attn", "parts.layer.norm1")
    assert message.count("parts.layer") == 1
    assert case.name == "Embedding" or str(case.wrong.shape) in message
    if len(wrong) == 1 and not case.options:
        with pytest.raises(type(raised.value)) as again:
            model(*wrong)
        assert str(again.value) == f"1.0.{message}"


@pytest.mark.parametrize("case", [case for case in LAYERS if list(case.make().parameters())], ids=str)
def test_another_float_dtype_is_refused_with_both_repairs(case):
    layer = case.make(nt.float32)
    if case.name == "Embedding":
        return
    with pytest.raises(nt.errors.DtypeError) as raised:
        layer(*tensors_of(case, nt.float64), **case.options)
    message = str(raised.value)
    assert "the input has dtype float64 and the weights have float32" in message
    assert "use x.astype(nt.float32), or model.to(nt.float64)." in message


@pytest.mark.parametrize("case", [case for case in ALL if list(case.make().parameters())], ids=str)
def test_second_order_works(case):
    layer, inputs = case.make(), tensors_of(case)

    def loss(model):
        return sum((out * out).sum() for out in outputs(case, model, inputs))

    slope = nt.grad(lambda m: sum((g * 1.0).sum() for g in tree.leaves(nt.grad(loss)(m))))(layer)
    step = 1e-5
    moved = [
        nt.grad(loss)(tree.map(lambda p, sign=sign: nt.tensor(p.array + sign * step), layer)) for sign in (1.0, -1.0)
    ]
    for plus, minus, found in zip(*(tree.leaves(m) for m in moved), tree.leaves(slope), strict=True):
        numeric = (plus.array - minus.array) / (2.0 * step)
        np.testing.assert_allclose(found.array, numeric, rtol=1e-5, atol=1e-5)
