"""`python -m allhands.cli`: the same as `allhands`."""

from allhands.cli import main

if __name__ == "__main__":
    main()
