"""Settings of every method from Python: taken as they are, or refused by name."""

from __future__ import annotations

from typing import Any

from batches import METHODS, settings_of
from documents import JUNK, KEYS, naming
from hypothesis import strategies as st
from strategies import edge_numbers, mostly
from tiers import fuzz

import rllib_rise
from rllib_rise.bonuses import parse_settings, resolve_bonus

#: All but those without an end, which YAML is the only one to bring.
values = edge_numbers | st.sampled_from(JUNK[:-2]).map(lambda make: make())
unknown = st.sampled_from([key for key in KEYS if isinstance(key, str)])
CONFIGS = [name for name in rllib_rise.__all__ if name.endswith("Config")]


@st.composite
def changed(draw: st.DrawFn) -> tuple[str, dict[str, Any], list[str]]:
    """A method, settings of it of which a few are anything, and which these are."""
    method = draw(st.sampled_from(METHODS))
    known = st.sampled_from(sorted(resolve_bonus(method).Settings.model_fields))
    wrong = draw(st.dictionaries(mostly(known, unknown), values, max_size=2))
    return method, {**draw(settings_of(method)), **wrong}, list(wrong)


@fuzz(slow=1000, given=changed())
def test_settings_are_read_or_refused_by_name(given):
    method, chosen, names = given
    bonus = resolve_bonus(method)
    with naming(names):
        settings = parse_settings(bonus, chosen)
    plain = settings.model_dump(mode="json")
    assert parse_settings(bonus, plain).model_dump(mode="json") == plain


@fuzz(slow=500, config=st.sampled_from(CONFIGS), given=changed())
def test_configs_are_valid_or_refused(config, given):
    method, chosen, _ = given
    made = getattr(rllib_rise, config)().environment("CartPole-v1")
    made.intrinsic(**{**chosen, "method": method}).validate()
