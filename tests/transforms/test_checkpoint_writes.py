"""What was written in place is made again as it lay in memory: later ops add up in the same order, to the same bits."""

import numpy as np
import pytest

import numtape as nt

X = np.random.default_rng(0).standard_normal((33, 33))


def set_a_row(x):
    z = nt.sin(x).T * 1.5
    z[0] = x[1]
    return nt.softmax(z, axis=0) ** 2 + nt.logsumexp(z, axis=0)


def add_other_axes(x):
    z = nt.sin(x).T * 1.5
    z += nt.sin(x)
    return nt.softmax(z, axis=1)


def scale_a_part(x):
    z = nt.exp(x).T + 1.0
    z[1:3] *= 2.0
    return nt.logsumexp(z, axis=1)


def reduce_after_a_write(x):
    z = nt.exp(x).T + 1.0
    z += x
    return nt.tanh(z.mean(axis=0)) * z.std(axis=1)


def copy_in(x):
    z = nt.exp(x).T + 1.0
    z.copy_(nt.cos(x))
    return nt.logsumexp(z, axis=1)


def write_where(x):
    z = nt.exp(x).T + 1.0
    np.add(z, nt.sin(x), out=z, where=X > 0)
    return nt.logsumexp(z, axis=1)


def write_to_out(x):
    z = nt.exp(x) * 1.0
    nt.add(nt.sin(x).T, nt.cos(x).T, out=z)
    return nt.softmax(z, axis=0) * z


def write_to_a_column(x):
    z = nt.exp(x) * 1.0
    column = z[:, 1]
    column *= 1.5
    return nt.dot(column, nt.sin(column)) * column


def write_backward(x):
    z = nt.exp(x) * 1.0
    part = z[::-1, ::2]
    part += 1.5
    return nt.softmax(part @ part.T, axis=0)


def write_to_a_constant_laid_out_by_columns(x):
    z = nt.tensor(np.asfortranarray(X))
    z[2:5] = x[2:5]
    z *= nt.sin(x)
    return nt.logsumexp(z, axis=1)


def write_of_a_wider_type(x):
    z = nt.exp(x).astype("float16")
    z += nt.sin(x.astype("float32"))
    return nt.tanh(z) * z


PROGRAMS = [
    set_a_row,
    add_other_axes,
    scale_a_part,
    reduce_after_a_write,
    copy_in,
    write_where,
    write_to_out,
    write_to_a_column,
    write_backward,
    write_to_a_constant_laid_out_by_columns,
    write_of_a_wider_type,
]
CONFIGS = [
    nt.CheckpointConfig("block", checkpoint_every_n=4),
    nt.CheckpointConfig("selective"),
    nt.CheckpointConfig("selective", min_compute_cost=1e9),
    nt.CheckpointConfig("full"),
]


def gradient(program, config=None):
    x = nt.tensor(X, requires_grad=True)
    with nt.GradientTape(checkpoint=config) as tape:
        loss = (program(x).astype("float64") ** 2).sum()
    tape.backward(loss)
    return x.grad.numpy()


@pytest.mark.parametrize("config", [None, *CONFIGS], ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_after_writes_equal_the_plain_ones_bit_for_bit(program, config):
    expected = gradient(program)
    np.testing.assert_array_equal(gradient(lambda x: nt.checkpoint(program, x), config), expected)
    np.testing.assert_array_equal(gradient(program, config), expected)


def test_a_write_that_is_made_again_as_it_lay_takes_the_memory_that_the_plan_says():
    x = nt.tensor(np.ones((300, 300)), requires_grad=True)

    def program():
        h = nt.exp(x)
        for i in range(6):
            h = nt.sin(h.T) * 1.1
            h[:, i] *= 1.5
        return nt.logsumexp(h, axis=1).sum()

    with nt.GradientTape(checkpoint=nt.CheckpointConfig("full")) as tape:
        loss = program()
    columns = [record for record in tape.records if record.op.name == "mul" and record.shape == (300,)]
    assert [record.nbytes for record in columns] == [300 * 8] * 6
    assert [record.made_bytes for record in columns] == [300 * 8, 300 * 299 * 8 + 8] * 3
    assert tape.checkpoint_plan(loss).peak_bytes >= 2 * 300 * 300 * 8
