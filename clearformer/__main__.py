"""python -m clearformer, which is also what torchrun starts."""

from clearformer.cli import main

main()
