"""The code that `to_numpy_source` writes is NumPy alone, reads well, and computes what the tape computes."""

import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import numtape as nt
from numtape.core.gradients import link_of
from numtape.core.op import Op
from numtape.core.reverse import reverse
from numtape.errors import (
    ArgumentError,
    FreedError,
    GradientError,
    LeavesTapeError,
    NotConnectedError,
    OperandError,
    UnsupportedError,
)
from numtape.insight.source import tape_to_numpy_source, to_numpy_source
from numtape.testing.op_checks import case_of, entries, leaves, samples

#: Runs each text on each set of arguments and pickles what its gradient returns; numtape cannot be imported.
RUNNER = """
import pickle, sys
sys.modules["numtape"] = None
results = []
for text, calls in pickle.load(sys.stdin.buffer):
    space = {"__name__": "written"}
    exec(compile(text, "written", "exec"), space)
    results.append([(space["forward"](**arguments), *space["gradient"](**arguments)) for arguments in calls])
pickle.dump(results, sys.stdout.buffer)
"""


def run_apart(jobs):
    """Return what texts compute, each on each of its arguments, in a process without numtape."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", RUNNER], input=pickle.dumps(jobs), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout)


def assert_same(found, expected, tolerance=1e-12):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    size = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * size)


def assert_runs_apart(function, *tensors, tolerance=1e-12):
    """Write a function's code, run it apart on its tensors and on other values, and compare with the tape."""
    source = to_numpy_source(function(*tensors))
    others = [nt.tensor(t.numpy() * 0.9 + 0.01, dtype=t.dtype, requires_grad=True, name=t.name) for t in tensors]
    calls = [source.arguments, {**source.arguments, **{t.name: t.numpy(copy=True) for t in others}}]
    ((here, there),) = run_apart([(str(source), calls)])
    for (value, again, gradients), inputs in ((here, tensors), (there, others)):
        loss = function(*inputs)
        assert_same(value, loss.numpy(), tolerance)
        assert_same(again, loss.numpy(), tolerance)
        tape = nt.Tape(persistent=True)
        for tensor, expected in zip(inputs, tape.gradient(loss, list(inputs)), strict=True):
            assert_same(gradients[tensor.name], expected.numpy(), tolerance)
    return source


def test_integers_beside_floats_are_floats_in_the_gradient():
    x, weight = np.array([[3, 1, 2], [5, 0, 1]]), nt.tensor(np.ones(3), requires_grad=True, name="weight")
    assert_runs_apart(lambda weight: (nt.rms_norm(x, 3, weight) ** 2).sum(), weight)
    bias = nt.tensor(np.ones(2, np.float16), requires_grad=True, name="bias")
    images, kernel = np.arange(8).reshape(1, 2, 4), np.ones((2, 2, 2))
    assert_runs_apart(lambda bias: (nt.conv_transpose1d(images, kernel, bias) ** 2).sum(), bias, tolerance=1e-3)


