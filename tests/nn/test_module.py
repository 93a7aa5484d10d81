"""Module: registration, traversal, states, modes, hooks, errors with paths, text, summaries and trees."""

import copy
import pickle
import threading

import numpy as np
import pytest

import numtape as nt
from numtape import nn, tree
from numtape.errors import ArgumentError, DtypeError, IndexingError, OperandError, ShapeError, UnknownNameError


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = nn.Linear(3, 4, rng=1)
        self.linear2 = nn.Linear(4, 3, rng=2)
        self.scale = nn.Parameter(np.ones(3, np.float32))
        self.register_buffer("seen", nt.zeros(dtype="int64"))
        self.register_buffer("cache", nt.zeros(2), persistent=False)

    def forward(self, x):
        return self.linear2(nt.tanh(self.linear1(x))) * self.scale


class Model(nn.Module):
    def __init__(self):
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList([Block(), Block()])})
        self.head = nn.Sequential(nn.Linear(3, 2, rng=3), nn.ReLU())

    def forward(self, x):
        for layer in self.encoder["layers"]:
            x = layer(x)
        return self.head(x)


class Tied(nn.Module):
    def __init__(self):
        self.first = nn.Linear(2, 2, bias=False, rng=0)
        self.second = nn.Linear(2, 2, bias=False, rng=1)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x))


def x32(*shape):
    return nt.tensor(np.linspace(-1.0, 1.0, int(np.prod(shape)), dtype=np.float32).reshape(shape))


# Parameters.
def test_a_parameter_is_a_leaf_and_ops_on_it_give_tensors():
    p = nn.Parameter([1.0, 2.0])
    assert isinstance(p, nt.Tensor)
    assert p.is_leaf
    assert p.requires_grad
    assert p.dtype == nt.float32
    assert type(p * 2.0) is type(p @ p) is type(p[0]) is type(p.detach()) is nt.Tensor


def test_a_parameter_copies_its_data_and_leaves_a_graph_behind():
    data = np.ones(2)
    assert nn.Parameter(data).dtype == nt.float64
    p = nn.Parameter(data)
    data[0] = 5.0
    assert p.tolist() == [1.0, 1.0]
    x = nt.ones(2, requires_grad=True)
    assert nn.Parameter(x * 3.0).is_leaf


def test_integers_make_a_parameter_of_the_default_dtype():
    assert nn.Parameter([1, 2]).dtype == nt.float32


def test_a_frozen_parameter_stays_frozen_in_copies():
    p = nn.Parameter([1.0], requires_grad=False, name="p")
    for twin in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(twin) is nn.Parameter
        assert not twin.requires_grad
        assert twin.name == "p"


# Registration and traversal.
def test_paths_and_order():
    model = Model()
    assert [path for path, _ in model.named_parameters()][:6] == [
        "encoder.layers.0.scale",
        "encoder.layers.0.linear1.weight",
        "encoder.layers.0.linear1.bias",
        "encoder.layers.0.linear2.weight",
        "encoder.layers.0.linear2.bias",
        "encoder.layers.1.scale",
    ]
    assert [path for path, _ in model.named_buffers()] == [
        "encoder.layers.0.seen",
        "encoder.layers.0.cache",
        "encoder.layers.1.seen",
        "encoder.layers.1.cache",
    ]
    assert [name for name, _ in model.named_children()] == ["encoder", "head"]
    assert [path for path, _ in model.head.named_modules("top")] == ["top", "top.0", "top.1"]
    assert len(list(model.modules())) == 12
    assert len(list(model.parameters(recurse=False))) == 0


def test_parameters_are_called_by_their_paths_in_summaries():
    model = Model()
    assert all(parameter.name == path for path, parameter in model.named_parameters())
    mine = nn.Linear(1, 1)
    mine.special = nn.Parameter(1.0, name="mine")
    assert nn.Sequential(mine)[0].special.name == "mine"


def test_shared_parameters_come_once_and_stand_under_both_paths_in_the_state():
    model = Tied()
    assert [path for path, _ in model.named_parameters()] == ["first.weight"]
    assert list(model.state_dict()) == ["first.weight", "second.weight"]
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.first.weight is twin.second.weight


