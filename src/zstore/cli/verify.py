"""`zstore verify`: check that every chunk can be read."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from zstore import verify as check
from zstore.cli.options import (
    FILE,
    PLACE,
    going,
    how_options,
    say,
    say_estimate,
    show_unfinished,
    storage_options,
)
from zstore.plugin.jobs import Estimate


@click.command()
@click.argument("path")
@storage_options
@click.option("--array", "inside", metavar="NAME", help="Only the array or group of this name below PATH.")
@click.option("--missing", is_flag=True, help="Chunks that are not stored are damage too.")
@click.option("--manifest", **FILE, help="Decode nothing: compare hashes with this file.")
@click.option("--journal", **PLACE, help="Keep in this directory how far it came, to go on from there.")
@how_options(check)
def verify(
    path: str, inside: str | None, missing: bool, manifest: Any, journal: Any, as_json: bool, **options: Any
) -> None:
    """Read every chunk of PATH on all cores, and say what is damaged or unfinished; either fails.

    With --manifest, say what is changed, missing, new or unreadable; any of these fails.

    \b
    zstore verify scene.zarr
    zstore verify copy.zarr --manifest scene.sha256
    """
    from zstore.errors import clean

    if missing and manifest is not None:
        raise click.UsageError("--missing does not go with --manifest, which says what is missing")
    with going(options, "verifying", "chunks" if manifest is None else "bytes") as words:
        found = check(
            path,
            inside,
            missing="error" if missing else "fill",
            manifest=manifest,
            journal=journal,
            **words,
        )
    if isinstance(found, Estimate):
        say_estimate(as_json, path, found)
        return
    if as_json:
        say(True, {"path": path, "is_sound": found.is_sound, **asdict(found)}, "")
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
        if manifest is not None:
            counts = f"{found.key_count} keys"
        word = "damaged" if manifest is None else "not as the manifest says"
        faults = [f"{found.damage_count} {word}"] if found.damage_count else []
        faults += [f"{len(found.unfinished)} unfinished"] if found.unfinished else []
        verdict = ", ".join(faults) or ("sound" if manifest is None else "as the manifest says")
        click.echo(f"{path}: {counts}: {verdict}")
    if not found.is_sound:
        raise SystemExit(1)
