"""Names for the array types that this library and the service use."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

# A sum has the type of its values, so sums of integers are exact.
Number = TypeVar("Number", np.int64, np.float64)
