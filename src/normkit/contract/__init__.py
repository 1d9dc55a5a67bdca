"""The contract that every method keeps, as tests: ``normkit check NAME`` runs them, for a method of your own as well.

They need pytest. Each test takes the methods whose kind the line can be asked of; a line that has a name, by which a
card may exempt cases of it, stands in the test's mark.
"""
