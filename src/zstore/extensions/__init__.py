"""How a name becomes a class: built-in tables, plugins, and the registries that join them."""
