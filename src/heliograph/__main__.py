"""`python -m heliograph`: the command line."""

from heliograph.cli.app import main

if __name__ == "__main__":  # processes of ours that are spawned import this too
    main()
