"""Distil CF's standard name table into what zstore ships: names, canonical units, aliases, the version.

    python tools/refresh_standard_names.py cf-standard-name-table.xml

The table is published at cfconventions.org ("Standard Names"), and comes in the wheel of compliance-checker
as compliance_checker/data/cf-standard-name-table.xml. Descriptions are left out. The file is written so that
the same table gives the same bytes.
"""

from __future__ import annotations

import gzip
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src" / "zstore" / "validation" / "cf-standard-names.txt.gz"


def distil(table: str) -> str:
    """The lines of the shipped file: a head, then "name<TAB>units" and "alias<TAB>><TAB>name"."""
    root = ElementTree.fromstring(table)
    version, published = (root.findtext(tag, "?").strip() for tag in ("version_number", "first_published"))
    lines = [
        f"# CF standard name table, version {version}, {published[:10]}",
        "# Names, canonical units and aliases, by the CF community (cfconventions.org).",
    ]
    for entry in sorted(root.iter("entry"), key=lambda e: e.attrib["id"]):
        lines.append(f"{entry.attrib['id']}\t{(entry.findtext('canonical_units') or '').strip()}")
    for alias in sorted(root.iter("alias"), key=lambda e: e.attrib["id"]):
        names = " ".join((name.text or "").strip() for name in alias.findall("entry_id"))
        lines.append(f"{alias.attrib['id']}\t>\t{names}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Read the table named on the command line and write the shipped file."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    text = distil(Path(sys.argv[1]).read_text(encoding="utf-8"))
    TARGET.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{TARGET}: {len(text.splitlines()) - 2} names and aliases, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
