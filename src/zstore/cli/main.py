"""The entry point of the command `zstore`, which tells which extra to install if a package is missing."""

from __future__ import annotations

import sys

NEEDED = ("click", "rich")


def main() -> None:
    """Run the command line."""
    try:
        from zstore.cli.root import zstore
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        print(
            f"zstore: the command line needs {error.name}, which is not installed; "
            "expected the extra 'cli': pip install zstore[cli]",
            file=sys.stderr,
        )
        raise SystemExit(1) from None
    zstore(prog_name="zstore")
