"""`python -m zstore`: the command line."""

from zstore.cli.main import main

if __name__ == "__main__":
    main()