def test_a_shared_module_comes_once():
    layer = nn.Linear(2, 2)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    assert [path for path, _ in model.named_modules()] == ["", "0", "1"]
    assert len(list(model.parameters())) == 2
    assert len(model.state_dict()) == 4


def test_assigning_other_things_to_registered_names_raises():
    layer = nn.Linear(2, 2)
    with pytest.raises(OperandError) as raised:
        layer.weight = nt.ones(2, 2)
    assert str(raised.value) == (
        "Linear: 'weight' is a parameter, and Tensor was assigned; wrap it in nt.nn.Parameter, or write into it: "
        "`with nt.no_grad(): p[...] = value`."
    )
    model = Model()
    with pytest.raises(OperandError, match="'head' is a module, and int was assigned; assign a module, or delete the"):
        model.head = 3
    with pytest.raises(OperandError, match="'seen' is a buffer, and list was assigned; assign a tensor"):
        model.encoder["layers"][0].seen = [1]
    layer.bias = None
    assert [path for path, _ in layer.named_parameters()] == ["weight"]
    assert layer(nt.ones(1, 2)).shape == (1, 2)


def test_names_must_be_names():
    module = nn.Module()
    for name in ("", "a.b", 3):
        with pytest.raises(ArgumentError, match="is no name; names are text without dots, and not empty"):
            module.register_parameter(name, nn.Parameter(1.0))
    with pytest.raises(ArgumentError) as raised:
        nn.ModuleDict({"keys": nn.ReLU()})
    assert str(raised.value) == "ModuleDict: 'keys' is a method of the class; choose another name."
    with pytest.raises(OperandError, match=r"register_parameter: 'w' is Tensor; wrap it in nt.nn.Parameter"):
        module.register_parameter("w", nt.ones(2))
    with pytest.raises(OperandError, match="register_module: 'm' is int, not a module"):
        module.register_module("m", 3)


def test_a_module_cannot_be_a_part_of_itself():
    outer = nn.Sequential(nn.Sequential())
    with pytest.raises(ArgumentError) as raised:
        outer[0].append(outer)
    assert str(raised.value) == "Sequential: '0' would make the module a part of itself."


def test_deleting_and_replacing_attributes():
    layer = nn.Linear(2, 2)
    del layer.bias
    assert list(layer.state_dict()) == ["weight"]
    layer.extra = nn.Parameter(1.0)
    layer.extra = nn.ReLU()
    assert list(layer.state_dict()) == ["weight"]
    assert dict(layer.named_children()) == {"extra": layer.extra}


# States.
def test_a_mismatched_state_lists_everything_and_loads_nothing():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    before = copy.deepcopy(model)
    state = model.state_dict()
    state = {path: value.array + 1.0 for path, value in state.items()}
    del state["0.bias"], state["1.bias"]
    state |= {"2.weight": np.ones(3), "0.weight": np.ones((3, 3)), "1.weight": np.ones(2)}
    with pytest.raises(ArgumentError) as raised:
        model.load_state_dict(state)
    assert str(raised.value) == (
        "Sequential.load_state_dict: the state does not fit the module, and nothing was loaded.\n"
        "  missing: 0.bias, 1.bias\n"
        "  unexpected: 2.weight\n"
        "  wrong shape: 0.weight has shape (3, 3), the module (4, 3)\n"
        "  wrong shape: 1.weight has shape (2,), the module (2, 4)\n"
        "Make the module with the sizes of the saved one. Rename the keys, or pass strict=False to load those that "
        "both have."
    )
    for path, value in before.state_dict().items():
        assert (model.state_dict()[path].array == value.array).all()


def test_a_state_that_is_not_strict_loads_what_fits_and_says_what_did_not():
    model = nn.Linear(2, 2)
    result = model.load_state_dict({"weight": np.eye(2), "other": np.ones(1)}, strict=False)
    assert result.missing_keys == ["bias"]
    assert result.unexpected_keys == ["other"]
    assert model.weight.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert model.weight.dtype == nt.float32
    assert model.weight.requires_grad
    with pytest.raises(ArgumentError, match="wrong shape: weight has shape"):
        model.load_state_dict({"weight": np.ones(2)}, strict=False)