def draw(name, *shape, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return nt.tensor(rng.normal(size=shape).astype(dtype), requires_grad=True, name=name)


def body(source, function="gradient"):
    """Return the lines of a function of written code, without comments and docstring."""
    text = source.partition(f"def {function}(")[2].partition('    """\n')[2].partition("\n\n")[0]
    return [line.strip() for line in text.splitlines() if not line.strip().startswith("#")]


def test_a_small_program_reads_as_one_would_write_it():
    x, w = draw("x", 4, 3), draw("w", 3, 2)
    h = np.tanh(x @ w)
    loss = (h * h).sum()
    source = to_numpy_source(loss, w)
    assert body(source, "forward") == [
        "t1 = x @ w",
        "h = np.tanh(t1)",
        "t2 = h * h",
        "loss = np.sum(t2)",
        "return loss",
    ]
    assert body(source) == [
        "t1 = x @ w",
        "h = np.tanh(t1)",
        "t2 = h * h",
        "loss = np.sum(t2)",
        "d_loss = np.float64(1.0)",
        "t3 = np.broadcast_to(d_loss, (4, 2))",
        "t4 = t3 * h",
        "t5 = t3 * h",
        "d_h = t4 + t5",
        "t6 = h * h",
        "t7 = 1.0 - t6",
        "t8 = d_h * t7",
        "t9 = np.transpose(x, (1, 0))",
        "d_w = t9 @ t8",
        'return loss, {"w": d_w}',
    ]
    assert source.pasted == ()


def test_comments_name_the_line_that_a_step_came_from():
    x = draw("x", 3)
    y = np.exp(x)
    lines = to_numpy_source(y).splitlines()
    comments = [line.strip() for line in lines if line.strip().startswith("#")]
    assert [comment.partition(":")[0] for comment in comments] == [
        "# test_source.py",
        "# test_source.py",
        "# back through exp, test_source.py",
    ]
    assert all(comment.endswith(": y = np.exp(x)") for comment in comments)


def first_and_middle(entry):
    found = samples(entry)
    return [found[i] for i in sorted({0, len(found) // 2})] if found else []


def written(entry, sample):
    """Yield, for each output of a sample, the source, and for two sets of operands its arguments and derivatives."""
    case = case_of(entry, sample)
    tensors = leaves(case.operands)
    outs = case.values(tensors)
    rng = np.random.default_rng(0)
    for position, out in enumerate(outs):
        if getattr(out, "node", None) is None:
            continue
        source = to_numpy_source(out)
        points = [[x.array for x in tensors]]
        if not sample.skip_derivatives:
            points.append([x + (rng.uniform(-0.01, 0.01, x.shape)).astype(x.dtype) for x in points[0]])
        calls, expected = [], []
        for arrays in points:
            moved = {id(x.array): array for x, array in zip(tensors, arrays, strict=True)}
            calls.append({name: moved.get(id(array), array) for name, array in source.arguments.items()})
            again = leaves(arrays)
            value = case.values(again)[position]
            found = reverse([(link_of(value), np.ones(value.shape, value.dtype))], again)
            of_array = {id(x.array): found.get(leaf) for x, leaf in zip(tensors, again, strict=True)}
            names = {name: of_array.get(id(array)) for name, array in source.arguments.items()}
            expected.append((value.array, names))
        yield source, calls, expected


@pytest.mark.filterwarnings("ignore")
def test_every_op_is_written_and_computes_the_same_on_other_values_without_numtape():
    jobs, expectations, refused = [], [], {}
    pasted, plain = set(), set()
    for entry in entries():
        for sample in first_and_middle(entry):
            try:
                found = list(written(entry, sample))
            except GradientError as error:
                refused[entry.name] = str(error)
                continue
            for source, calls, expected in found:
                jobs.append((str(source), calls))
                expectations.append((entry.name, expected))
                if isinstance(entry, Op):
                    (pasted if entry.name in source.pasted else plain).add(entry.name)
    for (name, expected), results in zip(expectations, run_apart(jobs), strict=True):
        for (value, names), (forward, again, gradients) in zip(expected, results, strict=True):
            assert_same(forward, value, 1e-9)
            assert_same(again, value, 1e-9)
            for argument, derivative in gradients.items():
                if names.get(argument) is not None:
                    np.testing.assert_allclose(derivative, names[argument], 1e-9, 1e-11, err_msg=name)
    # What the tape itself cannot differentiate there is refused in its words, which name the op.
    assert set(refused) <= {"svd", "eigh", "cofactors", "slogdet"}
    assert all(message.startswith(("svd", "eigh", "det", "slogdet")) for message in refused.values())
    assert len(jobs) > 400
    assert len(plain - pasted) >= 100
    assert len(pasted) <= 60


def test_an_mlp_runs_without_numtape():
    def loss(x, w, b, v):
        h = nt.gelu(x @ w + b)
        return nt.mse_loss(nt.sigmoid(h @ v), np.full((5, 2), 0.25))

    source = assert_runs_apart(loss, draw("x", 5, 3), draw("w", 3, 4), draw("b", 4), draw("v", 4, 2))
    assert source.pasted == ("gelu", "mse_loss", "normal_cdf", "sigmoid")


def test_a_convolutional_network_runs_without_numtape():
    def loss(x, w, v):
        h = nt.max_pool2d(nt.relu(nt.conv2d(x, w, padding=1)), 2)
        return nt.cross_entropy_loss(h.reshape(2, -1) @ v, np.array([0, 2]))

    assert_runs_apart(loss, draw("x", 2, 1, 6, 6), draw("w", 3, 1, 3, 3, seed=1), draw("v", 27, 3, seed=2))


def test_softmax_cross_entropy_runs_without_numtape():
    target = np.eye(3)[[0, 2, 1, 1]]
    assert_runs_apart(lambda x: -(target * nt.log_softmax(x, axis=1)).sum(axis=1).mean(), draw("x", 4, 3))


def test_a_recurrent_network_runs_without_numtape():
    def loss(x, w, u):
        h = np.zeros((2, 3))
        for step in range(3):
            h = np.tanh(x[:, step] @ w + h @ u)
        return (h * h).sum()

    source = assert_runs_apart(loss, draw("x", 2, 3, 4), draw("w", 4, 3), draw("u", 3, 3))
    # Each run of the line assigns to the name that it assigns to in the program.
    assert [line.partition(" =")[0] for line in body(source, "forward") if "np.tanh" in line] == ["h", "h_2", "h_3"]


def test_indexing_is_written_with_brackets():
    def loss(x):
        return (x[1:, ::2] * x[:-1, 1:]).sum() + x[np.array([0, 0, 2]), 1].sum() + x[x.numpy() > 100.0].sum()

    source = assert_runs_apart(loss, draw("x", 4, 3))
    lines = body(source, "forward")
    assert "t1 = x[1:, ::2]" in lines
    assert "t5 = x[np.array([0, 0, 2], np.int64), 1]" in lines


def test_writes_in_place_become_copies():
    def loss(w):
        buffer = nt.zeros(3, dtype=np.float64)
        buffer[0] = w[0] * 2.0
        buffer[1:] = w[1:]
        buffer *= w
        total = nt.full((), 5.0, dtype=np.float64)
        total += buffer.sum()
        return total

    source = assert_runs_apart(loss, draw("w", 3))
    assert body(source, "forward")[:7] == [
        "t1 = w[0]",
        "t2 = t1 * 2.0",
        "t3 = np.zeros((3,), np.float64).copy()",
        "t3[0] = np.asarray(t2)",
        "t4 = w[1:]",
        "t5 = t3.copy()",
        "t5[1:] = t4",
    ]


def test_a_constant_that_was_overwritten_is_an_argument():
    w, c = draw("w", 3), nt.ones(3, dtype=np.float64)
    c += 1.0
    loss = (w + c).sum()
    c += 1.0
    source = to_numpy_source(loss)
    line = test_a_constant_that_was_overwritten_is_an_argument.__code__.co_firstlineno
    assert list(source.arguments) == ["w", "before"]
    assert (
        f"before: float64 of shape (3,); what it held at test_source.py:{line + 3}: it was overwritten since" in source
    )
    assert source.load()["forward"](np.ones(3), np.full(3, 2.0)) == 9.0


def test_dropout_draws_what_was_drawn():
    source = assert_runs_apart(lambda x: (nt.dropout(x, 0.5, rng=7) ** 2).sum(), draw("x", 20, 3))
    assert source.pasted == ("dropout",)


@pytest.mark.parametrize("dtype", [nt.float32, nt.float16, nt.bfloat16])
def test_dtypes_are_those_of_the_tape(dtype):
    x = nt.tensor([0.5, 1.5, -2.0], dtype=dtype, requires_grad=True, name="x")
    loss = (np.tanh(x * 3.0) + x / np.sqrt(3.0)).sum()
    source = to_numpy_source(loss)
    value, gradients = source.load()["gradient"](**source.arguments)
    expected = nt.Tape().gradient(loss, x)
    assert value.dtype == gradients["x"].dtype == dtype
    assert value == loss.numpy()
    assert gradients["x"].tolist() == expected.tolist()
    assert ("import ml_dtypes" in source) == (dtype == nt.bfloat16)


HALF_LOSSES = {
    "cross entropy of classes": lambda x: nt.cross_entropy_loss(x, np.zeros(3, int)),
    "a small factor": lambda x: nt.mse_loss(x * 1000.0, nt.zeros_like(x)) * 1e-6,
    "a norm": nt.vector_norm,
}


@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16], ids=str)
@pytest.mark.parametrize("name", HALF_LOSSES)
def test_cotangents_of_halves_are_float32_as_those_of_the_tape(name, dtype):
    x = nt.tensor(np.linspace(0.001, 0.05, 30).reshape(3, 10), dtype=dtype, requires_grad=True, name="x")
    loss = HALF_LOSSES[name](x)
    source = to_numpy_source(loss)
    value, gradients = source.load()["gradient"](**source.arguments)
    assert value == loss.numpy()
    assert gradients["x"].dtype == dtype
    assert gradients["x"].tolist() == nt.Tape().gradient(loss, x).tolist()


@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16], ids=str)
def test_each_of_several_outputs_is_rounded_to_half(dtype):
    x = nt.tensor(np.random.default_rng(0).normal(size=(4, 6)), dtype=dtype, requires_grad=True, name="x")
    normal = nt.nn.functional.batch_norm(x, None, None, training=True)
    assert to_numpy_source(normal).load()["forward"](x.numpy()).tolist() == normal.tolist()
    loss = (normal**2).sum()
    source = to_numpy_source(loss)
    _, gradients = source.load()["gradient"](**source.arguments)
    assert_same(gradients["x"].astype(np.float32), nt.Tape().gradient(loss, x).numpy().astype(np.float32), 1e-5)


