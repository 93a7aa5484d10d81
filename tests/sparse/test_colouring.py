"""Colourings let every entry be read, and need few colours where few are enough."""

import numpy as np
import pytest
import scipy.sparse

from numtape.sparse.colouring import colour_columns, colour_symmetric, star_places
from numtape.sparse.plans import Plans


def pattern_of(dense):
    return scipy.sparse.csr_array(np.asarray(dense, bool))


def random_pattern(seed, rows=40, columns=30, share=0.1):
    return np.random.default_rng(seed).random((rows, columns)) < share


def read(plan, matrix):
    """Compute the entries of a matrix from products with its plan's seeds alone."""
    values = np.zeros(np.count_nonzero(matrix))
    for side in plan.sides:
        across = matrix if side.is_forward else matrix.T
        seeds = (side.colours[:, None] == np.arange(side.count)).astype(float)
        values[side.entries] = (across @ seeds)[side.places, side.shades]
    return values


@pytest.mark.parametrize("seed", range(30))
def test_every_plan_reads_every_entry(seed):
    pattern = random_pattern(seed, share=0.02 + 0.01 * seed)
    matrix = np.random.default_rng(seed).normal(size=pattern.shape) * pattern
    plans = Plans(pattern_of(pattern))
    for plan in (plans.columns, plans.rows, plans.two_sided):
        np.testing.assert_allclose(read(plan, matrix), matrix[pattern], rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_star_colourings_read_every_entry(seed):
    half = random_pattern(seed, 30, 30, 0.01 + 0.005 * seed)
    pattern = half | half.T
    values = np.random.default_rng(seed).normal(size=pattern.shape)
    matrix = (values + values.T) * pattern
    plan = Plans(pattern_of(pattern), is_symmetric=True).star
    np.testing.assert_allclose(read(plan, matrix), matrix[pattern], rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_star_colourings_have_no_path_of_four_in_two_colours(seed):
    half = random_pattern(seed, 20, 20, 0.1)
    pattern = half | half.T | np.eye(20, dtype=bool)
    colours = colour_symmetric(pattern_of(pattern))
    neighbours = [[j for j in range(20) if pattern[i, j] and j != i] for i in range(20)]
    for a in range(20):
        for b in neighbours[a]:
            assert colours[a] != colours[b]
            for c in neighbours[b]:
                for d in neighbours[c]:
                    if len({a, b, c, d}) == 4:
                        assert len({colours[a], colours[b], colours[c], colours[d]}) > 2


def test_bands_have_as_many_colours_as_entries_in_a_row():
    for width in (1, 3, 5, 9):
        band = np.abs(np.subtract.outer(np.arange(50), np.arange(50))) <= width // 2
        assert colour_columns(pattern_of(band)).max() + 1 == width


def test_empty_columns_have_no_colour():
    pattern = np.zeros((3, 5), bool)
    pattern[0, 1] = pattern[2, 3] = True
    assert colour_columns(pattern_of(pattern)).tolist() == [-1, 0, -1, 0, -1]
    assert colour_columns(pattern_of(np.zeros((2, 3), bool))).tolist() == [-1, -1, -1]


def test_an_arrow_takes_three_sweeps_from_two_sides_and_two_by_a_star():
    arrow = np.eye(60, dtype=bool)
    arrow[0] = arrow[:, 0] = True
    plans = Plans(pattern_of(arrow))
    assert [plan.name for plan in plans.promising()] == ["columns", "two-sided"]
    assert (plans.columns.colours, plans.two_sided.tangents, plans.two_sided.cotangents) == (60, 2, 1)
    symmetric = Plans(pattern_of(arrow), is_symmetric=True)
    assert symmetric.star.colours == 2


def test_full_columns_are_taken_apart_as_full_rows_are():
    tall = np.eye(60, dtype=bool)
    tall[:, :2] = True
    tall[1] = True
    plans = Plans(pattern_of(tall))
    assert plans.two_sided.colours <= 5
    assert plans.columns.colours == plans.rows.colours == 60


def test_a_dense_matrix_has_a_colour_for_each_line_of_the_shorter_side():
    plans = Plans(pattern_of(np.ones((4, 9), bool)))
    assert [(plan.name, plan.colours) for plan in plans.promising()] == [("rows", 4)]


def test_an_entry_of_a_star_is_read_across_the_diagonal_where_its_colour_is_not_alone():
    star = np.zeros((4, 4), bool)
    star[0] = star[:, 0] = True
    colours = colour_symmetric(pattern_of(star))
    rows, shades = star_places(pattern_of(star), colours)
    assert colours.tolist() == [0, 1, 1, 1]
    assert list(zip(rows.tolist(), shades.tolist(), strict=True)) == [
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 0),
        (1, 0),
        (2, 0),
        (3, 0),
    ]
