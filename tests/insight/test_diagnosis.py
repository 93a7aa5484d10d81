"""The usual causes of values that are not finite, each with its repair."""

import numpy as np
import pytest

import numtape as nt
from numtape.core.declare import registry
from numtape.core.op import Op
from numtape.errors import NumtapeError
from numtape.insight.birth import Birth
from numtape.insight.repairs import is_in_domain, select_where_differentiable

NAN, INF = np.nan, np.inf


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def explained(function, *arrays, dtype=nt.float32):
    """Explain the sum of a function of leaves."""
    leaves = [nt.tensor(array, dtype=dtype, requires_grad=True) for array in arrays]
    return nt.explain_nan(function(*leaves).sum())


OUTSIDE = [
    (nt.log, [[1.0, 0.0]], "log is finite where x > 0, and here x = 0."),
    (nt.log, [[1.0, -2.0]], "log is finite where x > 0, and here x = -2."),
    (nt.log1p, [[-1.0]], "log1p is finite where x > -1, and here x = -1."),
    (nt.div, [[1.0], [0.0]], "div is finite where b != 0, and here a = 1 and b = 0."),
    (nt.div, [[0.0], [0.0]], "div is finite where b != 0, and here a = 0 and b = 0."),
    (nt.sqrt, [[4.0, -1.0]], "sqrt is finite where x >= 0, and here x = -1."),
    (nt.acos, [[1.5]], "acos is finite where abs(x) <= 1, and here x = 1.5."),
    (nt.asin, [[-1.5]], "asin is finite where abs(x) <= 1, and here x = -1.5."),
    (
        nt.pow,
        [[-8.0], [1 / 3]],
        "pow is finite where (a > 0) | (a < 0) & (b == rint(b)) | (a == 0) & (b >= 0), and here a = -8 and "
        "b = 0.333333.",
    ),
]


@pytest.mark.parametrize(("function", "arrays", "cause"), OUTSIDE, ids=lambda x: getattr(x, "__name__", ""))
def test_an_operand_outside_of_the_domain_is_named(function, arrays, cause):
    found = explained(function, *arrays)
    assert (found.direction, found.cause) == ("forward", cause)


OVERFLOWS = [
    (nt.exp, [[1.0, 12.0]], nt.float16, "1.628e+05", "float16 is 6.55e+04"),
    (nt.exp, [[1.0, 100.0]], nt.float32, "2.688e+43", "float32 is 3.403e+38"),
    (nt.exp, [[1.0, 800.0]], nt.float64, "2.726e+347", "float64 is 1.798e+308"),
    (nt.square, [[300.0]], nt.float16, "9e+04", "float16 is 6.55e+04"),
    (nt.sum, [[60000.0, 60000.0]], nt.float16, "1.2e+05", "float16 is 6.55e+04"),
    (nt.sum, [[3e38, 3e38]], nt.float32, "6e+38", "float32 is 3.403e+38"),
    (lambda x: x.astype(nt.float16), [[1e5]], nt.float32, "1e+05", "float16 is 6.55e+04"),
]


@pytest.mark.parametrize(("function", "arrays", "dtype", "value", "largest"), OVERFLOWS)
def test_overflow_says_what_the_value_would_be(function, arrays, dtype, value, largest):
    found = explained(function, *arrays, dtype=dtype)
    assert (found.direction, found.cause) == ("forward", f"overflow: the value is {value}, and the largest {largest}.")


@pytest.mark.parametrize(
    ("function", "x", "cause"),
    [
        (nt.acos, 1.0 + 1e-9, "acos is finite where abs(x) <= 1, and here x = 1.000000001."),
        (nt.asin, -1.0 - 1e-9, "asin is finite where abs(x) <= 1, and here x = -1.000000001."),
        (nt.sqrt, -1e-300, "sqrt is finite where x >= 0, and here x = -1e-300."),
    ],
)
def test_an_operand_just_outside_of_the_domain_has_all_its_digits(function, x, cause):
    assert explained(function, [x], dtype=nt.float64).cause == cause


def test_a_value_just_beyond_the_largest_has_as_many_digits_as_it_needs():
    cause = explained(lambda x: x * 1.0001, [3.4028234e38]).cause
    assert cause == "overflow: the value is 3.40316381e+38, and the largest float32 is 3.40282347e+38."


