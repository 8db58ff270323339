"""OGC's well-known tile matrix sets, kept here so that no name needs the network."""
