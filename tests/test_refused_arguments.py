"""Arguments that a function cannot use are refused by name, with what was given and what to give instead."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import NumtapeError, OperandError

X = nt.tensor(np.arange(12.0).reshape(3, 4))

REFUSED = [
    (
        lambda: nt.split(X, 2.9),
        OperandError,
        "split: indices_or_sections is 2.9; it must be a number of parts, or a list of indices to cut at, as integers.",
    ),
    (
        lambda: nt.split(X, [1.9]),
        OperandError,
        "split: indices_or_sections is [1.9]; it must be a number of parts, or a list of indices to cut at, as "
        "integers.",
    ),
    (
        lambda: nt.split(X, "2"),
        OperandError,
        "split: indices_or_sections is '2'; it must be a number of parts, or a list of indices to cut at, as integers.",
    ),
    (
        lambda: nt.split(X, None),
        OperandError,
        "split: indices_or_sections is None; it must be a number of parts, or a list of indices to cut at, as "
        "integers.",
    ),
    (
        lambda: np.split(X, 2.9),
        OperandError,
        "split: indices_or_sections is 2.9; it must be a number of parts, or a list of indices to cut at, as integers.",
    ),
    *(
        (
            lambda name=name, given=given: getattr(nt, name)(X, given),
            OperandError,
            f"{name}: normalized_shape is {given!r}; give the length of the last axis of x, or those of its last axes, "
            "as integers.",
        )
        for name in ("layer_norm", "rms_norm")
        for given in ("4", [4.9], 4.0, None)
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_a_refusal_names_the_function_what_was_given_and_the_repair(call, error, message):
    with pytest.raises(NumtapeError) as caught:
        call()
    assert type(caught.value) is error
    assert str(caught.value) == message
