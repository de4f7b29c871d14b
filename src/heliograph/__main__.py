"""`python -m heliograph`: the command line."""

from heliograph.cli.app import main

main()
