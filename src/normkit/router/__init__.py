"""Routers: which experts of a mixture a token goes to, and with what weights."""
