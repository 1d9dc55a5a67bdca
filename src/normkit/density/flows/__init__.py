"""Whole flows by name, a file each: ``FLOW`` says how deep it is, of which events, and how its parts are built."""
