"""The contract of subcommands of the command `zstore`, as a test class to inherit from.

    from zstore.testing.commands import CommandContract

    class TestServe(CommandContract):
        name = "serve"

The package must be installed, for zstore to find the command by its name.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any

from zstore.extensions.registry import commands
from zstore.testing.contract import Contract

__all__ = ["CommandContract"]


class CommandContract(Contract):
    """The tests of a subcommand: inherit and define `name`."""

    # The word that follows "zstore".
    name: str

    @staticmethod
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        """Run `zstore WORDS` in a process of its own."""
        line = [sys.executable, "-m", "zstore", *words]
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)

    def make(self) -> Any:
        """The offered command."""
        return commands.resolve(self.name)

    def test_it_is_a_command_of_that_name(self) -> None:
        command = self.make()
        assert command.name == self.name
        assert callable(command.main) and callable(command.make_context)

    def test_it_says_what_it_does_and_what_each_option_means(self) -> None:
        command = self.make()
        assert command.help, "the function has no docstring, which becomes the help"
        for parameter in command.params:
            if any(word.startswith("-") for word in parameter.opts):
                assert parameter.help, f"{parameter.opts[0]} has no help"

    def test_the_command_line_lists_it(self) -> None:
        assert self.name in _listed()
        done = self.run(self.name, "--help")
        assert (done.returncode, done.stderr) == (0, "")
        assert f"zstore {self.name}" in done.stdout

    def test_a_wrong_option_is_told_in_a_line(self) -> None:
        done = self.run(self.name, "--no-such-option-of-a-contract")
        assert done.returncode == 2
        assert "--no-such-option-of-a-contract" in done.stderr and "Traceback" not in done.stderr


@cache
def _listed() -> frozenset[str]:
    """The first words of the lines of `zstore --help`."""
    return frozenset(
        line.split()[0] for line in CommandContract.run("--help").stdout.splitlines() if line.strip()
    )
