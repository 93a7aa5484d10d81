"""Digests of runs: equal for equal runs, kept in files, and the first op and line where two runs part."""

import json

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ClosedError, FreedError, OperandError, SavedFileError, TapeConsumedError
from numtape.insight.digest import digest_of


def run(scale=2.0, x=(1.0, 2.0), extra=False, shape=(2,), function=nt.exp):
    with nt.Tape() as tape:
        h = nt.tensor(x, name="x").reshape(shape) * scale
        h = function(h)
        loss = h.sum()
        if extra:
            nt.sqrt(loss)
    return tape.digest(loss)


def parted(a, b):
    difference = nt.diff_digests(a, b)
    return difference.kind, difference.position, difference.op


def test_equal_runs_have_equal_digests():
    difference = nt.diff_digests(run(), run())
    assert not difference
    assert str(difference) == "the runs are equal in all 4 records"
    assert (difference.op, difference.site) == (None, None)
    assert run() == run()
    assert run().hash == run().hash
    assert repr(run()) == f"<Digest: 4 records, {run().hash}>"
    assert len(str(run()).splitlines()) == 6


def test_the_first_difference_is_found_whatever_it_is():
    assert parted(run(), run(x=(1.0, 2.5))) == ("operands", 0, "reshape")
    assert parted(run(), run(scale=3.0)) == ("operands", 1, "mul")
    assert parted(run(), run(function=nt.sin)) == ("op", 2, "exp")
    assert parted(run(), run(shape=(2, 1))) == ("shape", 0, "reshape")
    assert parted(run(), run(extra=True)) == ("length", 4, "sqrt")
    assert parted(run(extra=True), run()) == ("length", 4, "sqrt")


def test_an_op_that_gives_other_bits_on_the_same_inputs_is_named_with_its_line():
    noise = [0.0]

    @nt.custom_op(vjp={"x": lambda g: g}, deterministic=False, check=False)
    def noisy(x, /):
        return x + noise[0]

    def digest():
        x = nt.tensor([1.0, 2.0], name="x")
        with nt.Tape() as tape:
            y = noisy(nt.exp(x))
            (y * y).sum()
        noise[0] = 1e-3
        return tape.digest()

    # The product's rule reads y, so that it is kept and need not be made again.
    noise[0] = 0.0
    first = digest()
    difference = nt.diff_digests(first, digest())
    assert (difference.kind, difference.position, difference.op) == ("value", 1, "noisy")
    lines = str(difference).splitlines()
    assert lines[0] == (
        "the runs part at record %1: the same op gave other bits on the same inputs, or its function captures others"
    )
    assert lines[1].startswith("  first: noisy(%0) (2,) float32 is ")
    assert "(y = noisy(nt.exp(x)))" in difference.site
    assert __file__ in difference.site


def test_draws_are_among_the_parameters():
    def digest(seed):
        with nt.Tape() as tape:
            nt.dropout(nt.ones(3), rng=seed).sum()
        return tape.digest()

    assert parted(digest(0), digest(1)) == ("params", 0, "dropout")
    assert not nt.diff_digests(digest(0), digest(0))


def test_another_cotangent_is_found_behind_an_equal_forward():
    def digest(scale):
        x = nt.tensor([1.0, 2.0], requires_grad=True)
        with nt.Tape() as tape:
            h = nt.exp(x)
            h.register_hook(lambda g: g * scale)
            loss = nt.sin(h).sum()
        return tape.digest(loss)

    assert parted(digest(1.0), digest(2.0)) == ("cotangent", 0, "exp")
    assert "the forward is the same, and another cotangent came back to this op" in str(
        nt.diff_digests(digest(1.0), digest(2.0))
    )
    assert not nt.diff_digests(digest(1.0), digest(1.0))


