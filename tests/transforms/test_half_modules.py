"""Modules in half types: statistics that stay float32, exact resume, and what layers give and refuse under autocast."""

import numpy as np
import pytest

import numtape as nt

HALVES = [nt.float16, nt.bfloat16]


def half_model(dtype=nt.float16):
    nt.seed(0)
    layers = nt.nn.Linear(3, 4), nt.nn.BatchNorm1d(4), nt.nn.Linear(4, 2)
    model = nt.nn.Sequential(*layers).to(dtype)
    return model, nt.optim.Adam(model.parameters(), lr=0.1)


def bits(model):
    return {path: (value.dtype, value.numpy().tobytes()) for path, value in model.state_dict().items()}


def step(model, optimizer, number):
    x = nt.randn(8, 3, rng=number).to(model[0].weight.dtype)
    optimizer.zero_grad()
    (model(x) ** 2).mean().backward()
    optimizer.step()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_conversion_to_half_leaves_running_statistics_in_float32(dtype):
    layer = nt.nn.BatchNorm1d(2)
    layer.running_mean[...] = nt.tensor([1e5, 0.1])
    layer.running_var[...] = nt.tensor([1e9, 0.1])
    before = [layer.running_mean.numpy(copy=True), layer.running_var.numpy(copy=True)]
    layer.to(dtype)
    assert (layer.weight.dtype, layer.running_mean.dtype, layer.running_var.dtype) == (dtype, nt.float32, nt.float32)
    np.testing.assert_array_equal([layer.running_mean.numpy(), layer.running_var.numpy()], before)
    layer.double().to(dtype)
    assert layer.running_var.dtype == nt.float32
    out = layer.eval()(nt.ones(1, 2, dtype=dtype))
    assert out.dtype == dtype
    assert np.isfinite(out.numpy().astype(np.float32)).all()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_half_layer_loads_float32_statistics_as_they_are(dtype):
    trained = nt.nn.BatchNorm1d(2)
    trained.running_var[...] = nt.tensor([1e9, 0.1])
    layer = nt.nn.BatchNorm1d(2).to(dtype)
    layer.load_state_dict(trained.state_dict())
    np.testing.assert_array_equal(layer.running_var.numpy(), trained.running_var.numpy())


def test_a_buffer_of_yours_may_be_a_statistic():
    class Mean(nt.nn.Module):
        def __init__(self):
            self.register_buffer("seen", nt.zeros(2), is_statistic=True)
            self.register_buffer("mask", nt.ones(2))
            self.weight = nt.nn.Parameter(nt.ones(2))

    def dtypes(module):
        return [value.dtype for value in module.state_dict().values()]

    module = Mean()
    nt.nn.Sequential(module).half()
    assert dtypes(module) == [nt.float32, nt.float16, nt.float16]
    assert dtypes(module.double()) == [nt.float64] * 3
    module.register_buffer("seen", nt.zeros(2))
    assert dtypes(module.half()) == [nt.float16] * 3
    del module.seen
    assert dtypes(module.bfloat16()) == [nt.bfloat16] * 2


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_half_model_goes_on_from_its_state_bit_for_bit(dtype):
    model, optimizer = half_model(dtype)
    step(model, optimizer, 1)
    again, other = half_model(dtype)
    again.load_state_dict({path: value.numpy(copy=True) for path, value in model.state_dict().items()})
    other.load_state_dict(optimizer.state_dict())
    for each in ((model, optimizer), (again, other)):
        step(*each, 2)
    assert bits(again) == bits(model)
    assert [again[1].running_mean.dtype, again[1].running_var.dtype] == [nt.float32] * 2


def test_a_half_run_with_statistics_resumes_bit_for_bit(tmp_path):
    x = np.random.default_rng(0).standard_normal((24, 3)).astype(np.float16)

    def run(epochs, **settings):
        model, optimizer = half_model()
        parts = [nt.tensor(part, dtype=nt.float16) for part in np.split(x, 3)]
        loader = [(part, part[:, :2]) for part in parts]
        with nt.deterministic():
            nt.train.fit(model, nt.mse_loss, optimizer, loader, epochs=epochs, progress=False, **settings)
        return bits(model)

    whole = run(4)
    run(2, folder=tmp_path)
    assert run(4, folder=tmp_path, resume=True) == whole


