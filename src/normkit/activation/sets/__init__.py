"""Points, sets and graphs."""
