"""The exact account of one release: the part of epsilon that each step spent."""

from fractions import Fraction

from dphist.privacy import exact

Epsilon = Fraction | int | float


class BudgetLedger:
    """Records the epsilon of each step of a release, in exact fractions, and refuses to overspend.

    Guarantee: the ledger keeps the sum of the steps' epsilons at most at epsilon. If each step, given the
        earlier outputs, is DP with its own epsilon, the release is epsilon-DP by sequential composition.

    >>> ledger = BudgetLedger(1)
    >>> ledger.spend("partition", Fraction(1, 4)), ledger.spend_rest("counts")
    (Fraction(1, 4), Fraction(3, 4))
    >>> ledger.spend("again", Fraction(1, 10**9))
    Traceback (most recent call last):
        ...
    ValueError: step 'again' asks for epsilon 1/1000000000 but 0 of 1 is left
    """

    def __init__(self, epsilon: Epsilon) -> None:
        self.epsilon = exact(epsilon)
        self._steps: list[tuple[str, Fraction]] = []

    @property
    def steps(self) -> list[tuple[str, Fraction]]:
        """The steps so far as (name, epsilon), in the order they were spent."""
        return list(self._steps)

    @property
    def left(self) -> Fraction:
        """The epsilon that is not yet spent."""
        return self.epsilon - sum((spent for _, spent in self._steps), Fraction(0))

    def spend(self, step: str, epsilon: Epsilon) -> Fraction:
        """Record a step's epsilon and return it exactly.

        Raises: ValueError if the epsilon is not above zero, or more than is left.
        """
        spent = exact(epsilon, f"epsilon of step {step!r}")
        if spent > self.left:
            raise ValueError(
                f"step {step!r} asks for epsilon {spent} but {self.left} of {self.epsilon} is left"
            )
        self._steps.append((step, spent))
        return spent

    def spend_share(self, step: str, share: Epsilon) -> Fraction:
        """Spend this share, in (0, 1], of the total epsilon."""
        return self.spend(step, self.epsilon * exact(share, f"share of step {step!r}"))

    def spend_rest(self, step: str) -> Fraction:
        """Spend all that is left."""
        return self.spend(step, self.left)
