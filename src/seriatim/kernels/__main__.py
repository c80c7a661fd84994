"""`python -m seriatim.kernels`: builds the native kernels, or prints the reason why not."""

from __future__ import annotations

from . import clear_failure, load, status

clear_failure()
load()
for name, value in status().items():
    print(f"{name:12} {value if value else '–'}")
