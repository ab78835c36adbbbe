"""The unit of published values, multiples of 2^-16 of a count, and how much an epoch may count.

An epoch's noisy counts may reach half of the largest number that can be stored.
"""

VALUE_BITS = 16
UNITS_PER_COUNT = 1 << VALUE_BITS


class FullError(ValueError):
    """An epoch holds no more: only this stream must stop."""


def check_room(noisy: float, most: int) -> None:
    """Refuse to go on if an epoch's noisy count exceeds ``most``.

    Guarantee: the refusal reveals no more than the noisy counts do.
    Args: noisy, events of an epoch as released; most, half of the largest number that can be stored.
    Raises: FullError.
    """
    if noisy > most:
        raise FullError(
            f"counts: this epoch has {most:,} events, noise included, and holds no more. Count on in a new "
            "stream with shorter epochs"
        )
