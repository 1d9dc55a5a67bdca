"""How a module is recognized by what it computes: copied, probed, explained by a method of the catalogue, verified."""