def test_another_gradient_of_a_leaf_is_found_behind_equal_cotangents(tmp_path):
    def digest(scale):
        x = nt.tensor([1.0, 2.0], requires_grad=True, name="x")
        x.register_hook(lambda g: g * scale)
        with nt.Tape() as tape:
            loss = nt.sin(nt.exp(x)).sum()
        return tape.digest(loss)

    one, other = digest(1.0), digest(2.0)
    assert parted(one, other) == ("gradient", 0, "exp")
    assert one != other
    assert one.hash != other.hash
    assert str(nt.diff_digests(one, other)).startswith(
        "the runs part at record %0: the cotangents are the same, and another gradient came to a leaf that this op read"
    )
    assert one == digest(1.0)
    assert nt.Digest.from_json(one.to_json()) == one
    assert parted(one, nt.Digest.from_json(other.to_json())) == ("gradient", 0, "exp")
    assert str(one).splitlines()[-1].startswith("gradient of x ")


def test_a_digest_with_cotangents_and_one_without_differ_however_they_are_compared():
    with nt.Tape() as tape:
        loss = (nt.tensor([1.0], name="x") * 2.0).sum()
    with_backward, without = tape.digest(loss), tape.digest()
    assert with_backward != without
    assert with_backward.hash != without.hash
    for pair in ((with_backward, without), (without, with_backward)):
        assert parted(*pair) == ("backward", 1, "sum")
        assert (
            "the forward is the same, and one digest only has a backward; take both with the loss, or without"
            in str(nt.diff_digests(*pair))
        )


def test_a_document_without_gradients_is_still_read():
    document = json.loads(run().to_json())
    del document["gradients"]
    old = nt.Digest.from_json(json.dumps(document))
    assert old.has_cotangents
    assert (parted(run(), old), run() == old) == (("backward", 3, "sum"), False)


def test_a_digest_delivers_and_frees_nothing():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    with nt.Tape() as tape:
        h = nt.exp(x)
        h.retain_grad()
        loss = h.sum()
    tape.digest(loss)
    assert x.grad is None
    assert h.grad is None
    tape.backward(loss)
    np.testing.assert_array_equal(h.grad.numpy(), [1.0, 1.0])


def test_values_that_were_dropped_are_made_again():
    def digest(checkpoint):
        x = nt.tensor(np.linspace(0.1, 1.0, 6), name="x")
        with nt.Tape(checkpoint=checkpoint) as tape:
            h = x
            for _ in range(5):
                h = nt.exp(nt.sin(h)) @ nt.ones(6, 6, dtype=nt.float64) * 0.1
            loss = (h * 2).sum()  # A number that is written as none of the dtype.
        return tape.digest(loss)

    plain = digest(None)
    for strategy in ("block", "full", "selective"):
        dropped = digest(nt.CheckpointConfig(strategy, checkpoint_every_n=3))
        assert dropped == plain, str(nt.diff_digests(plain, dropped))


def test_a_freed_graph_has_a_digest_until_what_it_began_with_has_changed():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    with nt.Tape() as tape:
        loss = (nt.exp(x) * 3.0).sum()
    before = tape.digest()
    tape.backward(loss)
    assert tape.digest() == before
    with nt.no_grad():
        x += 1.0
    with pytest.raises(FreedError) as caught:
        tape.digest()
    assert str(caught.value).startswith(
        "digest: the output of exp is not kept, and to compute it again is too late; take the digest before the write "
        "that this names, or do as it says. exp: the derivative needs the value of 'x', saved at "
    )
    assert "overwritten in place at" in str(caught.value)
    assert "(x += 1.0)" in str(caught.value)


def test_a_buffer_that_a_module_updates_in_place_is_named_with_the_line_of_the_write():
    class Centered(nt.nn.Module):
        def __init__(self):
            self.register_buffer("mean", nt.zeros(3))

        def forward(self, x):
            y = nt.exp((x - self.mean) + 1.0)
            with nt.no_grad():
                self.mean.mul_(0.9)
            return y

    with nt.Tape() as tape:
        loss = Centered()(nt.ones(3, requires_grad=True)).sum()
    for given in ((), (loss,)):
        with pytest.raises(FreedError) as caught:
            tape.digest(*given)
        assert str(caught.value).startswith("digest: the output of sub is not kept, and to compute it again is too ")
        assert "(self.mean.mul_(0.9))" in str(caught.value)
        assert str(caught.value).endswith(
            " Write the result to a new tensor (y = y + 1 instead of y += 1), or clone() before the write."
        )


