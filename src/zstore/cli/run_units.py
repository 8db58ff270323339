"""`zstore run-units`: a part of a long job, or its end."""

from __future__ import annotations

import re
from typing import Any

import click

from zstore.cli.options import going, json_option, say, storage_options, word_option


def _part_of(value: str) -> tuple[int, int]:
    """One of several parts, written as 3/100."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is no part, like 3/100")
    return int(match[1]), int(match[2])


@click.command()
@click.argument("plan", type=click.Path(dir_okay=False))
@storage_options
@click.option("--part", type=_part_of, metavar="K/N", help="Make the K-th of N parts.")
@click.option("--finish", is_flag=True, help="All parts are made: write the documents, and end the job.")
@word_option("executor")
@word_option("progress")
@json_option
def run_units(plan: str, part: tuple[int, int] | None, finish: bool, as_json: bool, **options: Any) -> None:
    """Make a part of the job in the file PLAN, which copy, convert, reduce and pyramid write by --plan.

    Parts can be made in any order, at the same time, and again; --finish ends the job. Where units are left
    when all parts were made, the job has another pass: make all parts once more.

    \b
    zstore copy era.zarr s3://bucket/era.zarr --plan plan.json
    zstore run-units plan.json --part 3/100
    zstore run-units plan.json --finish
    """
    from zstore import finish_units
    from zstore import run_units as run

    if finish:
        if options["processes"]:
            raise click.UsageError("--processes does not go with --finish: it makes no units")
        finish_units(plan, part_count=None if part is None else part[1])
        say(as_json, {"plan": plan, "left_count": 0, "is_finished": True}, f"{plan}: done")
        return
    if part is None:
        raise click.UsageError("expected --part K/N, or --finish")
    with going(options, f"part {part[0]} of {part[1]}", "units") as words:
        left = run(plan, *part, **words)
    said = {"plan": plan, "part": part[0], "part_count": part[1], "left_count": left, "is_finished": False}
    more = (
        f"{left} units are left to other parts, or to all parts once more in the next pass"
        if left
        else "all units are made; end the job by --finish"
    )
    say(as_json, said, f"{plan}: part {part[0]} of {part[1]} is made; {more}")
