from __future__ import annotations

import pytest

from rllib_rise.errors import RiseError
from rllib_rise.experiments.rows import lifetime_steps


@pytest.mark.parametrize("result", [{}, {"env_runners": {}}])
def test_an_iteration_without_samples_is_a_named_error(result: dict):
    with pytest.raises(RiseError, match="num_env_runners=0"):
        lifetime_steps(result)
