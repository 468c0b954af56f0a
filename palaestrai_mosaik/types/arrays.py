"""Types of numpy arrays by element type; vectors have one axis, matrices two."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: of any number of axes
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
FloatVector = npt.NDArray[np.float64]
FloatMatrix = npt.NDArray[np.float64]
BoolVector = npt.NDArray[np.bool_]
BoolMatrix = npt.NDArray[np.bool_]
IntVector = npt.NDArray[np.int64]
#: positions in another array, as numpy indexes with them
IndexVector = npt.NDArray[np.intp]
ComplexVector = npt.NDArray[np.complex128]
ComplexMatrix = npt.NDArray[np.complex128]
