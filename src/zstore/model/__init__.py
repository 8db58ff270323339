"""Models of arrays and groups as frozen data, parsed from metadata documents and rendered to them; no I/O."""