def test_the_repair_of_overflow_depends_on_the_dtype():
    half = "compute this in float32 (x.astype(nt.float32)) or bfloat16, or scale down before."
    small = (
        "keep the operands small: subtract the maximum before an exponential (nt.logsumexp, nt.softmax and "
        "nt.log_softmax do), work with logarithms, take means instead of sums"
    )
    assert explained(nt.exp, [12.0], dtype=nt.float16).repair == half
    assert explained(nt.exp, [800.0], dtype=nt.float32).repair == f"{small}, or compute in float64."
    assert explained(nt.exp, [800.0], dtype=nt.float64).repair == f"{small}."


def test_a_product_of_zero_and_an_infinite_derivative_under_a_mask_has_its_repair_in_code():
    x = nt.tensor([0.0, 4.0], requires_grad=True)
    loss = nt.where(x > 0, nt.sqrt(x) * 2.0, 0.0).sum()
    loss.backward()
    assert np.isnan(x.grad.numpy()[0])
    found = nt.explain_nan(loss)
    assert (found.op, found.direction, found.index) == ("sqrt", "backward", (0,))
    mask = nt.records(loss)[2]
    assert mask.op.name == "where"
    assert found.cause == (
        "0 * inf under a mask: the derivative of sqrt by x is inf where x = 0; the result is not used there, so the "
        f"cotangent that comes in is 0 (where at {mask.site} masks it), and 0 times that is nan."
    )
    assert found.repair == (
        "select twice, so that the op never sees that element, by the mask of where:\n"
        "    safe = nt.where(mask, x, 0.5)\n"
        "    y = nt.where(mask, nt.sqrt(safe), 0.0)"
    )