def test_a_state_must_hold_tensors():
    with pytest.raises(OperandError, match=r"Linear.load_state_dict: wants a dict of tensors by path, not list"):
        nn.Linear(1, 1).load_state_dict([])
    with pytest.raises(OperandError, match="'weight' is of type str; it must be a tensor or an array of real numbers"):
        nn.Linear(1, 1).load_state_dict({"weight": "text", "bias": np.ones(1)})


def test_a_state_shares_memory_is_untracked_and_leaves_out_transient_buffers():
    block = Block()
    state = block.state_dict(prefix="block.")
    assert set(state) == {
        "block.scale",
        "block.seen",
        "block.linear1.weight",
        "block.linear1.bias",
        "block.linear2.weight",
        "block.linear2.bias",
    }
    assert not state["block.scale"].requires_grad
    assert np.shares_memory(state["block.scale"].array, block.scale.array)


# Modes and dtypes.
def test_modes_flags_and_gradients_reach_every_part():
    model = Model()
    assert model.eval() is model
    assert not any(part.training for part in model.modules())
    model.encoder.train()
    assert model.encoder.training
    assert not model.training
    assert not any(p.requires_grad for p in model.requires_grad_(False).parameters())
    model.requires_grad_()
    model(x32(2, 3)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    model.zero_grad()
    assert all(p.grad is None for p in model.parameters())


def test_apply_visits_children_before_parents():
    visited = []
    model = nn.Sequential(nn.Sequential(nn.ReLU()), nn.Tanh())
    assert model.apply(lambda module: visited.append(type(module).__name__)) is model
    assert visited == ["ReLU", "Sequential", "Tanh", "Sequential"]


@pytest.mark.parametrize(
    ("method", "dtype"),
    [("double", nt.float64), ("half", nt.float16), ("bfloat16", nt.bfloat16), ("float", nt.float32)],
)
def test_conversion_keeps_parameters_the_same_objects(method, dtype):
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    before = list(model.parameters())
    model(x32(4, 3)).sum().backward()
    assert getattr(model, method)() is model
    assert all(a is b for a, b in zip(model.parameters(), before, strict=True))
    assert {p.dtype for p in model.parameters()} == {p.grad.dtype for p in before} == {dtype}
    assert model[1].running_mean.dtype == (nt.float64 if dtype == nt.float64 else nt.float32)
    assert model[1].num_batches_tracked.dtype == nt.int64
    assert model(x32(4, 3).to(dtype)).dtype == dtype


def test_conversion_refuses_integers_and_devices():
    layer = nn.Linear(1, 1)
    with pytest.raises(DtypeError) as raised:
        layer.to(nt.int64)
    assert str(raised.value) == (
        "Linear.to: int64 is not a float dtype; parameters are float16, bfloat16, float32 or float64."
    )
    with pytest.raises(ArgumentError) as raised:
        layer.to("cuda:0")
    assert str(raised.value) == "Linear.to: there is no device 'cuda:0'; numtape computes on \"cpu\"."
    assert layer.to("cpu") is layer.cpu() is layer


def test_conversion_between_forward_and_backward_is_noticed():
    layer = nn.Linear(2, 1)
    loss = layer(nt.ones(1, 2, requires_grad=True)).sum()
    layer.double()
    with pytest.raises(nt.errors.OverwrittenError, match="overwritten in place"):
        loss.backward()


# Hooks.
def test_hooks_run_in_order_change_what_passes_and_come_off():
    layer = nn.Identity()
    seen = []
    before = layer.register_forward_pre_hook(lambda module, args: seen.append("before") or (args[0] + 1.0,))
    first = layer.register_forward_hook(lambda module, args, out: seen.append(("first", out.item())))
    second = layer.register_forward_hook(lambda module, args, out: out * 10.0)
    assert layer(nt.tensor(1.0)).item() == 20.0
    assert seen == ["before", ("first", 2.0)]
    for handle in (before, first, second):
        handle.remove()
        handle.remove()
    assert layer(nt.tensor(1.0)).item() == 1.0
    with pytest.raises(OperandError, match="Identity: a hook is a function, not int"):
        layer.register_forward_hook(3)


def test_a_copy_has_the_hooks_and_its_own_list_of_them():
    layer = nn.Identity()
    layer.register_forward_hook(_double)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        twin.register_forward_hook(_double)
        assert twin(nt.tensor(1.0)).item() == 4.0
    assert layer(nt.tensor(1.0)).item() == 2.0


def _double(module, args, out):
    return out * 2.0


# Errors.
def test_a_wrong_shape_names_the_layer_once_with_its_full_path():
    model = Model()
    model.encoder["layers"][1].linear1 = nn.Linear(5, 4)
    with pytest.raises(ShapeError) as raised:
        model(x32(2, 3))
    assert str(raised.value) == (
        "encoder.layers.1.linear1: Linear: the input has shape (2, 3) and the weight (4, 5); the last axis of the "
        "input must have length 5."
    )


def test_the_path_grows_as_the_error_travels_out():
    model = Model()
    with pytest.raises(ShapeError, match=r"^Linear: the input has shape"):
        model.head[0](x32(2, 5))
    with pytest.raises(ShapeError, match=r"^0: Linear: the input has shape"):
        model.head(x32(2, 5))
    model.encoder["layers"] = nn.ModuleList()
    outer = nn.Sequential({"outer": nn.Sequential(nn.Identity(), model)})
    with pytest.raises(ShapeError, match=r"^outer.1.head.0: Linear: the input has shape"):
        outer(x32(2, 5))


def test_an_error_in_a_module_s_own_forward_names_the_class():
    class Wrong(nn.Module):
        def forward(self, x):
            return x @ x

    with pytest.raises(ShapeError, match=r"^Wrong: matmul: a has shape"):
        Wrong()(x32(2, 3))
    with pytest.raises(ShapeError, match=r"^0: matmul: a has shape"):
        nn.Sequential(Wrong())(x32(2, 3))


def test_a_layer_that_is_no_part_of_its_caller_keeps_its_own_name():
    stranger = nn.Linear(2, 2)

    class Caller(nn.Module):
        def forward(self, x):
            return stranger(x)

    with pytest.raises(ShapeError, match=r"^Linear: the input has shape"):
        nn.Sequential(Caller())(x32(1, 3))


def test_a_module_without_forward_says_so():
    with pytest.raises(UnknownNameError) as raised:
        nn.Sequential(nn.ModuleList([nn.ReLU()]))(x32(1))
    assert str(raised.value) == (
        "0: ModuleList: has no forward(); define it in the class, or call the modules that it holds."
    )


# Containers.
def test_a_list_of_modules():
    layers = nn.ModuleList([nn.ReLU()])
    layers.append(nn.Tanh()).extend([nn.SiLU(), nn.GELU()])
    layers.insert(1, nn.Sigmoid())
    assert [type(m).__name__ for m in layers] == ["ReLU", "Sigmoid", "Tanh", "SiLU", "GELU"]
    assert [name for name, _ in layers.named_children()] == ["0", "1", "2", "3", "4"]
    del layers[1]
    layers[0] = nn.Mish()
    assert [type(m).__name__ for m in layers[::2]] == ["Mish", "SiLU"]
    assert type(layers[1:]) is nn.ModuleList
    assert isinstance(layers[-1], nn.GELU)
    with pytest.raises(IndexingError) as raised:
        layers[4]
    assert str(raised.value) == "ModuleList: index 4 is out of range for 4 modules."


def test_a_sequence_of_named_modules():
    model = nn.Sequential({"first": nn.Linear(2, 3), "second": nn.ReLU()})
    assert list(model.state_dict()) == ["first.weight", "first.bias"]
    assert model.first is model[0]
    assert model[:1](x32(1, 2)).shape == (1, 3)


def test_a_dict_of_modules():
    heads = nn.ModuleDict({"a": nn.ReLU()})
    heads["b"] = nn.Tanh()
    heads.update([("c", nn.SiLU())])
    assert heads.keys() == ["a", "b", "c"]
    assert [type(m).__name__ for _, m in heads.items()] == [type(m).__name__ for m in heads.values()]
    assert "b" in heads
    assert isinstance(heads.pop("b"), nn.Tanh)
    del heads["a"]
    assert len(heads) == 1
    with pytest.raises(IndexingError) as raised:
        heads["z"]
    assert str(raised.value) == "ModuleDict: there is no 'z'; there are c."
    heads.clear()
    assert list(heads) == []
    with pytest.raises(OperandError, match="ModuleDict: wants a dict of modules, or pairs of name and module, not int"):
        nn.ModuleDict(3)


# Text.
def test_repr_nests():
    model = nn.Sequential({"body": nn.Sequential(nn.Linear(2, 3), nn.ReLU()), "head": nn.Linear(3, 1, bias=False)})
    assert repr(model) == (
        "Sequential(\n"
        "  (body): Sequential(\n"
        "    (0): Linear(in_features=2, out_features=3, bias=True)\n"
        "    (1): ReLU()\n"
        "  )\n"
        "  (head): Linear(in_features=3, out_features=1, bias=False)\n"
        ")"
    )


def test_summary_without_and_with_an_example():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout(0.5), nn.Flatten(), nn.Linear(72, 10))
    model[4].requires_grad_(False)
    model[1].eval()
    assert str(model.summary()) == (
        "path  class        parameters\n"
        "----  -----------  ----------\n"
        "      Sequential          754\n"
        "0     Conv2d               20\n"
        "1     BatchNorm2d           4\n"
        "2     Dropout               0\n"
        "3     Flatten               0\n"
        "4     Linear              730\n"
        "754 parameters (24 trainable), 3,016 bytes"
    )
    summary = model.summary(x32(5, 1, 8, 8))
    assert [row[2] for row in summary.rows] == [
        "(5, 10)",
        "(5, 2, 6, 6)",
        "(5, 2, 6, 6)",
        "(5, 2, 6, 6)",
        "(5, 72)",
        "(5, 10)",
    ]
    assert summary.parameters == 754
    # Modes, statistics and hooks are as before.
    assert [m.training for m in model.modules()] == [True, True, False, True, True, True]
    assert model[1].num_batches_tracked.item() == 0


