"""The classes of a band in GDAL's XML, read and written: category names, attribute tables, colours.

A GeoTIFF holds the colours of its first band only; GDAL reads all else from `.aux.xml` beside the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from zstore.geo.conventions.base import Variable
from zstore.geo.conventions.content import colours_of

# GDAL's usages of a table's columns: how many cells, the name of a class, its value, red to alpha.
COUNT, NAME, VALUE, COLOURS = "1", "2", "5", ("6", "7", "8", "9")
# GDAL's types of them.
INTEGER, TEXT = "0", "2"
# Category names are a list from 0 on; of more than these, a table says fewer.
MOST_NAMES = 256
# Characters that XML cannot hold; GDAL leaves them out, too.
UNSPEAKABLE = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse_table(band: ElementTree.Element) -> list[dict[str, Any]]:
    """The columns of a band's attribute table, each with its name, type, usage and values; [] without.

    Only of a table with names or colours: others hold measurements. Counts of cells are left out, as they
    are wrong after the first write.
    """
    table = band.find("GDALRasterAttributeTable")
    if table is None:
        return []
    rows = [[cell.text or "" for cell in row.findall("F")] for row in table.findall("Row")]
    columns = [
        {
            "name": field.findtext("Name") or "",
            "type": field.findtext("Type") or TEXT,
            "usage": field.findtext("Usage") or "0",
            "values": [row[index] if index < len(row) else "" for row in rows],
        }
        for index, field in enumerate(table.findall("FieldDefn"))
    ]
    is_of_classes = not {NAME, *COLOURS}.isdisjoint(column["usage"] for column in columns)
    return [column for column in columns if column["usage"] != COUNT] if is_of_classes else []


def parse_categories(band: ElementTree.Element) -> dict[int, str]:
    """The names of a band's values: its category names, else those of its attribute table."""
    names = [name.text or "" for name in band.findall("CategoryNames/Category")]
    return _named(enumerate(names) if names else _pairs(parse_table(band)))


def _pairs(table: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Any, Any]]:
    """(value, name) of every row of an attribute table."""
    columns = {column["usage"]: column["values"] for column in table}
    return zip(columns.get(VALUE, ()), columns.get(NAME, ()), strict=False)


def _named(pairs: Iterable[tuple[Any, Any]]) -> dict[int, str]:
    """The names that are not blank, by value, of values that are integers."""
    found: dict[int, str] = {}
    for value, name in pairs:
        with suppress(ValueError):
            if str(name).split() and float(value).is_integer():
                found[int(float(value))] = str(name)
    return found


def write_classes(path: Path, variables: Sequence[Variable]) -> None:
    """Add the classes of the bands' variables to the `.aux.xml` beside the raster at `path`."""
    beside = path.with_name(f"{path.name}.aux.xml")
    root = ElementTree.parse(beside).getroot() if beside.exists() else ElementTree.Element("PAMDataset")
    said = [(str(number), list(_render(number, said))) for number, said in enumerate(variables, 1)]
    for number, elements in said:
        held = root.find(f"PAMRasterBand[@band='{number}']")
        if elements and held is None:
            held = ElementTree.SubElement(root, "PAMRasterBand", band=number)
        for element in elements if held is not None else ():
            held.append(element)  # type: ignore[union-attr]
    if any(elements for _, elements in said):
        ElementTree.ElementTree(root).write(beside, encoding="utf-8")


def _render(number: int, variable: Variable) -> Iterator[ElementTree.Element]:
    names, table = _names(variable), _stated_table(variable)
    is_list = bool(names) and min(names) >= 0 and max(names) < MOST_NAMES
    if is_list and names != _named(_pairs(table)):
        listed = ElementTree.Element("CategoryNames")
        for value in range(max(names) + 1):
            ElementTree.SubElement(listed, "Category").text = _word(names.get(value, ""))
        yield listed
    is_in_file = number == 1 and variable.dtype is not None and variable.dtype.name in ("uint8", "uint16")
    painted = {} if is_in_file else colours_of(variable)
    if painted or (names and not is_list):
        table = table or _table(names, painted)
    if table:
        yield _render_table(table)


def _names(variable: Variable) -> dict[int, str]:
    """The names of values: GDAL's own, as they were read, else CF's flags."""
    stated, found = variable.attributes.get("categories"), dict[int, str]()
    if isinstance(stated, Mapping):
        with suppress(ValueError):
            found = {int(value): str(name) for value, name in stated.items()}
    if not found and variable.flag_values and not variable.flag_masks:
        found = dict(zip(variable.flag_values, variable.flag_meanings or (), strict=False))
    return found


def _stated_table(variable: Variable) -> list[dict[str, Any]]:
    """The attribute table that was read with the values; [] if there is none in that form."""
    stated = variable.attributes.get("raster_attribute_table")
    is_table = isinstance(stated, list) and all(
        isinstance(column, Mapping)
        and all(isinstance(column.get(key), str) for key in ("name", "type", "usage"))
        and isinstance(column.get("values"), list)
        for column in stated
    )
    return list(stated) if is_table and isinstance(stated, list) else []


def _table(names: Mapping[int, str], painted: Mapping[int, tuple[int, ...]]) -> list[dict[str, Any]]:
    """The attribute table of named and coloured values."""
    values = sorted({*names, *painted})
    columns = [{"name": "Value", "type": INTEGER, "usage": VALUE, "values": values}]
    if names:
        named = [names.get(value, "") for value in values]
        columns.append({"name": "Class", "type": TEXT, "usage": NAME, "values": named})
    for index, usage in enumerate(COLOURS if painted else ()):
        parts = [painted.get(value, (0, 0, 0, 0))[index] for value in values]
        name = ("Red", "Green", "Blue", "Alpha")[index]
        columns.append({"name": name, "type": INTEGER, "usage": usage, "values": parts})
    return columns


def _render_table(columns: Sequence[Mapping[str, Any]]) -> ElementTree.Element:
    table = ElementTree.Element("GDALRasterAttributeTable", tableType="thematic")
    for index, column in enumerate(columns):
        field = ElementTree.SubElement(table, "FieldDefn", index=str(index))
        for tag, key in (("Name", "name"), ("Type", "type"), ("Usage", "usage")):
            ElementTree.SubElement(field, tag).text = _word(column[key])
    for index, cells in enumerate(zip_longest(*(column["values"] for column in columns))):
        row = ElementTree.SubElement(table, "Row", index=str(index))
        for cell in cells:
            ElementTree.SubElement(row, "F").text = _word(cell)
    return table


def _word(value: Any) -> str:
    return "" if value is None else UNSPEAKABLE.sub("", str(value))
