"""How often the answer was right."""