def test_summary_counts_shared_parameters_once_in_total():
    assert Tied().summary().parameters == 4


# Trees and functional calls.
def test_a_module_is_the_tree_of_its_parameters():
    model = Tied()
    assert tree.leaves({"model": model}) == [model.first.weight]
    doubled = tree.map(lambda p: p * 2.0, model)
    assert doubled.first.weight is doubled.second.weight
    assert (doubled.first.weight.array == 2.0 * model.first.weight.array).all()
    sizes = tree.map(lambda p: p.size, nn.Linear(2, 2))
    assert tree.leaves(sizes) == [4, 2]
    assert len(tree.leaves(tree.map(lambda p: 0.0, nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))))) == 4


def test_grad_of_a_function_of_a_model_is_a_model_of_gradients():
    model, x = Model(), x32(4, 3)
    grads = nt.grad(lambda m: (m(x) ** 2).sum())(model)
    assert type(grads) is Model
    (model(x) ** 2).sum().backward()
    for (path, p), (other, g) in zip(model.named_parameters(), grads.named_parameters(), strict=True):
        assert path == other
        np.testing.assert_allclose(g.array, p.grad.array, rtol=1e-5, atol=1e-6)


def test_functional_call_uses_other_parameters_and_leaves_the_model_alone():
    model, x = Model(), x32(4, 3)
    before = copy.deepcopy(model)
    params = {path: nt.tensor(p.array * 2.0) for path, p in model.named_parameters()}
    out = nn.functional_call(model, params, x)
    with nt.no_grad():
        for p in before.parameters():
            p[...] = p.array * 2.0
    np.testing.assert_array_equal(out.array, before(x).array)
    np.testing.assert_array_equal(nn.functional_call(model, {}, (x,)).array, model(x).array)
    grads = nt.grad(lambda given: nn.functional_call(model, given, x).sum())(params)
    assert set(grads) == set(params)
    assert all(p.grad is None for p in model.parameters())


