"""Names for the plain arrays that kernels take and give."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
U8 = npt.NDArray[np.uint8]
F64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]
Offsets = npt.NDArray[np.int32] | npt.NDArray[np.int64]
"""Arrow offsets: int32 for string, binary and list, int64 for their large forms."""
AnyArray = npt.NDArray[np.generic]

NO_BYTES: U8 = np.empty(0, np.uint8)
"""What a gather takes for a validity bitmap that is absent: every row is valid."""
