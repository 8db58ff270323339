"""`zstore verify`: whether every chunk can be read."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from zstore.cli.options import show_progress, show_unfinished, storage_options


@click.command()
@click.argument("path")
@storage_options
@click.option("--array", "inside", metavar="NAME", help="Only the array or group of this name below PATH.")
@click.option("--missing", is_flag=True, help="Chunks that are not stored are damage too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(path: str, inside: str | None, missing: bool, as_json: bool) -> None:
    """Read every chunk of PATH on all cores, and say what is damaged or unfinished; either fails."""
    from zstore.upkeep.verify import verify as check
    from zstore.validation.verdict import clean

    with show_progress("verifying", unit="chunks") as progress:
        found = check(path, inside, missing="error" if missing else "fill", progress=progress)
    if as_json:
        click.echo(json.dumps({"path": path, "is_sound": found.is_sound, **asdict(found)}, indent=2))
    else:
        for damage in found.damages:
            place = damage.key if damage.key is not None else damage.path or "/"
            cause = clean(" ".join(damage.cause.split()))
            click.echo(f"{click.style(damage.kind, fg='red')} {clean(place)}: {cause}")
        show_unfinished(found.unfinished)
        left_out = found.damage_count - len(found.damages)
        if left_out:
            click.echo(f"... and {left_out} more")
        counts = (
            f"{found.array_count} arrays, {found.chunk_count} chunks, {found.missing_count} not stored, "
            f"{found.stray_count} outside their arrays"
        )
        faults = [f"{found.damage_count} damaged"] if found.damage_count else []
        faults += [f"{len(found.unfinished)} unfinished"] if found.unfinished else []
        verdict = ", ".join(faults) or "sound"
        click.echo(f"{path}: {counts}: {verdict}")
    if not found.is_sound:
        raise SystemExit(1)