def test_dead_code_is_left_out():
    x, w = draw("x", 3), draw("w", 3)
    loss = (np.exp(x) + w).sum()
    source = to_numpy_source(loss, w)
    assert body(source)[-4:] == [
        "loss = np.sum(t2)",
        "d_loss = np.float64(1.0)",
        "d_w = np.broadcast_to(d_loss, (3,))",
        'return loss, {"w": d_w}',
    ]


def test_small_constants_are_written_out_and_large_ones_are_arguments():
    x = draw("x", 3)
    y = nt.tensor([1.0, 2.0, 3.0], dtype=np.float64, name="y")
    large = np.arange(60.0).reshape(20, 3)
    source = to_numpy_source((x * np.array([1.0, 2.0, 4.0]) * large - y).sum())
    assert list(source.arguments) == ["x", "y", "constant"]
    assert "t1 = x * np.array([1.0, 2.0, 4.0], np.float64)" in body(source)
    assert "constant: float64 of shape (20, 3); a constant of the recording" in source


def test_names_that_python_cannot_use_are_changed():
    first, second = draw("0.weight", 2), draw("lambda", 2)
    source = to_numpy_source((first * second).sum())
    assert list(source.arguments) == ["p0_weight", "lambda_2"]
    assert list(source.load()["gradient"](**source.arguments)[1]) == ["p0_weight", "lambda_2"]


