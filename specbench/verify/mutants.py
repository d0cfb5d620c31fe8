"""Would the verifier notice? Every known defect is planted in the production code, and must be caught.

Knows: the defects, the smallest experiment that shows each, and harmless twins that must *not* be caught.
Refuses to know: how a defect works (``plants``, ``plants_drafts``, ``tree_plants``, ``address_plants``,
``defective_noise``).

Caught means a wrong law, a token off AR's path, contradicting counters, or one of the verifier's own checks
(:class:`specbench.verify.checks.CheckFailed`). Any other crash is an error of the mutant and does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from specbench.decoding.laws import Sampling
from specbench.decoding.noise import AddressedNoise
from specbench.verify import address_plants as addresses
from specbench.verify import block_plants as block
from specbench.verify import defective_noise as noises
from specbench.verify import plants
from specbench.verify import plants_drafts as drafts
from specbench.verify import tree_plants as trees
from specbench.verify.checks import CheckFailed
from specbench.verify.enumerate import EnumeratingNoise
from specbench.verify.exact import (
    BASE,
    BLOCK,
    LAW_TOLERANCE,
    PATH_TOLERANCE,
    ROW,
    TWICE_REDRAFTED,
    Case,
    follows_ar,
    measure,
)
from specbench.verify.noise_checks import check_noise
from specbench.verify.result import Result


def _method(
    redraft: str = "independent", accept: str = "strict", fill: str = "uniform", **options: Any
) -> dict[str, Any]:
    return {"decoder": "jacobi", "redraft": redraft, "accept": accept, "fill": fill, **options}


SJD, SCD, GS = _method(), _method("maximal"), _method("gumbel")
JACOBI, REPLAY = _method(accept="fresh"), _method("gumbel", "replay")
FRESH_SCD = _method("maximal", "fresh")
"""Redrafts couple, but a draft is never committed: its law may be wrong without harm."""
PREDICTED: dict[str, Any] = {"predict": "growth", "history": 1, "growth": 1, "candidates": 1.0}
SJD_VP, SCD_VP = _method(**PREDICTED), _method("maximal", **PREDICTED)
CONTEXT: dict[str, Any] = {"predict": "context", "history": 1, "sharpness": 2.0}
SJD_CONTEXT, SCD_CONTEXT = _method(**CONTEXT), _method("maximal", **CONTEXT)
FOUR_PASSES = Case(vocab=2, size=5, window=5)
"""A slot's neighbour has changed since a remembered pass, because the slot had, before the slot is tested."""
IDLE_CONTEXT = {**SCD_CONTEXT, "decay": 0.0}
"""Older laws have no weight."""
MIXED = _method("maximal", alpha=0.5)
PAC = _method("maximal", tree="siblings", children=3, depth=2)
PAC_OF_TWO, DEEP_PAC = {**PAC, "children": 2}, {**PAC, "children": 2, "depth": 3}
PAC_CONTEXT = {**PAC_OF_TWO, **CONTEXT}
WIDE, DEEP = Case(window=4), Case(vocab=2, window=7)
"""Tables on which these trees stand: three candidates for a slot; two levels."""
EXACT = {"decoder": "block", "rounds": "exact"}
FIXED = {"decoder": "block", "rounds": "exact", "redraft": "gumbel", "stop": "fixed_point"}
TWO_BLOCKS = Case(vocab=2, size=6, columns=3)
TOP_TWO = replace(BASE, sampling=Sampling(top_k=2))
PAIR = Case(vocab=2, size=4, window=3, images=2)


