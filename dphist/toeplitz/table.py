"""The strategies that the service uses: stored, so that every machine and every version has the same numbers.

``benchmarks/strategies.py`` found them, and compares them with a new search. A horizon
between two rows with as many buffers gets weights and rates between theirs, in fractions.
"""

from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from dphist.toeplitz.strategy import (
    LARGEST_HORIZON,
    WEIGHT_BITS,
    ToeplitzStrategy,
    rounded_decay,
    rounded_weight,
)

# (horizon, for each buffer: the weight in units of 2^-22, and n and q of 1 - rate = n / 2^q).
# Where the number of buffers changes, a horizon has two rows.
_Row = tuple[int, tuple[tuple[int, int, int], ...]]
_ROWS: tuple[_Row, ...] = (
    (1, ((2097152, 1, 1),)),
    (2, ((1282846, 129, 8),)),
    (3, ((1634401, 2303, 12),)),
    (4, ((1806548, 3805, 13),)),
    (5, ((1899826, 409, 10),)),
    (6, ((1952662, 1445, 12),)),
    (7, ((1982559, 2601, 13),)),
    (8, ((1998532, 2373, 13),)),
    (9, ((2005643, 547, 11),)),
    (10, ((2006919, 1017, 12),)),
    (11, ((2004257, 119, 9),)),
    (12, ((1998895, 1793, 13),)),
    (12, ((1834785, 3285, 14), (230793, 3587, 12))),
    (13, ((1807014, 3067, 14), (266837, 3529, 12))),
    (14, ((1780211, 2879, 14), (300899, 3477, 12))),
    (15, ((1755015, 1357, 13), (332412, 3431, 12))),
    (16, ((1728332, 1283, 13), (364445, 3359, 12))),
    (23, ((1542072, 3675, 15), (568325, 2733, 12))),
    (32, ((1374917, 169, 11), (741453, 289, 9))),
    (64, ((1066743, 2851, 16), (1035454, 105, 8))),
    (91, ((935642, 517, 14), (1146633, 2881, 13))),
    (91, ((883195, 985, 15), (832953, 4085, 14), (401557, 369, 9))),
    (128, ((755567, 705, 15), (800534, 3071, 14), (558766, 647, 10))),
    (256, ((549235, 179, 14), (734805, 3551, 15), (820718, 2065, 12))),
    (512, ((401121, 1465, 18), (666070, 2135, 15), (1019559, 3363, 13))),
    (1024, ((294986, 3027, 20), (595102, 1319, 15), (1168312, 689, 11))),
    (1024, ((276796, 2867, 20), (387480, 3555, 17), (707821, 2311, 14), (727783, 1121, 11))),
    (2048, ((198530, 2897, 21), (313615, 1961, 17), (686813, 3103, 15), (892791, 965, 11))),
    (4096, ((143209, 2943, 22), (256684, 1111, 17), (649449, 2133, 15), (1029783, 3333, 13))),
    (8192, ((103885, 3009, 23), (211078, 2569, 19), (603750, 1487, 15), (1141856, 2879, 13))),
    (
        8192,
        ((98763, 2883, 23), (149331, 3749, 20), (333203, 1399, 16), (698722, 1903, 14), (813188, 2083, 12)),
    ),
    (
        16384,
        ((70645, 2909, 24), (116789, 2033, 20), (288905, 3497, 18), (678396, 2817, 15), (931946, 3715, 13)),
    ),
    (
        32768,
        ((50738, 2947, 25), (92205, 561, 19), (249862, 1113, 17), (648269, 263, 12), (1035793, 3313, 13)),
    ),
    (
        65536,
        ((36582, 2997, 26), (73194, 1255, 21), (215571, 359, 16), (612550, 3163, 16), (1125177, 2951, 13)),
    ),
    (
        65536,
        (
            (35077, 723, 24),
            (55049, 3869, 23),
            (130238, 3073, 20),
            (314630, 581, 15),
            (692622, 3373, 15),
            (862592, 995, 11),
        ),
    ),
    (
        131072,
        (
            (25058, 729, 25),
            (42334, 2075, 23),
            (108082, 1849, 20),
            (280220, 3179, 18),
            (673000, 2645, 15),
            (955692, 3625, 13),
        ),
    ),
    (
        262144,
        (
            (17953, 2949, 28),
            (32772, 2253, 24),
            (89797, 1127, 20),
            (248791, 549, 16),
            (647395, 2083, 15),
            (1039414, 3299, 13),
        ),
    ),
    (
        524288,
        (
            (12897, 1495, 28),
            (25479, 1235, 24),
            (74627, 2777, 22),
            (220333, 191, 15),
            (618016, 3291, 16),
            (1113694, 375, 10),
        ),
    ),
    (
        524288,
        (
            (12441, 725, 27),
            (20010, 989, 24),
            (48711, 817, 21),
            (122267, 649, 18),
            (302929, 4087, 18),
            (687008, 3107, 15),
            (894984, 3857, 13),
        ),
    ),
    (
        1048576,
        (
            (8879, 1461, 29),
            (15213, 2105, 26),
            (39417, 3833, 24),
            (104555, 1693, 20),
            (274446, 743, 16),
            (668831, 633, 13),
            (971643, 891, 11),
        ),
    ),
    (
        2097152,
        (
            (6350, 1475, 30),
            (11621, 2259, 27),
            (31943, 1135, 23),
            (89380, 2227, 21),
            (248008, 2173, 18),
            (646636, 517, 13),
            (1041833, 1645, 12),
        ),
    ),
    (
        4194304,
        (
            (4551, 373, 29),
            (8906, 1221, 27),
            (25903, 2709, 25),
            (76366, 1473, 21),
            (223646, 1595, 18),
            (621693, 423, 13),
            (1105415, 1517, 12),
        ),
    ),
    (
        8388608,
        (
            (3267, 3025, 33),
            (6841, 2657, 29),
            (21014, 3253, 26),
            (65216, 3917, 23),
            (201324, 2351, 19),
            (594974, 2773, 16),
            (1162297, 2795, 13),
        ),
    ),
    (
        8388608,
        (
            (3144, 1463, 32),
            (5443, 133, 25),
            (14241, 1967, 26),
            (38150, 221, 20),
            (102052, 3169, 21),
            (270159, 2827, 18),
            (665573, 613, 13),
            (983196, 3519, 13),
        ),
    ),
    (
        16777216,
        (
            (2246, 2951, 34),
            (4118, 283, 27),
            (11338, 2281, 27),
            (31802, 2245, 24),
            (89063, 2203, 21),
            (247385, 2155, 18),
            (646048, 1029, 14),
            (1043537, 3283, 13),
        ),
    ),
)