@pytest.mark.parametrize(
    ("function", "arrays"),
    [(f, a) for f, a, _ in OUTSIDE]
    + [
        (nt.sqrt, [[0.0]]),
        (nt.acos, [[1.0]]),
        (nt.cbrt, [[0.0]]),
        (lambda x: nt.polygamma(1, x), [[0.0, 0.3]]),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_the_code_of_a_repair_runs_and_repairs(function, arrays):
    leaves = [nt.tensor(array, requires_grad=True) for array in arrays]
    found = nt.explain_nan(function(*leaves).sum())
    code = "\n".join(line.strip() for line in found.repair.splitlines()[1:])
    names = dict(zip("ab" if len(leaves) == 2 else "x", leaves, strict=True))
    exec(code, {"nt": nt}, names)
    assert not nt.explain_nan(names["y"].sum())


def test_an_infinite_derivative_is_named_with_its_point():
    found = explained(nt.sqrt, [1.0, 0.0])
    assert found.cause == "the derivative of sqrt by x is inf where x = 0."
    assert found.repair == (
        "keep x away from 0, by a small number that is added or subtracted before the op; or, if that element is not "
        "used, select twice, so that the op never sees that element:\n"
        "    ok = x > 0\n"
        "    y = nt.where(ok, nt.sqrt(nt.where(ok, x, 0.5)), 0.0)"
    )
    assert [str(seen) for seen in found.operands] == ["x = 0", "the cotangent of its result = 1"]


def test_a_derivative_by_an_operand_that_was_repeated_is_found_at_its_element():
    found = explained(lambda a, b: nt.pow(a, b), [[1.0], [0.0]], [0.5, 0.25, 2.0])
    assert (found.op, found.direction, found.index) == ("pow", "backward", (1, 0))
    assert found.cause == "the derivative of pow by a is inf where a = 0 and b = 0.5."


def test_a_cotangent_that_overflows_is_told_from_an_infinite_derivative():
    x = nt.tensor([1e-30], requires_grad=True)
    found = nt.explain_nan((x * 1e30 * 1e30).sum())
    assert (found.direction, found.op, found.number) == ("backward", "mul", 0)
    assert found.cause == (
        "overflow: the derivative of mul by a times the cotangent that came in, or the sum of such products, exceeds "
        "the largest number of its dtype."
    )


def test_a_gradient_that_overflows_when_it_is_rounded_says_its_value():
    x = nt.tensor([1.0], dtype=nt.float16, requires_grad=True)
    found = nt.explain_nan((x.astype(nt.float32) * 1e6).sum())
    assert found.cause == (
        "overflow of the gradient when it was rounded to the dtype of its tensor: it is 1e+06, and the largest float16 "
        "is 6.55e+04."
    )


def test_norm_and_std_at_zero_are_finite_and_a_division_by_them_is_named_with_what_made_it():
    assert not explained(nt.norm, [0.0, 0.0])
    assert not explained(nt.std, [1.0, 1.0])
    found = explained(lambda x: (x - x.mean()) / x.std(), [1.0, 1.0])
    assert found.cause == "div is finite where b != 0, and here a = 0 and b = 0."
    assert found.operands[1].maker.startswith("made by std at ")


def test_infinite_data_that_becomes_nan_is_named_with_its_source():
    found = explained(lambda x: (x * np.array([INF, 1.0], np.float32)) * 0.0, [1.0, 2.0])
    first = "inf - inf, 0 * inf or inf / inf in mul: among its operands are infinities, which came in as 'b' of mul at "
    assert found.cause.startswith(first)
    assert found.repair == (
        "if it is a mask, let no row be masked as a whole, or mask with a large finite number (-1e9); otherwise keep "
        "infinities out of the data."
    )


def test_an_op_without_a_domain_says_for_which_operands_it_is_not_finite():
    found = explained(lambda x: nt.slogdet(x)[1], [[1.0, 2.0], [2.0, 4.0]])
    assert found.cause == "slogdet is not finite for these operands: x of shape (2, 2) from 1 to 4."


GRID = np.array([-3.0, -2.5, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
WITH_DOMAIN = [op for op in registry.values() if op.facts.domain]


@pytest.mark.parametrize("op", WITH_DOMAIN, ids=lambda op: op.name)
def test_a_domain_is_where_the_op_is_finite(op):
    params = {"n": 1} if "n" in op.defaults else {}
    for point in np.stack(np.meshgrid(*[GRID] * len(op.arguments), indexing="ij"), -1).reshape(-1, len(op.arguments)):
        is_finite = bool(np.isfinite(op.forward(*point, **params)))
        assert is_in_domain(op, dict(zip(op.arguments, point, strict=True))) == is_finite, point


def test_every_elementwise_op_that_is_not_finite_somewhere_says_where():
    for op in registry.values():
        if not isinstance(op, Op) or not op.is_elementwise or op.facts.domain or op.facts.is_discrete or op.defaults:
            continue
        operands = np.meshgrid(*[GRID] * max(2, len(op.arguments)))[: len(op.arguments)]
        try:
            out = op.forward(*operands)
        except NumtapeError:  # It refuses what lies outside.
            continue
        assert np.isfinite(out).all(), op.name


def repaired(repair, **names):
    """Run the code of a repair, and return what it makes."""
    code = "\n".join(line.strip() for line in repair.splitlines()[1:])
    space = {"nt": nt, **names}
    exec(code, space)
    return space["y"]


MASKED = [
    ([1.0, 1000.0, 2000.0], nt.exp, lambda x: x < 10, "mask", [np.e, 1.0, 1.0]),
    ([4.0, -1.0, 0.0], nt.sqrt, lambda x: x > 0, "mask", [0.25, 1.0, 1.0]),
    ([4.0, -1.0, 0.0], nt.log, lambda x: x <= 0, "~mask", [0.25, 1.0, 1.0]),
    ([2.0, -1.0, 1.0], nt.acosh, lambda x: x <= 1, "~mask", [1 / np.sqrt(3), 1.0, 1.0]),
]


@pytest.mark.parametrize(("array", "function", "mask_of", "selection", "gradient"), MASKED)
@pytest.mark.parametrize("frees", [False, True])
def test_the_mask_of_a_where_is_the_condition_of_its_repair(array, function, mask_of, selection, gradient, frees):
    def choose(made, x):
        return nt.where(mask_of(x), made, x) if selection == "mask" else nt.where(mask_of(x), x, made)

    x = nt.tensor(array, requires_grad=True)
    loss = choose(function(x), x).sum()
    loss.backward(retain_graph=not frees)
    found = nt.explain_nan(loss)
    assert f"    safe = nt.where({selection}, x, " in found.repair
    x = nt.tensor(array, requires_grad=True)
    choose(repaired(found.repair, x=x, mask=mask_of(x), other=x), x).sum().backward()
    assert np.allclose(x.grad.numpy(), gradient, rtol=1e-6)


@pytest.mark.parametrize(
    ("choose", "mask_of"),
    [
        (lambda x: nt.where(x > 0, nt.sqrt(x), 7.0), lambda x: x > 0),
        (lambda x: nt.where(x == 0, 1.5, nt.sqrt(x)), lambda x: x == 0),
        (lambda x: nt.where(x > 0, nt.sqrt(x), 2.0 * x + 1.0), lambda x: x > 0),
    ],
)
def test_a_repair_may_take_the_place_of_the_whole_where(choose, mask_of):
    x = nt.tensor([4.0, 1.0, 0.0], requires_grad=True)
    before = choose(x).sum()
    before.backward()
    repair = nt.explain_nan(before).repair
    x = nt.tensor([4.0, 1.0, 0.0], requires_grad=True)
    after = repaired(repair, x=x, mask=mask_of(x), other=2.0 * x + 1.0).sum()
    after.backward()
    assert after.item() == before.item()
    assert np.isfinite(x.grad.numpy()).all()


def same(y):
    return y


UNMASKED = [
    ([4.0, 0.0, 0.0], nt.sqrt, same, "x > 0"),
    ([4.0, -1.0, 0.0], nt.sqrt, nt.nan_to_num, "x > 0"),
    ([1.0, 1000.0, 2000.0], nt.exp, lambda y: nt.minimum(y, 5.0), "x < 1000"),
    ([1.0, -1000.0, -2000.0], nt.cosh, lambda y: nt.minimum(y, 5.0), "x > -1000"),
    ([1.0, 1000.0, 2000.0], nt.exp, lambda y: 1.0 / (1.0 + y), "x < 1000"),
    ([1.0, 0.0, 2.0], nt.log, lambda y: nt.maximum(y, -5.0), "x > 0"),
    ([8.0, 0.0, -8.0], nt.cbrt, same, "x != 0"),
    ([0.5, 1.0, -1.0], nt.asin, same, "abs(x) < 1"),
]


@pytest.mark.parametrize(("array", "function", "after", "condition"), UNMASKED, ids=[c for *_, c in UNMASKED])
def test_without_a_mask_the_condition_excludes_every_element_that_has_no_derivative(array, function, after, condition):
    x = nt.tensor(array, requires_grad=True)
    loss = after(function(x)).sum()
    found = nt.explain_nan(loss)
    assert found.direction == "backward"
    assert f"    ok = {condition}\n" in found.repair
    again = after(repaired(found.repair, x=x)).sum()
    assert not nt.explain_nan(again)
    if after is not same:  # The elements are used: only their derivative, which is not, is left out.
        assert again.item() == loss.item()


OVERFLOWING = {
    "a softmax": lambda x: ((e := nt.exp(x)) / e.sum())[1],
    "a mask": lambda x: nt.where(np.array([False, True]), nt.exp(x) * x, 0.0).sum(),
    "a bound": lambda x: nt.minimum(nt.exp(x) * x, 1.0).sum(),
    "an element that is not used": lambda x: (nt.exp(x) / nt.norm(nt.exp(x)))[1],
}


@pytest.mark.parametrize("name", OVERFLOWING)
@pytest.mark.parametrize("is_switched_on", [False, True])
def test_a_derivative_that_reads_an_infinity_leads_to_where_that_began(name, is_switched_on):
    x = nt.tensor([1000.0, 1.0], requires_grad=True)
    loss = OVERFLOWING[name](x)
    assert np.isfinite(loss.item())
    if is_switched_on:
        with nt.detect_anomaly(), pytest.raises(nt.errors.NonFiniteError) as caught:
            loss.backward()
        found = caught.value.explanation
    else:
        loss.backward()
        assert np.isnan(x.grad.numpy()[0])
        found = nt.explain_nan(loss)
    assert (found.direction, found.op, found.index) == ("forward", "exp", (0,))
    assert found.cause.startswith("overflow: the value is 1.97e+434, and the largest float32 is 3.403e+38. It does not")
    assert found.cause.endswith("reads it, and becomes nan.")


def test_an_infinity_under_a_mask_leads_to_the_division_that_made_it():
    mask = np.array([False, True])
    x = nt.tensor([1.0, 0.5], requires_grad=True)
    quotient = x / (x - 1.0)
    loss = nt.where(mask, quotient**2, 0.0).sum()
    loss.backward()
    found = nt.explain_nan(loss)
    assert (found.direction, found.op) == ("forward", "div")
    x = nt.tensor([1.0, 0.5], requires_grad=True)
    nt.where(mask, repaired(found.repair, a=x, b=x - 1.0) ** 2, 0.0).sum().backward()
    assert x.grad.tolist() == [0.0, 8.0]


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_a_constant_that_is_not_finite_has_a_repair_that_runs(number):
    x = nt.tensor([3.0, 2.0], requires_grad=True)
    factor = np.array([number, 1.0], np.float32)
    loss = nt.where(np.array([False, True]), nt.exp(x) * factor, 0.0).sum()
    loss.backward()
    found = nt.explain_nan(loss)
    assert (found.direction, found.op) == ("backward", "mul")
    assert not nt.explain_nan(repaired(found.repair, a=nt.exp(x), b=factor, mask=np.array([False, True])).sum())
    loss = nt.minimum(nt.exp(x) * np.array([np.inf, 1.0], np.float32), 9.0).sum()
    assert "    ok = nt.isfinite(b)\n" in nt.explain_nan(loss).repair


def test_the_argument_that_is_to_blame_is_replaced_and_not_the_one_of_the_derivative():
    for mask_is_known in (True, False):
        a = nt.tensor([1.0, 2.0], requires_grad=True)
        b = nt.tensor([0.0, 2.0])
        quotient = a / b
        chosen = nt.where(b != 0, quotient, 0.0) if mask_is_known else nt.minimum(quotient, 9.0)
        found = nt.explain_nan(chosen.sum())
        assert (found.direction, found.op) == ("backward", "div")
        assert ("nt.where(mask, b, 0.5)" if mask_is_known else "nt.where(ok, b, 0.5)") in found.repair
        repaired(found.repair, a=a, b=b, mask=b != 0).sum().backward()
        assert a.grad.tolist() == [0.0, 0.5]


def test_a_negative_base_is_to_blame_for_the_derivative_by_the_exponent():
    a = nt.tensor([-1.0, -2.0, 2.0])
    b = nt.tensor([1.0, 2.0, 2.5], requires_grad=True)
    found = nt.explain_nan(nt.pow(a, b).sum())
    assert found.repair.startswith("keep a where that derivative exists; ")
    repaired(found.repair, a=a, b=b).sum().backward()
    assert np.allclose(b.grad.numpy(), [0.0, 0.0, 2.0**2.5 * np.log(2.0)], rtol=1e-6)


def test_many_points_among_others_are_told_by_the_derivative_itself():
    x = nt.tensor(np.arange(1.0, 9.0), requires_grad=True)
    record = nt.sqrt(x).node
    bad = np.arange(8) % 2 == 0
    birth = Birth(record, "backward", "computed", (0,), INF, 0, values={"x": x.numpy()}, bad=bad)
    repair = select_where_differentiable(birth, "x")
    assert "    ok = nt.isfinite(nt.elementwise_grad(lambda x: nt.sqrt(x))(x.detach()))\n" in repair
    assert np.array_equal(repaired(repair, x=x).numpy(), np.sqrt(x.numpy()))


def test_an_overflow_on_the_way_to_a_small_value_is_told_from_one_of_the_value():
    a = nt.tensor([[1e30, 1e30]], dtype=nt.float32, requires_grad=True)
    b = nt.tensor([[1e10], [-1e10]], dtype=nt.float32)
    found = nt.explain_nan((a @ b).sum())
    assert (found.op, found.direction) == ("matmul", "forward")
    assert found.cause == (
        "overflow on the way: the value is 0e+00, but to get there matmul adds up or multiplies numbers beyond the "
        "largest float32, 3.403e+38."
    )


@pytest.mark.parametrize(
    ("normalise", "name"),
    [
        (lambda x: nt.layer_norm(x, (2,), eps=0.0), "layer_normalise"),
        (nt.nn.BatchNorm1d(2, eps=0.0), "batch_normalise"),
    ],
)
def test_a_variance_of_zero_without_eps_is_named(normalise, name):
    found = explained(normalise, np.ones((3, 2)))
    assert found.cause == (
        f"division by a standard deviation of 0: elements that {name} divides by theirs are all equal, and eps is 0."
    )
    assert found.repair.startswith("give a positive eps")


def test_a_product_of_zero_and_an_infinite_derivative_without_a_mask_is_not_said_to_be_masked():
    x = nt.tensor([0.0, 4.0], requires_grad=True)
    loss = (nt.sqrt(x) ** 2).sum()
    loss.backward()
    assert nt.explain_nan(loss).cause == (
        "0 * inf: the derivative of sqrt by x is inf where x = 0; what follows has the derivative 0 there, or does not "
        "use the result, so the cotangent that comes in is 0, and 0 times that is nan."
    )


@pytest.mark.parametrize("bad", [[-2.0, -0.5], [-2.0], [-0.001, -7.0]])
def test_the_repair_of_a_power_by_its_exponent_is_a_positive_base(bad):
    a = nt.tensor([*bad, 3.0], requires_grad=True)
    b = nt.tensor([2.0] * len(a), requires_grad=True)
    loss = (a**b).sum()
    loss.backward()
    assert nt.explain_nan(loss).repair == (
        "keep a where that derivative exists; or, if that element is not used, select twice, so that the op never sees "
        "that element:\n"
        "    ok = a > 0\n"
        "    y = nt.where(ok, nt.pow(nt.where(ok, a, 0.5), b), 0.0)"
    )


def test_the_repair_of_a_root_by_pow_excludes_zero():
    a = nt.tensor(np.array([-1.0, 0.0, 4.0]), requires_grad=True)
    found = nt.explain_nan((a**0.5).sum())
    assert "    ok = a > 0\n" in found.repair
    repaired(found.repair, a=a, b=0.5).sum().backward()
    assert a.grad.tolist() == [0.0, 0.0, 0.25]


def test_negative_bases_get_through_the_repair_of_a_reciprocal_by_pow():
    a = nt.tensor(np.array([-2.0, 0.0, 4.0]), requires_grad=True)
    found = nt.explain_nan((a**-1.0).sum())
    repaired(found.repair, a=a, b=-1.0).sum().backward()
    assert a.grad.tolist() == [-0.25, 0.0, -0.0625]


@pytest.mark.parametrize("tracked", ["all", "first", "last"])
@pytest.mark.parametrize("op", [op for op in WITH_DOMAIN if not op.defaults], ids=lambda op: op.name)
@pytest.mark.parametrize("is_bounded", [False, True])
def test_no_element_is_left_without_a_derivative_by_the_repair(op, tracked, is_bounded):
    grids = np.meshgrid(*[GRID] * len(op.arguments))
    positions = {"all": range(len(grids)), "first": [0], "last": [len(grids) - 1]}[tracked]
    leaves = [nt.tensor(grid.ravel(), requires_grad=i in positions) for i, grid in enumerate(grids)]
    after = (lambda y: nt.clip(nt.nan_to_num(y), -9.0, 9.0)) if is_bounded else same
    found = nt.explain_nan(after(getattr(nt, op.name)(*leaves)).sum())
    if found:  # A bounded quotient may be fine.
        assert found.direction == ("backward" if is_bounded else "forward")
        again = after(repaired(found.repair, **dict(zip(op.arguments, leaves, strict=True)))).sum()
        assert not nt.explain_nan(again)


@pytest.mark.parametrize(("function", "condition"), [(nt.sqrt, "x > 0"), (nt.acosh, "x > 1"), (nt.asin, "abs(x) < 1")])
def test_a_boundary_without_a_derivative_is_excluded_although_no_element_is_there(function, condition):
    x = nt.tensor([2.0, -3.0, 0.5], requires_grad=True)
    assert f"    ok = {condition}\n" in nt.explain_nan(nt.nan_to_num(function(x)).sum()).repair


def test_an_integer_base_is_replaced_by_a_float():
    a = nt.tensor([-2, 0, 4])
    b = nt.tensor([2.0, 2.0, 0.5], requires_grad=True)
    found = nt.explain_nan((a**b).sum())
    assert "    ok = a > 0\n" in found.repair
    assert not nt.explain_nan(repaired(found.repair, a=a, b=b).sum())


def test_the_condition_that_asks_the_derivative_takes_a_number_as_the_other_operand():
    a = nt.tensor([1e-30, 4.0], requires_grad=True)
    found = nt.explain_nan(nt.clip(nt.pow(a, -2.0), 0.0, 9.0).sum())
    assert "    ok = nt.isfinite(nt.elementwise_grad(lambda a: nt.pow(a, b))(a.detach()))\n" in found.repair
    assert not nt.explain_nan(nt.clip(repaired(found.repair, a=a, b=-2.0), 0.0, 9.0).sum())


@pytest.mark.parametrize("mask_of", [lambda x: np.array([True, False]), lambda x: x.numpy() > 0, lambda x: x > 0])
@pytest.mark.parametrize("retains", [None, True, False])
def test_a_mask_is_found_whatever_it_is_and_whenever_one_asks(mask_of, retains):
    x = nt.tensor([4.0, 0.0], requires_grad=True)
    loss = nt.where(mask_of(x), nt.sqrt(x), 0.0).sum()
    if retains is not None:
        loss.backward(retain_graph=retains)
    found = nt.explain_nan(loss)
    assert (found.op, found.direction, found.index) == ("sqrt", "backward", (1,))
    assert "by the mask of where" in found.repair or "ok = " in found.repair
