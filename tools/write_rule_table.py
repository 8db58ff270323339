"""Write the table of rules in docs/validation.md out of the rules themselves.

python tools/write_rule_table.py
"""

from __future__ import annotations

from pathlib import Path

from zstore.geo.validation.run import all_rules

DOCUMENT = Path(__file__).parents[1] / "docs" / "validation.md"
BEGIN, END = "<!-- rules: written by tools/write_rule_table.py -->\n", "<!-- end of rules -->\n"


def render() -> str:
    """The table: id, severity, class, profiles, the requirement and where it is written."""
    lines = ["| id | severity | class | profiles | requirement | written in |\n", "|---" * 6 + "|\n"]
    for rule in all_rules().values():
        general = rule.severity_under(None)
        severity = rule.severity if rule.severity == general else f"{rule.severity} ({general})"
        profiles = ", ".join(profile.name for profile in rule.profiles) or "all"
        note = f" As {rule.same_as}." if rule.same_as else ""
        note += " Deep." if rule.is_deep else ""
        says = f"{rule.says}{note}".replace("|", "\\|")
        lines.append(
            f"| {rule.id} | {severity} | {rule.requirements_class} | {profiles} | {says} | {rule.clause} |\n"
        )
    return "".join(lines)


def main() -> None:
    """Put the table between its marks."""
    text = DOCUMENT.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    DOCUMENT.write_text(f"{head}{BEGIN}{render()}{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
