"""The tests of the real noise: production passes, and a ring of rows that collides does not (keys: see the mutants)."""

import pytest

from specbench.decoding.noise import AddressedNoise
from specbench.verify.address_plants import without
from specbench.verify.checks import NoiseError
from specbench.verify.mutants import planted
from specbench.verify.noise_checks import ROLES, check_collisions, check_noise


def test_production_noise_keeps_its_promises():
    check_noise(AddressedNoise)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("part", ["pass", "position", "image", "index", "role"])
def test_a_key_that_loses_one_part_for_one_role_is_noticed(part, role):
    with planted(without(part, role=role)), pytest.raises(NoiseError, match=role):
        check_noise(AddressedNoise)


def test_a_coin_that_loses_the_pass_on_its_own_way_is_noticed():
    """Coins are judged as they are thrown, and not as draws that happen to read the same number today."""

    def fixed(patch):
        def accept(self, prob, key, need, lead=False):
            kept, self._pass = self._pass, 0
            try:
                return self.uniform(key) < prob
            finally:
                self._pass = kept

        patch(AddressedNoise, "accept", accept)

    with planted(fixed), pytest.raises(NoiseError, match="accept numbers repeat: the pass"):
        check_noise(AddressedNoise)


def test_successive_drafts_that_agree_too_often_are_noticed():
    with planted(without("pass", role="draft")), pytest.raises(NoiseError, match="successive drafts agree"):
        check_collisions(AddressedNoise)


def test_two_positions_on_one_gumbel_row_are_noticed_even_at_the_ends_of_the_window():
    def wrap_around(patch):
        coupled = AddressedNoise.coupled
        patch(AddressedNoise, "coupled", lambda self, law, at, need: coupled(self, law, at % 31, need))

    with planted(wrap_around), pytest.raises(NoiseError, match="share a Gumbel row"):
        check_noise(AddressedNoise)


def test_draws_that_ignore_their_law_are_noticed():
    def flat(patch):
        draw = AddressedNoise.draw
        patch(
            AddressedNoise,
            "draw",
            lambda self, law, key, need: draw(self, (law + 1e-2) / (law + 1e-2).sum(-1, keepdim=True), key, need),
        )

    with planted(flat), pytest.raises(NoiseError, match="probability zero"):
        check_noise(AddressedNoise)


def test_a_ring_that_hashes_too_few_new_rows_is_noticed():
    def forgetful(patch):
        advance = AddressedNoise.advance
        patch(
            AddressedNoise,
            "advance",
            lambda self, moved=None: advance(self, None if moved is None else max(moved - 1, 0)),
        )

    with planted(forgetful), pytest.raises(NoiseError, match="told of a move"):
        check_noise(AddressedNoise)