def test_an_intermediate_can_be_a_source():
    x = draw("x", 3)
    h = np.exp(x)
    assert body(to_numpy_source((h * h).sum(), [h, x]))[-1] == 'return loss, {"h": d_h, "x": d_x}'


def test_a_leaf_is_its_own_code():
    x = draw("x", 2)
    assert body(to_numpy_source(x)) == ["d_loss = np.ones((2,), np.float64)", 'return x, {"x": d_loss}']


def test_second_derivatives_are_code_like_any_other():
    x = draw("x", 3)
    outer = nt.Tape()
    with outer:
        inner = nt.GradientTape()
        inner.watch(x)
        first = inner.gradient((x**3).sum(), x)
    source = to_numpy_source(first, x)
    _, gradients = source.load()["gradient"](np.array([1.0, 2.0, 3.0]))
    assert gradients["x"].tolist() == [6.0, 12.0, 18.0]


def test_a_mask_that_a_rule_computes_is_computed_again():
    x = nt.tensor([1.0, -1.0], requires_grad=True, name="x")
    gradient = to_numpy_source(nt.relu(x).sum()).load()["gradient"]
    assert gradient(np.array([-3.0, 4.0], np.float32))[1]["x"].tolist() == [0.0, 1.0]


def test_a_hook_is_part_of_the_gradient():
    x = draw("x", 2)
    h = x * x
    h.register_hook(lambda g: g * 10.0)
    _, gradients = to_numpy_source(h.sum()).load()["gradient"](np.array([1.0, 2.0]))
    assert gradients["x"].tolist() == [20.0, 40.0]


