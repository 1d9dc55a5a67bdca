"""What is claimed of features that are drawn from what all clients know."""

from normkit.claims.clients import LINEAR, as_good, better

CLAIMS = [
    better(
        "two-classes",
        "With two classes a client, drawn features of the others bring a linear map 5 points or more.",
        "skewed-clients",
        LINEAR._replace(split="two", filled=True),
        LINEAR._replace(split="two"),
        5.0,
    ),
    as_good(
        "alike",
        "Where clients are alike they change no more than a point.",
        "skewed-clients",
        LINEAR._replace(filled=True),
        LINEAR,
        1.0,
    ),
]
