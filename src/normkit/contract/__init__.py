"""The contract that every method keeps, as tests: ``normkit check NAME`` runs them, for a method of your own as well.

They need pytest. Each test takes the methods whose kind the line can be asked of; a line that has a name, by which a
card may exempt cases of it, stands in the test's mark. Flows, samplers and others have lines as well, and may exempt
cases by an ``EXEMPT`` beside them in their module. With pytest itself:

    pytest --normkit-check my_package

Where tests are named as well, or a configuration names them, add ``--pyargs normkit.contract``.

``VERSION`` is raised when a line is added or asks for more: what is newer than ``--normkit-contract N`` may fail.
"""

VERSION = 1