def test_functional_call_replaces_a_shared_parameter_everywhere_and_buffers_too():
    model = Tied()
    eye = nt.tensor(np.eye(2, dtype=np.float32) * 3.0)
    assert nn.functional_call(model, {"second.weight": eye}, nt.ones(1, 2)).tolist() == [[9.0, 9.0]]
    norm = nn.BatchNorm1d(2).eval()
    out = nn.functional_call(norm, {"running_mean": nt.ones(2)}, nt.ones(1, 2))
    assert out.tolist() == [[0.0, 0.0]]


def test_functional_call_explains_wrong_parameters():
    model = nn.Linear(2, 2)
    with pytest.raises(ArgumentError) as raised:
        nn.functional_call(model, {"wieght": nt.ones(2, 2)}, nt.ones(1, 2))
    assert str(raised.value) == "functional_call: Linear has no wieght; it has weight, bias."
    with pytest.raises(ShapeError) as raised:
        nn.functional_call(model, {"weight": nt.ones(3, 2)}, nt.ones(1, 2))
    assert str(raised.value) == (
        "functional_call: weight has shape (3, 2), and the model's own (2, 2); they must be equal."
    )
    with pytest.raises(OperandError, match="params is of type list; it must be a dict of tensors by path"):
        nn.functional_call(model, [], nt.ones(1, 2))
    with pytest.raises(OperandError, match=r"the model is of type function; it must be an nn.Module"):
        nn.functional_call(lambda x: x, {}, nt.ones(1, 2))


