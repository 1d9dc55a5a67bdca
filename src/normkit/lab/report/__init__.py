"""What was found, as words, tables, pictures and a page."""
