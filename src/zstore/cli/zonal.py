"""`zstore zonal`: statistics of a raster's cells in polygons."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from zstore import zonal_statistics
from zstore.cli.options import (
    FILE,
    WORDS,
    above_option,
    going,
    json_option,
    one_of,
    say,
    selected,
    selection_options,
    show_table,
    storage_options,
)


@click.command()
@click.argument("source")
@click.argument("zones", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("target", required=False, **FILE)
@storage_options
@click.option("--statistics", **WORDS, help="count, sum, mean, min, max, std, var; without it, most of them.")
@click.option(
    "--cells",
    **one_of("exact", "centre"),
    help="exact: cells count by their share in a zone; centre: by their centre.",
)
@click.option("--crs", metavar="CODE", help="CRS of ZONES, where the file does not name it; else degrees.")
@selection_options
@above_option
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
def zonal(source: str, zones: Path, target: Path | None, statistics: Any, **options: Any) -> None:
    """Make statistics of SOURCE in each polygon of the GeoJSON file ZONES; print them, or write TARGET.csv.

    \b
    zstore zonal ndvi.zarr fields.geojson fields.csv --statistics mean,std,count
    zstore zonal era5.zarr countries.geojson --select time=2020-06
    """
    if target is not None and target.suffix.lower() != ".csv":
        raise click.BadParameter(f"{str(target)!r}; tables are CSV, expected NAME.csv", param_hint="TARGET")
    part, as_json = selected(source, options), options.pop("as_json")
    wanted = {} if statistics is None else {"statistics": statistics}
    with going(options, "weighing") as words:
        made = zonal_statistics(part, zones, **wanted, **options, **words)
    rows = [*made.rows()]
    if target is not None:
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
        try:
            target.write_text(text.getvalue(), encoding="utf-8", newline="")
        except OSError as error:
            raise click.FileError(str(target), error.strerror) from error
        say(
            as_json,
            {"file": str(target), "rows": len(rows), "columns": columns},
            f"{target}: {len(rows)} rows",
        )
    elif as_json:
        say(as_json, {"rows": rows}, "")
    else:
        shown = ["zone", *made.labels, *made]
        table = Table(*shown)
        for row in rows:
            table.add_row(
                *(f"{row[name]:.6g}" if isinstance(row[name], float) else str(row[name]) for name in shown)
            )
        show_table(table)