def test_a_model_runs_in_many_threads_at_once():
    model, x = Model(), x32(4, 3)
    expected = model(x).array
    found = []

    def run():
        found.extend(nn.functional_call(model, dict(model.named_parameters()), x).array for _ in range(20))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    assert all((out == expected).all() for out in found)


def test_records_of_a_layer_name_the_user_s_line_and_the_parameters_paths():
    model = nn.Sequential(nn.Linear(2, 2))
    with nt.Tape() as tape:
        model(nt.ones(1, 2))  # The line.
    assert all("model(nt.ones(1, 2))  # The line." in record.site for record in tape.records)
    assert "0.weight" in str(tape.summary())


def test_containers_may_have_parameters_and_buffers_beside_their_modules():
    class Scaled(nt.nn.Sequential):
        def __init__(self):
            super().__init__(nt.nn.Linear(2, 2))
            self.scale = nt.nn.Parameter(nt.zeros(1))

        def forward(self, x):
            return super().forward(x) * self.scale

    model = Scaled()
    assert model(nt.ones(1, 2)).tolist() == [[0.0, 0.0]]
    assert len(model) == 1
    model.register_buffer("mean", nt.zeros(2))
    model.append(nt.nn.Linear(2, 2))
    assert list(model.state_dict()) == ["scale", "mean", "0.weight", "0.bias", "1.weight", "1.bias"]
    heads = nt.nn.ModuleDict({"left": nt.nn.ReLU()})
    heads.register_buffer("mean", nt.zeros(2))
    assert list(heads) == heads.keys() == ["left"]
    assert "mean" not in heads


def test_a_slice_of_named_modules_keeps_the_names():
    model = nt.nn.Sequential({"first": nt.nn.Linear(2, 2), "then": nt.nn.ReLU()})
    assert list(model[:1].state_dict()) == ["first.weight", "first.bias"]


def test_names_that_every_module_has_are_refused():
    with pytest.raises(ArgumentError, match="'training' is an attribute of every module"):
        nt.nn.ModuleDict({"training": nt.nn.ReLU()})


def test_a_state_that_is_no_number_leaves_everything_as_it_was():
    layer = nt.nn.Linear(2, 2)
    before = layer.weight.tolist()
    with pytest.raises(OperandError, match="'bias' is of type ndarray"):
        layer.load_state_dict({"weight": np.zeros((2, 2)), "bias": np.zeros(2, [("a", "f4")])})
    assert layer.weight.tolist() == before
