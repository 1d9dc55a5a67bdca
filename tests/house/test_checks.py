"""What is asked of arguments, by itself: what is at the edge of what is taken."""

import pytest
import torch

from normkit import check


def test_one_vector_has_features_last_and_so_many_axes_as_are_asked_for():
    check.features_last("Here", torch.ones(3), 3)
    check.features_last("Here", torch.ones(2, 3), 3, least=2)
    with pytest.raises(ValueError, match=r"^Here: x must have at least 2 axes and end in 3 features, .*\(3,\)"):
        check.features_last("Here", torch.ones(3), 3, least=2)
    with pytest.raises(ValueError, match=r"^Here: x must end in 4 features, .*\(3,\)"):
        check.features_last("Here", torch.ones(3), 4)