def test_a_hook_that_wants_numbers_is_named():
    x = draw("x", 2)
    h = x * x
    h.register_hook(lambda g: print(g.tolist()))
    with pytest.raises(LeavesTapeError, match=r"^tolist\(\): this tensor stands for a value in code that is being"):
        to_numpy_source(h.sum())


def test_a_freed_graph_is_written_as_long_as_its_constants_are_there():
    x = draw("x", 2)
    loss = np.exp(x * 2.0).sum()
    loss.backward()
    assert to_numpy_source(loss).load()["forward"](np.zeros(2)) == 2.0
    loss = np.exp(x * nt.tensor([1.0, 2.0], dtype=np.float64)).sum()
    loss.backward()
    with pytest.raises(FreedError, match=r"^to_numpy_source: mul at .* read a constant that a backward has freed;"):
        to_numpy_source(loss)


def test_a_tape_is_written_from_its_only_result():
    x = nt.tensor([1.0, 2.0], name="x")
    with nt.Tape() as tape:
        loss = (x * x).sum()
    source = tape_to_numpy_source(tape.records, None, None, True)
    assert source.load()["forward"](np.array([3.0, 4.0])) == 25.0
    assert source == tape_to_numpy_source(tape.records, loss, x, True)


def test_a_tape_with_several_results_asks_for_one():
    x = nt.tensor([1.0, 2.0], name="x")
    with nt.Tape() as tape:
        _first = x * 2.0
        _second = x * 3.0
    with pytest.raises(ArgumentError) as caught:
        tape_to_numpy_source(tape.records, None, None, True)
    line = test_a_tape_with_several_results_asks_for_one.__code__.co_firstlineno
    assert str(caught.value) == (
        f"to_numpy_source: the tape has 2 results that no op reads (test_source.py:{line + 3}; "
        f"test_source.py:{line + 4}); give one as loss."
    )


def test_an_empty_tape_says_so():
    with pytest.raises(ArgumentError) as caught:
        tape_to_numpy_source([], None, None, True)
    assert str(caught.value) == "to_numpy_source: the tape is empty; record something first, or give the loss."


def test_what_is_no_tensor_is_refused():
    with pytest.raises(OperandError) as caught:
        to_numpy_source(3.0)
    assert str(caught.value) == (
        "to_numpy_source: wants the loss tensor itself, not float; call it with the tensor, not its id."
    )
    with pytest.raises(OperandError) as caught:
        to_numpy_source(draw("x", 2).sum(), "x")
    assert str(caught.value) == (
        "to_numpy_source: sources must be a tensor or an iterable of tensors, but str was given."
    )


def test_a_source_without_influence_is_named():
    with pytest.raises(NotConnectedError) as caught:
        to_numpy_source(draw("x", 2).sum(), draw("w", 3))
    assert str(caught.value) == (
        "to_numpy_source: the loss does not depend on w; watch it before it is used, and compute with nt or np "
        "functions outside of no_grad."
    )


def test_an_op_without_source_is_named():
    @nt.custom_op(vjp={"x": lambda g, x: g * 2.0 * x}, check=False)
    def own_square(x, /):
        return np.square(x)

    with pytest.raises(UnsupportedError) as caught:
        to_numpy_source(own_square(draw("x", 2)).sum())
    assert str(caught.value) == (
        "to_numpy_source: the op own_square cannot be written without numtape: its forward is a method, which has no "
        "source to paste. Leave it out of the graph, or compute its result outside and give it as a constant with "
        "detach()."
    )


