"""Runs the command line for `python -m clearformer`; torchrun starts this module, too."""

from clearformer.cli import main

main()