@dataclass(frozen=True)
class Experiment:
    """One method on one table, with something planted in the code or in the noise."""

    settings: dict[str, Any]
    plant: Callable[[plants.Patch], None] | None = None
    noise: type[EnumeratingNoise] = EnumeratingNoise
    case: Case = BASE

    def run(self) -> tuple[bool, float | None, str]:
        """Whether anything was noticed, the distance if a law came out, and what was noticed."""
        with planted(self.plant):
            try:
                found = measure({"settings": self.settings}, self.case, self.noise)
            except CheckFailed as error:
                return True, None, f"{type(error).__name__}: {error}"
        distance = found.total_variation
        if distance > LAW_TOLERANCE:
            return True, distance, f"wrong law, TV {distance:.1e}"
        if follows_ar({"settings": self.settings}) and found.off_path > PATH_TOLERANCE:
            return True, distance, f"{found.off_path:.1e} tokens off AR's path at TV {distance:.0e}"
        return False, distance, f"TV {distance:.0e}"


@dataclass(frozen=True)
class NoiseExperiment:
    """The real noise alone, with something planted in its addresses."""

    plant: Callable[[plants.Patch], None] | None

    def run(self) -> tuple[bool, float | None, str]:
        """As :meth:`Experiment.run`; there is no law."""
        with planted(self.plant):
            try:
                check_noise(AddressedNoise)
            except CheckFailed as error:
                return True, None, f"{type(error).__name__}: {error}"
        return False, None, "nothing noticed"


@contextmanager
def planted(plant: Callable[[plants.Patch], None] | None) -> Iterator[None]:
    """Replace what ``plant`` replaces, and put everything back afterwards."""
    undo: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, replacement: Any) -> None:
        undo.append((owner, name, vars(owner)[name]))
        setattr(owner, name, replacement)

    try:
        if plant is not None:
            plant(patch)
        yield
    finally:
        for owner, name, original in reversed(undo):
            setattr(owner, name, original)


AnyExperiment = Experiment | NoiseExperiment
E, N = Experiment, NoiseExperiment