def test_writing_leaves_no_records_and_no_state():
    x = draw("x", 3)
    with nt.Tape() as tape:
        loss = np.exp(x).sum()
        count = len(tape)
        to_numpy_source(loss)
        assert len(tape) == count
    assert x.grad is None


def test_threads_write_at_the_same_time():
    texts = {}

    def work(number):
        x = nt.tensor([1.0, 2.0], requires_grad=True, name="x")
        for _ in range(5):
            texts[number] = str(to_numpy_source((x * x).sum()))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts[0] == texts[1] != ""


CONVOLUTIONS = {
    "conv1d": (lambda x, w, b: nt.conv1d(x, w, b, padding=1), (2, 3, 8), (4, 3, 3)),
    "conv2d": (lambda x, w, b: nt.conv2d(x, w, b, padding=1), (2, 3, 6, 6), (4, 3, 3, 3)),
    "with a stride": (lambda x, w, b: nt.conv2d(x, w, b, stride=2, dilation=2), (2, 3, 8, 8), (4, 3, 3, 3)),
    "in groups": (lambda x, w, b: nt.conv2d(x, w, b, groups=2), (2, 4, 6, 6), (4, 2, 3, 3)),
}


@pytest.mark.parametrize("dtype", [nt.float64, nt.float32, nt.float16, nt.bfloat16], ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_pasted_as_numpy_kernels(name, dtype):
    run, *shapes = CONVOLUTIONS[name]
    rng = np.random.default_rng(5)
    x, w, b = (nt.tensor(rng.standard_normal(shape), dtype=dtype, requires_grad=True) for shape in (*shapes, (4,)))
    source = to_numpy_source((nt.tanh(run(x, w, b)) @ nt.ones(run(x, w, b).shape[-1], dtype=dtype)).sum())
    assert {"conv", "conv_input", "conv_weight"} <= set(source.pasted)
    assert "onednn" not in source
    assert "numtape" not in source


@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16], ids=str)
def test_products_of_halves_are_written_without_libraries(dtype):
    rng = np.random.default_rng(6)
    x, w, b = (nt.tensor(rng.standard_normal(s), dtype=dtype, requires_grad=True) for s in ((3, 4), (5, 4), (5,)))
    for loss in ((x @ w.T).sum(), nt.linear(x, w, b).sum(), (nt.stack([x, x]) @ w.T).sum()):
        source = to_numpy_source(loss)
        assert "from None" not in source
        assert "onednn" not in source


def test_a_checkpointed_loop_is_refused_by_name():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    loss = nt.checkpoint_loop(nt.sin, x, 3).sum()
    with pytest.raises(UnsupportedError) as error:
        to_numpy_source(loss)
    assert str(error.value) == (
        f"to_numpy_source: loop at {nt.records(loss)[0].site} runs a Python function again and again, and the tape "
        "holds none of its ops; write the loop without nt.checkpoint_loop, so that each step is recorded."
    )


def test_a_tensor_in_numpys_memory_that_was_refilled_is_named():
    memory = np.array([1.0, 0.5])
    v = nt.tensor(np.ones(2), requires_grad=True, name="v")
    loss = nt.sin(nt.from_numpy(memory) * v).sum()
    memory[:] = [0.3, 1.0]
    with pytest.raises(nt.errors.OverwrittenError, match="the NumPy array that mul read at"):
        nt.to_numpy_source(loss)


@pytest.mark.parametrize("values", [-np.ones(1000), np.zeros(1000)], ids=["minus one", "zero"])
def test_sums_of_bfloat16_are_not_numpys_though_they_agree_on_what_was_recorded(values):
    def function(x):
        return nt.relu(x).sum()

    written = nt.to_numpy_source(function(nt.tensor(values, dtype=nt.bfloat16, requires_grad=True, name="x")))
    other = np.linspace(0.1, 1.0, 1000).astype(nt.bfloat16)
    assert float(written.load()["forward"](x=other)) == function(nt.tensor(other)).item()