@pytest.mark.parametrize("is_first", [True, False])
def test_a_skipped_step_leaves_the_statistics_of_a_half_model_as_they_are(is_first):
    model, optimizer = half_model()
    if not is_first:
        step(model, optimizer, 1)
    before = bits(model)
    scaler = nt.LossScaler.Dynamic()
    optimizer.zero_grad()
    out = model(nt.randn(8, 3, rng=2).to(nt.float16))
    assert bits(model) != before
    scaler.scale((out[:1, :1].to(nt.float32) * np.float32(np.inf)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.overflow
    assert bits(model) == before


# Statistics of a module of yours.


class Average(nt.nn.Module):
    """A layer that follows the mean of what it gives, by writing to its buffer or with a new one."""

    def __init__(self, writes):
        self.linear = nt.nn.Linear(3, 3, rng=0)
        self.writes = writes
        self.register_buffer("average", nt.zeros(3), is_statistic=True)

    def forward(self, x):
        y = self.linear(x)
        with nt.no_grad():
            moved = 0.9 * self.average + 0.1 * y.detach().mean(axis=0)
            if self.writes:
                self.average[...] = moved
            else:
                self.average = moved
        return {"result": y}


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("by_tape", [True, False])
def test_a_skipped_step_puts_statistics_of_yours_back(writes, by_tape):
    model = Average(writes)
    optimizer, scaler = nt.optim.SGD(model.parameters(), lr=0.1), nt.LossScaler.Dynamic(init_scale=4.0)
    config = nt.AmpConfig(precision_mode="bfloat16", loss_scaler=scaler)
    for factor in (1.0, np.inf, 1.0):
        before = model.average.tolist()
        optimizer.zero_grad()
        with nt.GradientTape(amp=config if by_tape else None) as tape:
            loss = sum(model(nt.randn(8, 3, rng=seed))["result"][:1].sum() for seed in (1, 2)) * factor
        if by_tape:
            tape.backward(loss)
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        assert (model.average.tolist() == before) == (factor != 1.0)


@pytest.mark.parametrize("writes", [True, False])
def test_statistics_of_yours_are_left_as_they_are_at_a_batch_that_is_not_finite(writes):
    model = Average(writes)
    model(nt.randn(8, 3, rng=1))
    before = model.average.tolist()
    with np.errstate(invalid="ignore"):
        model(nt.full((8, 3), np.inf))
    assert model.average.tolist() == before
    model.register_buffer("average", nt.full((3,), -np.inf), is_statistic=True)
    model(nt.randn(8, 3, rng=1))
    assert model.average.tolist() == [-np.inf] * 3


def test_a_function_that_is_run_again_moves_statistics_of_yours_once():
    x, once, again = np.ones((8, 3), np.float32), Average(True), Average(True)
    once(nt.tensor(x))
    nt.jvp(lambda x: again(x)["result"], x, x)
    assert once.average.tolist() == again.average.tolist()


# Layers under autocast.


LAYERS = {
    "Linear": (lambda: nt.nn.Linear(3, 2), (4, 3)),
    "Conv2d": (lambda: nt.nn.Conv2d(3, 2, 2), (1, 3, 4, 4)),
    "ConvTranspose1d": (lambda: nt.nn.ConvTranspose1d(3, 2, 2), (1, 3, 4)),
    "ConvTranspose2d": (lambda: nt.nn.ConvTranspose2d(3, 2, 2), (1, 3, 4, 4)),
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(("make", "shape"), LAYERS.values(), ids=LAYERS.keys())
def test_layers_with_a_bias_give_what_autocast_lowers_to(make, shape, dtype):
    layer, x = make(), nt.randn(*shape, rng=0)
    with nt.autocast(dtype):
        out = layer(x)
        out.sum().backward()
    assert out.dtype == dtype
    assert {parameter.grad.dtype for parameter in layer.parameters()} == {nt.float32}
    np.testing.assert_allclose(out.numpy().astype(np.float32), layer(x).numpy(), rtol=0.05, atol=0.02)


@pytest.mark.parametrize("rank", [1, 2])
def test_a_transposed_convolution_may_be_kept_in_float32(rank):
    layer = (nt.nn.ConvTranspose1d if rank == 1 else nt.nn.ConvTranspose2d)(3, 2, 2)
    x = nt.randn(1, 3, *(4,) * rank, rng=0)
    with nt.autocast(keep_fp32_ops=[f"conv_transpose{rank}d"]):
        assert layer(x).dtype == nt.float32
    assert layer(x).dtype == nt.float32


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_states_that_add_up_stay_float32_under_autocast(kind):
    layer = getattr(nt.nn, kind)(3, 2)
    with nt.autocast():
        out, _ = layer(nt.ones(4, 1, 3))
    assert out.dtype == (nt.bfloat16 if kind == "RNN" else nt.float32)


@pytest.mark.parametrize(("make", "shape"), LAYERS.values(), ids=LAYERS.keys())
def test_layers_refuse_float64_under_autocast_too(make, shape):
    layer = make()
    kind = type(layer).__name__
    with nt.autocast(), pytest.raises(nt.errors.DtypeError) as error:
        layer(nt.ones(*shape, dtype=nt.float64))
    assert str(error.value) == (
        f"{kind}: the input has dtype float64 and the weights have float32; use x.astype(nt.float32), or "
        "model.to(nt.float64)."
    )
    with nt.autocast(), pytest.raises(nt.errors.DtypeError):
        layer.double()(nt.ones(*shape))
    with nt.autocast():
        assert layer(nt.ones(*shape, dtype=nt.float64)).dtype == nt.float64


@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
def test_a_mean_of_large_bfloat16_numbers_is_in_range(axis):
    x = nt.full((7, 3), 3e38, dtype=nt.bfloat16)
    assert (nt.mean(x, axis=axis) == x[0, 0]).all()
