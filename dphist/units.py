"""The unit of published values, which are whole multiples of 2^-16 of a count."""

VALUE_BITS = 16
UNITS_PER_COUNT = 1 << VALUE_BITS
