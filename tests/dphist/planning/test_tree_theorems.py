"""The theorems of Rameshwar and Tandon about trees for cumulative counts, as tests of the planner itself.

Their trees add up noisy nodes. The planner's trees also pool every node with its children. The theorems about
shapes hold for both. The theorems about numbers (the budgets, and branching 17) hold for the planner's trees
only where pooling changes little: where branching is wide, or where the error leaves pooling out. Epsilon is
small, so that discrete noise is as good as the paper's continuous noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import permutations

import pytest

from dphist.planning.tree import plan_tree
from dphist.tree.design import TreeDesign

pytestmark = pytest.mark.slow

EPSILON = "0.01"
# Taller trees cannot be best here: one more level of two or three children is far from 17.
_HEIGHTS = 6


def planned(*branching: int) -> TreeDesign:
    """Return the planner's tree with exactly these factors."""
    return plan_tree(math.prod(branching), EPSILON, branching=branching)


@cache  # the theorems compare the same shapes again and again
def error(*branching: int) -> float:
    return planned(*branching).mean_squared_error()


def unpooled_error(design: TreeDesign) -> float:
    """Return the paper's error per bin (theorem IV.1): each level's mean digit times its nodes' variance."""
    rows = zip(design.branching, design.level_epsilons, strict=True)
    return sum((k - 1) / 2 * 2 / float(epsilon) ** 2 for k, epsilon in rows)


def factorizations(product: int, least: int = 2) -> Iterator[tuple[int, ...]]:
    """Yield every way to write a number as a product of non-decreasing factors."""
    for k in range(least, math.isqrt(product) + 1):
        if product % k == 0:
            yield from ((k, *rest) for rest in factorizations(product // k, k))
    yield (product,)


def best_shape(product: int) -> tuple[int, ...]:
    """Return the factors of the best tree without padding, sorted."""
    shapes = [shape for shape in factorizations(product) if len(shape) <= _HEIGHTS]
    return min(shapes, key=lambda shape: min(error(*order) for order in {shape, shape[::-1]}))


@pytest.mark.parametrize("branching", [(300, 300), (200, 900), (150, 400, 1_100)])
def test_budgets_are_the_cube_roots_of_theorem_iv_2_where_nodes_say_little_of_each_other(
    branching: tuple[int, ...],
) -> None:
    shares = [float(share) for share in planned(*branching).shares]
    roots = [(k - 1) ** (1 / 3) for k in branching]
    assert shares == pytest.approx([root / sum(roots) for root in roots], rel=0.01)


@pytest.mark.parametrize("branching", [(2, 2, 2, 2), (3, 17), (16, 16), (5, 40, 8), (60, 2)])
def test_no_budgets_of_theorem_iv_2_are_better_than_the_planners(branching: tuple[int, ...]) -> None:
    roots = [round(1_000 * (k - 1) ** (1 / 3)) for k in branching]
    shares = [f"{root}/{sum(roots)}" for root in roots]
    papers = plan_tree(math.prod(branching), EPSILON, branching=branching, shares=shares)
    assert error(*branching) <= papers.mean_squared_error() * (1 + 1e-9)


@pytest.mark.parametrize("product", [16**2, 17**2, 16**3, 17**3])
def test_equal_branching_is_best_where_it_is_near_17(product: int) -> None:
    """Theorem IV.3: where a number of bins is a power of 16 or 17, all factors are equal."""
    shape = best_shape(product)
    assert len(set(shape)) == 1
    assert 16 <= shape[0] <= 17


def test_the_best_equal_branching_is_17() -> None:
    """Lemma IV.3 compares trees of k^h bins by error over log(m)^3. Pooling favours lower factors."""
    trees = {k: planned(k, k) for k in range(5, 60)}
    by_size = {k: unpooled_error(tree) / math.log(k**2) ** 3 for k, tree in trees.items()}
    assert min(by_size, key=by_size.__getitem__) in (16, 17)
    pooled = {k: tree.mean_squared_error() / math.log(k**2) ** 3 for k, tree in trees.items()}
    assert 8 <= min(pooled, key=pooled.__getitem__) <= 17


@pytest.mark.parametrize(
    ("product", "height", "shape"),
    [
        (2**9, 2, (16, 32)),
        (2**10, 3, (8, 8, 16)),
        (2**11, 3, (8, 16, 16)),
        (2**12, 3, (16, 16, 16)),
        (3**5, 2, (9, 27)),
        (3**7, 3, (9, 9, 27)),
    ],
)
def test_exponents_are_as_even_as_the_height_allows(
    product: int, height: int, shape: tuple[int, ...]
) -> None:
    """Theorem V.1. The order of the levels does not matter here."""
    rivals = [rival for rival in factorizations(product) if len(rival) == height]
    best = min(rivals, key=lambda rival: min(error(*order) for order in set(permutations(rival))))
    assert best == shape


@pytest.mark.parametrize(("prime", "height"), [(17, 1), (17, 2), (19, 2), (37, 2), (17, 3), (13, 1), (7, 2)])
def test_powers_of_a_prime_have_it_at_every_level(prime: int, height: int) -> None:
    """Corollary V.1: height t for p^t with p >= 17. For p < 17 theorem V.2 allows at most t."""
    assert best_shape(prime**height) == (prime,) * height


@pytest.mark.parametrize(
    ("product", "least", "most"), [(2**12, 3, 3), (2**15, 3, 5), (3**8, 2, 4), (24**2, 2, 9), (15**2, 1, 2)]
)
def test_heights_are_within_the_bounds_of_theorem_v_2(product: int, least: int, most: int) -> None:
    """Theorem V.2 for m = k^t: at least t levels for k >= 17, at most t for k <= 16."""
    for t in range(1, 16):
        root = round(product ** (1 / t))
        if root > 1 and root**t == product:
            assert t <= least if root >= 17 else most <= t
    assert least <= len(best_shape(product)) <= most


@pytest.mark.parametrize("product", [2**11, 2**7, 3**5])
def test_equal_whole_branching_can_be_worse_than_unequal(product: int) -> None:
    """Lemma V.2: if the exponent is a prime number, no equal factors are near 17."""
    equal = [(k,) * t for t in range(1, 12) for k in [round(product ** (1 / t))] if k > 1 and k**t == product]
    assert error(*best_shape(product)) < min(error(*shape) for shape in equal)


@pytest.mark.parametrize("horizon", [17**2, 2**11, 17**3, 2**15])
def test_the_search_finds_no_worse_than_the_papers_trees(horizon: int) -> None:
    searched = plan_tree(horizon, EPSILON).mean_squared_error()
    assert searched <= min(error(*shape) for shape in factorizations(horizon))
    height = math.ceil(math.log(horizon, 17) - 1e-9)
    equal = plan_tree(horizon, EPSILON, branching=(17,) * height, shares=[f"1/{height}"] * height)
    assert searched < equal.mean_squared_error()
