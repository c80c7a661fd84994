"""`python -m seriatim`, and what `torchrun -m seriatim` starts."""

from .cli import main

if __name__ == "__main__":
    main()
