"""Candidates scored anew, each against the mention."""
