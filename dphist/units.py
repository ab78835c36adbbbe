"""The unit of published values, multiples of 2^-16 of a count, and how much an epoch may count.

An epoch may count half of what its numbers hold, judged by noisy counts.
"""

VALUE_BITS = 16
UNITS_PER_COUNT = 1 << VALUE_BITS


class FullError(ValueError):
    """An epoch holds no more: only this stream must stop."""


def check_room(noisy: float, most: int) -> None:
    """Refuse to go on if noisy counts have used an epoch's room.

    Guarantee: whoever sees the refusal learns no more than the noisy counts tell.
    Args: noisy, events of an epoch as released; most, half of what its numbers hold.
    Raises: FullError.
    """
    if noisy > most:
        raise FullError(
            f"counts: this epoch has {most:,} events, noise included, and holds no more. Count on in a new "
            "stream with shorter epochs"
        )