def test_a_value_that_is_gone_with_what_it_was_made_of_says_so():
    x = nt.ones(10_000, requires_grad=True)
    with nt.GradientTape() as tape:
        loss = (x + np.ones(10_000, np.float32)).sum()
    tape.backward(loss)
    with pytest.raises(FreedError) as caught:
        tape.digest()
    assert str(caught.value).startswith("digest: the output of add at ")
    assert str(caught.value).endswith(
        " is gone, and so is what it was made of; take the digest before the backward and the optimizer's step."
    )


def test_several_outputs_half_types_and_an_empty_tape():
    with nt.Tape() as tape:
        pass
    assert len(tape.digest()) == 0
    nothing = nt.diff_digests(tape.digest(), tape.digest())
    assert not nothing
    assert str(nothing) == "neither run has a record, so nothing was compared; was anything watched?"
    for dtype in (nt.float16, nt.bfloat16):
        with nt.Tape() as tape:
            left, right = nt.split(nt.ones(4, dtype=dtype), 2)
            loss = (left * right + left[np.array([0, 1])]).sum()
        digest = tape.digest(loss)
        assert [entry.dtype for entry in digest][-1] == str(np.dtype(dtype))
        assert digest == tape.digest(loss)


def test_the_graph_behind_a_tensor_has_a_digest_without_a_tape():
    x = nt.tensor([1.0], requires_grad=True)
    loss = nt.exp(x).sum()
    assert [entry.op for entry in digest_of(loss)] == ["exp", "sum"]
    assert digest_of(nt.records(loss)) == digest_of(loss)
    with pytest.raises(OperandError) as caught:
        digest_of(3)
    assert str(caught.value) == "digest: wants a tensor, a tape or a list of records, not int."


def test_what_was_recorded_before_the_tape_was_entered_counts_as_well():
    def late(scale):
        w = nt.tensor([[0.0, 0.0]], requires_grad=True, name="w")
        h = nt.tensor([[1.0 * scale], [2.0]]) @ w
        with nt.Tape() as tape:
            loss = nt.mse_loss(h, nt.ones(2, 2))
        return tape.digest(loss)

    difference = nt.diff_digests(late(1), late(9))
    assert (difference.kind, difference.op) == ("operands", "matmul")

    def never(x):
        tape = nt.Tape()
        x = nt.tensor(x, requires_grad=True)
        return tape.digest(nt.exp(x * x))

    assert nt.diff_digests(never(1.0), never(2.0)).kind == "operands"
    assert never(1.0) == never(1.0)


def test_an_operand_from_before_the_tape_is_made_again():
    def run(k):
        h = nt.tensor([1.0, 2.0], requires_grad=True) * k
        with nt.Tape() as tape:
            nt.relu(h).sum()
        return tape.digest()

    assert nt.diff_digests(run(-1.0), run(-3.0)).kind == "operands"


def test_a_closed_tape_says_so():
    tape = nt.Tape()
    tape.close()
    with pytest.raises(ClosedError, match="digest: this tape is closed"):
        tape.digest()


@pytest.mark.parametrize("with_loss", [False, True])
def test_a_consumed_tape_says_that_its_records_are_gone(with_loss):
    x = nt.tensor([1.0, 2.0])
    with nt.Tape() as tape:
        loss = nt.exp(x).sum()
    tape.gradient(loss, x)
    with pytest.raises(TapeConsumedError) as caught:
        tape.digest(loss if with_loss else None)
    assert str(caught.value) == (
        "digest: gradient() has consumed this tape and let go of its records; take the digest before it, or use "
        "persistent=True."
    )