MUTANTS: dict[str, tuple[AnyExperiment, AnyExperiment | None]] = {
    "stale law on kept drafts": (E(SCD, plants.stale_law_of_kept_drafts), E(SJD, plants.no_law_of_committed_slots)),
    "law recorded one position late": (E(SJD, plants.law_of_the_slot_before), None),
    "redraft reads its own old token, maximal": (
        E(SCD, plants.redraft_from_the_right_neighbour),
        E(SJD, plants.redraft_from_the_right_neighbour),
    ),
    "redraft reads its own old token, Gumbel": (E(GS, plants.redraft_from_the_right_neighbour), None),
    "one-hot draft tested softly": (
        E(_method(fill="onehot"), plants.softened_point_masses),
        E(_method(fill="onehot"), plants.copied_drafts_uniform_law),
    ),
    "copied draft tested as uniform": (
        E(_method(fill="left"), plants.copied_drafts_uniform_law),
        None,
    ),
    "one fill token copied over the window": (
        E(SJD, plants.one_fill_token_for_all),
        E(SJD, plants.one_fill_token_for_all_recorded_as_copied),
    ),
    "residual without clamp": (E(SJD, plants.residual_without_clamp), E(SJD, plants.residual_of_nothing_is_uniform)),
    "residual |p - q|": (E(SJD, plants.residual_absolute), None),
    "residual is p": (E(SJD, plants.residual_is_p), None),
    "redraft conditioned on acceptance": (
        E(SCD, plants.redraft_residual_is_p),
        E(FRESH_SCD, plants.redraft_residual_is_p, case=Case(vocab=2)),
    ),
    "accept all": (E(SJD, plants.accept_all), E(FRESH_SCD, plants.accept_all)),
    "the draft is committed instead of the draw": (
        E(JACOBI, plants.mismatch_commits_the_draft),
        E(JACOBI, plants.no_redraft_behind_a_mismatch),
    ),
    "drafts filtered, law raw": (
        E(SJD, plants.filtered_drafts_raw_law, case=TOP_TWO),
        E(SJD, plants.raw_drafts_raw_law, case=TOP_TWO),
    ),
    "drafts raw, law filtered": (E(SJD, plants.raw_drafts_filtered_law, case=TOP_TWO), None),
    "bf16 draw tested in full": (
        E(SJD, plants.half_precision_drafts),
        E(SJD, plants.half_precision_drafts_and_law),
    ),
    "Gumbel row shared by two positions": (
        E(GS, noise=noises.RowSharedByPositions),
        E(GS, noise=noises.RowsBackwards),
    ),
    "Gumbel row tied to the window's slot": (E(GS, noise=noises.RowOfWindowSlot), None),
    "Gumbel row shared by images": (
        E(GS, noise=noises.RowsSharedByImages, case=PAIR),
        E(GS, noise=noises.RowsOfImagesSwapped, case=PAIR),
    ),
    "residual from the coupled row": (E(GS, noise=noises.ResidualFromRow), E(GS, noise=noises.FillFromRow)),
    "accept number without the pass, maximal": (
        E(SCD, noise=noises.CoinsWithoutPass, case=TWICE_REDRAFTED),
        E(SJD, noise=noises.CoinsWithoutPass, case=TWICE_REDRAFTED),
    ),
    "one accept number for test and redraft, in every pass": (
        E(SCD, noise=noises.CoinsWithoutPassOrIndex),
        E(SCD, noise=noises.CoinsWithoutIndex, case=TWICE_REDRAFTED),
    ),
    "one accept number for all positions": (E(SJD, noise=noises.OneCoinPerPass), E(GS, noise=noises.CoinsWithoutPass)),
    "one accept number for two positions": (E(SJD, noise=noises.OneCoinPerPair), None),
    "minimum over the batch with kept drafts": (
        E(SJD, plants.minimum_over_pairs("refused"), case=PAIR),
        E(SJD, plants.minimum_over_pairs("everything"), case=PAIR),
    ),
    "minimum over the batch with kept drafts and their old law": (
        E(SJD, plants.minimum_over_pairs("refused", old_law=True), case=PAIR),
        E(SJD, plants.minimum_over_pairs("nothing"), case=PAIR),
    ),
    "predicted drafts tested with p": (
        E(SJD_VP, drafts.raw_law_of_predicted_drafts),
        E(_method(predict="growth"), drafts.raw_law_of_predicted_drafts),
    ),
    "prediction reads its own old token": (
        E(SCD_VP, drafts.mask_reads_the_slots_own_token),
        E(SJD_VP, drafts.mask_reads_the_slots_own_token),
    ),
    "prediction from the past of the slot behind": (
        E(SCD_VP, drafts.history_of_the_slot_behind, case=TWICE_REDRAFTED),
        E(SCD_VP, drafts.history_by_window_slot, case=TWICE_REDRAFTED),
    ),
    "free slot from the prediction": (
        E({**SJD_VP, "predict": "score"}, drafts.free_slot_from_the_prediction),
        E(SJD_VP, drafts.free_slot_from_the_prediction),
    ),
    "averaged drafts tested with p": (
        E(SCD_CONTEXT, drafts.raw_law_of_drafts_in_context),
        E(IDLE_CONTEXT, drafts.raw_law_of_drafts_in_context),
    ),
    "context reads the slot's own token": (
        E(SCD_CONTEXT, drafts.context_with_the_token(0), case=TWICE_REDRAFTED),
        E(SJD_CONTEXT, drafts.context_with_the_token(0), case=TWICE_REDRAFTED),
    ),
    "context reads the right neighbour's token": (
        E(SCD_CONTEXT, drafts.context_with_the_token(1), case=FOUR_PASSES),
        E(SJD_CONTEXT, drafts.context_with_the_token(1), case=FOUR_PASSES),
    ),
    "contexts compared after the redraft": (
        E(SCD_CONTEXT, drafts.context_after_the_redraft),
        E(IDLE_CONTEXT, drafts.context_after_the_redraft),
    ),
    "weights of contexts do not sum to one": (
        E(SCD_CONTEXT, drafts.weights_do_not_sum_to_one),
        E(SCD_CONTEXT, drafts.no_law_counts_as_the_last_one),
    ),
    "settled slot from the average": (
        E(PAC_CONTEXT, drafts.settled_slot_in_context, case=WIDE),
        E(SCD_CONTEXT, drafts.settled_slot_in_context, case=WIDE),
    ),
    "mixing coin is the keep coin": (
        E(MIXED, noise=drafts.MixingCoinIsTheKeepCoin),
        E(MIXED, noise=drafts.MixingCoinIsTheTestCoin),
    ),
    "mixing knows the draft": (
        E(MIXED, drafts.mixing_knows_the_draft),
        E(MIXED, noise=drafts.MixingCoinWithoutPass, case=TWICE_REDRAFTED),
    ),
    "relaxation without its bound": (
        E(_method(accept="lantern", delta=0), drafts.bound_not_looked_at),
        E(_method(accept="lantern", delta=0), drafts.nearest_codes_wrong),
    ),
    "group without its gap": (
        E(_method(accept="grouped", gap=0), drafts.group_forgets_the_gap),
        E(_method(accept="grouped", gap=0), drafts.group_in_another_order),
    ),
    "cache not rolled back": (E(SJD, plants.cache_not_rolled_back), E(SJD, plants.rolled_back_by_overwriting)),
    "correction never fed": (E(SJD, plants.correction_never_fed), None),
    "cache written where row 0 is": (E(SJD, plants.cache_written_where_row_zero_is), None),
    "bonus of replay from fresh noise": (
        E(REPLAY, noise=noises.BonusFromFreshNoise),
        E(GS, noise=noises.BonusFromFreshNoise),
    ),
    "block: one round less than tokens": (
        E(EXACT, block.rounds_short_of_the_block, case=BLOCK),
        E(EXACT, block.rounds_beyond_the_block, case=BLOCK),
    ),
    "block: cache not rolled back between rounds": (
        E(EXACT, plants.cache_not_rolled_back, case=BLOCK),
        E(EXACT, plants.rolled_back_by_overwriting, case=BLOCK),
    ),
    "block: commit keeps stale tokens": (
        E(EXACT, block.commit_keeps_stale_tokens, case=TWO_BLOCKS),
        E(EXACT, block.commit_keeps_stale_tokens, case=BLOCK),  # nothing is decoded behind a single block
    ),
    "block: law of the heads in later rounds": (E(EXACT, block.law_of_the_round_before_last, case=BLOCK), None),
    "block: law recorded one position late": (E(EXACT, plants.law_of_the_slot_before, case=BLOCK), None),
    "block: residual is p": (
        E(EXACT, plants.redraft_residual_is_p, case=BLOCK),
        E(EXACT, block.heads_read_the_token_before, case=TWO_BLOCKS),
    ),
    "block: likeliest drafts tested softly": (
        E(EXACT, block.drafts_are_the_likeliest, case=ROW),
        E(EXACT, block.drafts_from_a_flat_law, case=ROW),
    ),
    "block: accept number without the pass": (E(EXACT, noise=noises.CoinsWithoutPass, case=BLOCK), None),
    "block: stops before the fixed point": (
        E(FIXED, block.fixed_up_to(2), case=BLOCK),
        E(FIXED, block.fixed_up_to(0), case=BLOCK),
    ),
    "finished images count passes": (E(SJD, plants.finished_images_count_passes), None),
    "longest accepted row wins": (E(DEEP_PAC, trees.longest_row_wins, case=Case(size=3, window=7)), None),
    "a later sibling wins over an accepted one": (
        E(PAC, trees.last_accepted_sibling_wins, case=WIDE),
        E(PAC, trees.same_test_written_again, case=WIDE),
    ),
    "siblings from the residual, tested as from the law": (E(PAC, trees.siblings_from_the_residual, case=WIDE), None),
    "siblings tested independently": (E(PAC, trees.siblings_tested_independently, case=WIDE), None),
    "p not updated between siblings": (E(PAC_OF_TWO, trees.p_not_updated), None),
    "q keeps the refused sibling": (E(PAC, trees.refused_sibling_stays_in_q, case=WIDE), None),
    "correction from the first residual": (E(PAC_OF_TWO, trees.correction_from_the_first_residual), None),
    "siblings sorted by probability": (E(PAC, trees.siblings_by_probability, case=WIDE), None),
    "siblings pruned by their own probability": (
        E(PAC_OF_TWO, trees.siblings_pruned_by_their_own_probability),
        E(PAC_OF_TWO, trees.siblings_pruned_by_the_draft),
    ),
    "whether a tree grows depends on a later draft": (
        E(PAC_OF_TWO, trees.tree_if_the_second_draft_is_zero, case=WIDE),
        E(PAC_OF_TWO, trees.tree_at_even_positions, case=WIDE),
    ),
    "siblings share one number": (
        E(PAC, trees.siblings_share_one_number, case=WIDE),
        E(PAC, trees.siblings_numbered_backwards, case=WIDE),
    ),
    "law of the main path beside it": (
        E(PAC_OF_TWO, trees.main_path_law_beside_it, case=WIDE),
        E(PAC, trees.side_nodes_backwards, case=WIDE),
    ),
    "law of a cousin": (E(DEEP_PAC, trees.cousin_read_for_sibling, case=DEEP), None),
    "columns of a side branch kept as a chain's": (E(PAC_OF_TWO, trees.path_kept_as_a_chain, case=WIDE), None),
    "draft key without the pass": (
        N(addresses.without("pass", role="draft")),
        N(addresses.gumbel_rows(lambda noise, position: position + 5000)),
    ),
    "accept key without the pass": (N(addresses.without("pass", role="accept")), None),
    "residual key without the pass": (N(addresses.without("pass", role="residual")), None),
    "fill key without the pass": (N(addresses.without("pass", role="fill")), None),
    "child key without the pass": (N(addresses.without("pass", role="child")), None),
    "accept key without the index": (N(addresses.without("index", role="accept")), None),
    "child key without the index": (N(addresses.without("index", role="child")), None),
    "key without the position": (N(addresses.without("position")), None),
    "key without the image": (N(addresses.without("image")), None),
    "key without the role": (N(addresses.without("role")), None),
    "key without the index": (N(addresses.without("index")), None),
    "target key without the position": (N(addresses.gumbel_rows(lambda noise, position: position * 0)), None),
    "target key with the pass": (N(addresses.gumbel_rows(lambda noise, position: position + 100 * noise._pass)), None),
    "target key without the image": (N(addresses.gumbel_rows_without_image), None),
}
"""Name → the defect, and its harmless twin where one exists."""


def mutants(names: tuple[str, ...] = tuple(MUTANTS)) -> Iterator[Result]:
    """One result per mutant: it passes if the defect is caught and the twin is not."""
    for name in names:
        try:
            yield _judge(name, *MUTANTS[name])
        except Exception as error:  # a crash is no verdict, whatever it is
            crash = f"crashed, which does not count: {type(error).__name__}: {error}"
            yield Result(f"mutant: {name}", "mutants", passed=False, detail=crash)


def _judge(name: str, defect: AnyExperiment, twin: AnyExperiment | None) -> Result:
    caught, distance, detail = defect.run()
    note, harmless = ("caught, " if caught else "SURVIVED, ") + detail, True
    if twin is not None:
        wrongly, _, seen = twin.run()
        harmless = not wrongly
        note += f"; harmless twin {'passes' if harmless else 'was caught: ' + seen}"
    return Result(f"mutant: {name}", "mutants", distance, passed=caught and harmless, detail=note)