@lru_cache(maxsize=256)
def optimal_strategy(horizon: int) -> ToeplitzStrategy:
    """Return the strategy for an epoch: the fewest buffers within about 0.1 % of the least loss known.

    The loss is the mean squared error of running counts (``benchmarks/strategies.py``).

    Guarantee: the same strategy on every machine.
    Raises: ValueError for a horizon outside [1, 2^24].

    >>> optimal_strategy(1024).buffers, optimal_strategy(2**20).buffers
    (3, 7)
    """
    if isinstance(horizon, bool) or not isinstance(horizon, int) or not 1 <= horizon <= LARGEST_HORIZON:
        raise ValueError(f"horizon: {horizon!r} is not a whole number of bins in [1, {LARGEST_HORIZON}]")
    for (before, first), (after, second) in pairwise(_ROWS):
        if before <= horizon <= after and len(first) == len(second):
            share = Fraction(horizon - before, after - before)
            rows = [_between(*pair, share) for pair in zip(first, second, strict=True)]
            break
        if horizon in (before, after):
            rows = [_between(row, row, Fraction(0)) for row in (first if horizon == before else second)]
            break
    return ToeplitzStrategy(horizon, tuple(a for a, _ in rows), tuple(1 - decay for _, decay in rows))


def _between(
    first: tuple[int, int, int], second: tuple[int, int, int], share: Fraction
) -> tuple[Fraction, Fraction]:
    """Return the weight and the decay at a share of the way from one buffer to another.

    Time scales 1 / decay grow almost in proportion to the horizon, so it is they that are interpolated.
    """
    weight = 1 / ((1 - share) / first[0] + share / second[0])
    start, stop = Fraction(1 << first[2], first[1]), Fraction(1 << second[2], second[1])
    return rounded_weight(weight / 2**WEIGHT_BITS), rounded_decay(1 / (start + share * (stop - start)))