def test_a_persistent_tape_has_a_digest_after_its_gradient():
    x = nt.tensor([1.0, 2.0])
    with nt.Tape(persistent=True) as tape:
        loss = nt.exp(x).sum()
    before = tape.digest(loss)
    tape.gradient(loss, x)
    assert tape.digest(loss) == before


def test_a_digest_is_the_same_after_a_file(tmp_path):
    digest = run()
    path = tmp_path / "run.json"
    text = digest.to_json(path)
    assert path.read_text() == text
    assert nt.Digest.from_json(path) == nt.Digest.from_json(text) == digest
    assert not nt.diff_digests(path, digest)
    document = json.loads(text)
    assert (document["format"], document["version"]) == ("numtape digest", 1)
    assert set(document["machine"]) == {"cpu", "numpy", "blas", "provider"}


def test_runs_on_other_machines_say_so(tmp_path):
    document = json.loads(run().to_json())
    document["machine"]["cpu"] = "aarch64 NEON"
    here = run().machine["cpu"]
    difference = nt.diff_digests(run(scale=3.0), nt.Digest.from_json(json.dumps(document)))
    assert str(difference).splitlines()[-1] == f"  they ran on another cpu: {here} and aarch64 NEON"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{",
            "digest: the document is damaged or no JSON (Expecting property name enclosed in double quotes: line 1 "
            "column 2 (char 1)); write it anew.",
        ),
        ("{}", 'digest: this is JSON, but not what to_json writes: its format is not "numtape digest".'),
        (
            '{"format": "numtape digest", "version": 9}',
            "digest: the document has version 9, and this numtape reads version 1; read it with the numtape that wrote "
            "it, or write it anew.",
        ),
        (
            '{"format": "numtape digest", "version": 1, "records": []}',
            "digest: the document is damaged (KeyError: 'machine'); write it anew.",
        ),
        (
            '{"format": "numtape digest", "version": 1, "records": {}, "machine": {}}',
            "digest: the document is damaged (TypeError: its records are no list); write it anew.",
        ),
        (
            '{"format": "numtape digest", "version": 1, "records": [{"op": 1, "operands": "ab"}], "machine": {}}',
            "digest: the document is damaged (TypeError: a record holds something else than texts); write it anew.",
        ),
    ],
)
def test_damaged_documents_say_what_is_wrong(text, message):
    with pytest.raises(SavedFileError) as caught:
        nt.Digest.from_json(text)
    assert str(caught.value) == message


def test_what_is_no_digest_is_refused():
    with pytest.raises(OperandError) as caught:
        nt.diff_digests(run(), 3)
    assert str(caught.value) == (
        "diff_digests: wants digests, or paths of files that hold them, not int; write "
        "nt.diff_digests(tape.digest(), other_tape.digest())."
    )


def test_a_strict_tape_makes_values_again_as_it_made_them():
    config = nt.DeterministicConfig(global_seed=0)
    rng = np.random.default_rng(0)
    x = nt.tensor(rng.normal(size=(64, 784)).astype(np.float32), name="x")
    w = nt.tensor(rng.normal(size=(784, 256)).astype(np.float32), name="w")
    with nt.Tape(deterministic=config) as tape:
        product = x @ w
        (product + 1.0).sum()
    with nt.Tape() as copied:
        nt.tensor(product.numpy(copy=True)) * 1.0
    assert not tape.records[0].is_kept
    assert tape.digest().entries[0].value == copied.digest().entries[0].value


@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16], ids=str)
@pytest.mark.parametrize(("one", "other"), [(1.0, 1.0001), (1000.0, 1000.2), (70000.0, 80000.0)])
def test_numbers_beside_halves_are_told_apart_as_the_op_does(dtype, one, other):
    def run(number):
        x = nt.tensor([1.0, 2.0], dtype=dtype, name="x")
        with nt.Tape() as tape:
            (x * number).sum()
        return tape.digest()

    assert nt.diff_digests(run(one), run(other)).kind == "operands"
    assert "equal" in str(nt.diff_digests(run(one), run(one)))
