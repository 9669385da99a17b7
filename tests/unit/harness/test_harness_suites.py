"""Every suite's cases: what they cover, what options change, and that each can be run and could fail."""

import pytest

from harness.arms import difference
from harness.drafts import PATTERNS
from harness.running import Runner
from harness.suites.chunks import borders
from harness.suites.pipeline import slots_and_groups
from harness.suites.split import default_splits, even_split
from harness.suites.table import SUITES, suites_named
from strata.errors import UsageError
from tests.unit.harness.scopes import scope, shipped, short_prompts


FIRST_LIGHT = ("batch", "split", "pipeline", "window", "chunks")


def names(suite, **options):
    """The names of a suite's cases."""
    return [case.name for case in SUITES[suite].cases(scope(**options))]


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("suite", suites_named([]), ids=lambda suite: suite.name)
def test_every_case_is_of_its_own_can_run_and_must_prove_something(suite, level):
    cases = suite.cases(scope(level=level))
    runner = Runner(shipped()[0])
    assert len({case.name for case in cases}) == len(cases) > 0
    for case in cases:
        runner.check(case.left, case.workload)
        runner.check(case.right, case.workload)
        assert case.features
        assert difference(case.left, case.right)
        assert case.left.drafts is None  # drafts need the left arm's answers


@pytest.mark.parametrize("suite", FIRST_LIGHT)
def test_level_two_has_eight_long_conversations_in_every_case_and_every_prompt_in_one(suite):
    cases = [case for case in SUITES[suite].cases(scope(level=2)) if not case.name.startswith("borders")]
    assert min(len(case.workload.items) for case in cases) >= 8
    assert max(len(case.workload.items) for case in cases) == 32
    assert all(max(item.max_new for item in case.workload.items) >= 40 for case in cases)
    assert sum(min(item.max_new for item in case.workload.items) == 150 for case in cases) >= 5


def test_level_two_compares_groups_with_none_over_every_prompt():
    case = next(case for case in SUITES["pipeline"].cases(scope(level=2)) if case.name == "serial-2x4")
    assert (case.left.settings.batch_groups, case.right.settings.batch_groups) == (1, 2)
    assert {item.max_new for item in case.workload.items} == {150}
    assert len(case.workload.items) == 32


def test_level_one_compares_thousands_of_logit_rows():
    cases = [case for suite in FIRST_LIGHT for case in SUITES[suite].cases(scope())]
    assert sum(item.max_new for case in cases for item in case.workload.items) > 5000


@pytest.mark.parametrize("suite", ["drafts", "sampled", "batch-mtp"])
@pytest.mark.parametrize("devices", [{"devices": "host"}, {"devices": "host,host", "layer_split": (6,)}])
def test_suites_of_drafts_can_run_on_the_devices_given(suite, devices):
    runner = Runner(shipped()[0])
    for case in SUITES[suite].cases(scope(**devices)):
        runner.check(case.right, case.workload)
        assert case.right.settings.devices == devices["devices"]


def test_device_compares_proposals_where_both_arms_draft():
    cases = [case for case in SUITES["device"].cases(scope()) if case.alike]
    assert {case.right.settings.spec for case in cases} >= {2, 4, 8} and any(case.right.settings.batch_mtp for case in cases)
    for case in cases:
        assert case.left.settings.mtp and case.left.settings.devices == "host" and "cuda:0" in case.right.settings.devices
        assert case.left.settings.spec_policy == case.right.settings.spec_policy == "full"


def test_batch_covers_two_to_eight_slots():
    assert {case.right.settings.batch for case in SUITES["batch"].cases(scope())} == set(range(2, 9))


def test_batch_keeps_to_the_slots_asked_for():
    assert {case.right.settings.batch for case in SUITES["batch"].cases(scope(batch=3))} == {3}


def test_split_covers_two_to_four_stages_and_one_device():
    cases = SUITES["split"].cases(scope())
    assert {len(case.right.settings.layer_split) + 1 for case in cases} == {2, 3, 4}
    assert [case.right.settings.split_device for case in cases if case.name.startswith("one-device")] == [(0,)]


def test_split_keeps_to_the_points_asked_for():
    assert {case.right.settings.layer_split for case in SUITES["split"].cases(scope(layer_split=(3, 5)))} == {(3, 5)}


def test_split_keeps_to_the_devices_given():
    cases = SUITES["split"].cases(scope(devices="host:900m,host"))
    assert {case.right.settings.devices for case in cases} == {"host:900m,host"}
    assert {case.left.settings.devices for case in cases} == {"host:900m"}
    assert max(len(case.right.settings.layer_split) for case in cases) == 1


def test_one_device_leaves_only_the_split_on_one_device():
    assert [name.split("-")[0] for name in names("split", devices="host")] == ["one"]
    assert names("pipeline", devices="host") == []


def test_pipeline_compares_serial_pipelined_and_single():
    arms = {(case.left.name, case.right.name) for case in SUITES["pipeline"].cases(scope())}
    assert arms == {("single", "serial"), ("serial", "pipelined"), ("single", "pipelined")}
    assert {len(case.right.settings.layer_split) + 1 for case in SUITES["pipeline"].cases(scope())} == {2, 3, 4}


@pytest.mark.parametrize(
    ("batch", "groups", "stages", "expected"),
    [(None, None, 2, (4, 2)), (None, None, 4, (8, 4)), (None, 3, 2, (6, 3)), (None, 5, 2, (5, 5)), (6, None, 4, (6, 3)), (6, 2, 4, (6, 2)), (5, None, 2, (5, 1))],
)
def test_slots_and_groups_follow_what_was_asked_for(batch, groups, stages, expected):
    assert slots_and_groups(batch, groups, stages) == expected


def test_window_covers_widths_two_to_eight_and_every_pattern():
    drafts = [case.right.drafts for case in SUITES["window"].cases(scope())]
    assert {script.width for script in drafts} == set(range(2, 9))
    assert {script.pattern for script in drafts} == {"right", "wrong", "cycle", "ragged", "mixed"}


def test_window_poisons_rejected_cells_wherever_counts_are_cycled():
    cases = SUITES["window"].cases(scope())
    assert all("poison" in case.right.stresses for case in cases if case.right.drafts.pattern in ("cycle", "ragged"))


def test_chunks_cover_their_sizes_and_both_sides_of_every_border():
    assert chunk_sizes(scope()) == {1, 7, 32, 256}
    assert [len(item.prompt) for item in borders(scope(), 7).items] == [6, 7, 8, 13, 14, 15]
    assert [len(item.prompt) for item in borders(scope(), 256).items] == [255, 256, 257]
    assert [len(item.prompt) for item in borders(scope(level=2), 256).items] == [255, 256, 257, 511, 512, 513]
    assert [len(item.prompt) for item in borders(scope(), 1).items] == [1, 2, 3]


def test_chunks_leave_out_sizes_that_the_given_prompts_do_not_fill():
    given = scope(short_prompts(2, 9), max_new=4)
    assert chunk_sizes(given) == {1, 7}


def chunk_sizes(opened) -> set[int]:
    return {case.right.settings.prefill for case in SUITES["chunks"].cases(opened) if not case.right.settings.short_read}


def test_chunks_read_short_prompts_and_ends_of_long_ones_by_windows():
    short = [case for case in SUITES["chunks"].cases(scope()) if case.right.settings.short_read]
    assert all({"short_reads", "short_read_windows"} <= set(case.features) for case in short) and len(short) == 6
    assert {case.right.settings.batch_groups for case in short} == {1, 2}
    assert {"chunked_prompts" in case.features for case in short} == {True, False}


@pytest.mark.parametrize("suite", ["chunks", "drafts", "sampled", "batch-mtp", "batch", "window"])
def test_one_device_leaves_out_cases_of_two_stages_on_two_devices(suite):
    runner = Runner(shipped()[0])
    for case in SUITES[suite].cases(scope(devices="host")):
        runner.check(case.right, case.workload)


def test_one_prompt_of_level_one_is_deeper_than_the_selection():
    lengths = [len(item.prompt) for item in scope().workload(8).items]
    assert sum(length > shipped()[0].config.selection_width for length in lengths) == 1


def test_given_prompts_are_taken_as_they_are():
    given = short_prompts(3, 50)
    assert [item.prompt for item in scope(given).workload(8).items] == [item.prompt for item in given]


@pytest.mark.parametrize(("n", "expected"), [(2, (6,)), (3, (4, 8)), (4, (3, 6, 9)), (1, ())])
def test_even_splits_name_the_first_layers_of_later_stages(n, expected):
    assert even_split(12, n) == expected


def test_default_splits_fit_small_models():
    assert default_splits(2, None) == [(1,)]
    assert default_splits(12, 2) == [(6,), (1,), (11,)]


def test_suites_come_in_the_order_of_the_table_and_none_means_all():
    assert [suite.name for suite in suites_named(["window", "batch"])] == ["batch", "window"]
    everything = [suite.name for suite in suites_named([])]
    assert everything == [name for name in SUITES if name in everything]
    assert set(FIRST_LIGHT) <= set(everything)
    with pytest.raises(UsageError, match="suite=wndow"):
        suites_named(["wndow"])


def test_drafts_cover_every_width_and_every_source():
    settings = [case.right.settings for case in SUITES["drafts"].cases(scope())]
    assert {s.spec for s in settings if s.mtp and s.spec_policy == "full"} == set(range(1, 9))
    assert {(s.mtp, bool(s.suffix_draft)) for s in settings} == {(True, False), (False, True), (True, True)}


def test_drafts_at_level_two_take_every_prompt_with_every_width_source_and_pattern():
    cases = {case.name: case.workload.items for case in SUITES["drafts"].cases(scope(level=2))}
    every = [f"mtp-{w}" for w in range(1, 9)] + [f"scripted-{p}" for p in PATTERNS] + ["worth-8", "min-p", "suffix", "both", "wrong-drafts"]
    assert {(len(cases[name]), min(item.max_new for item in cases[name])) for name in every} == {(32, 150)}
    longest = {name: {(len(items), item.max_new) for item in items} for name, items in cases.items() if name.endswith("-1000")}
    assert longest == dict.fromkeys(("spec-4-1000", "suffix-1000", "both-1000"), {(32, 1000)})


def test_drafts_poison_cells_behind_the_newest_everywhere():
    assert all("poison" in case.right.stresses for case in SUITES["drafts"].cases(scope()))


def test_thousand_tokens_come_at_level_two_only():
    longest = [max(item.max_new for case in SUITES["drafts"].cases(scope(level=level)) for item in case.workload.items) for level in (1, 2)]
    assert longest == [24, 1000]


def test_sampled_conversations_differ_in_their_keys_and_some_are_greedy():
    case = SUITES["sampled"].cases(scope())[0]
    keys = [item.sampling for item in case.workload.items]
    assert len(set(keys)) == len(keys)
    assert {key.is_greedy for key in keys} == {key.has_penalties for key in keys} == {True, False}


def test_sampled_keys_follow_the_seed():
    first, second = (SUITES["sampled"].cases(scope(seed=seed))[0].workload.items[0].sampling.seed for seed in (1, 2))
    assert first != second


def test_batch_mtp_covers_slots_that_fit_a_window_and_slots_that_take_turns():
    cases = SUITES["batch-mtp"].cases(scope())
    assert {case.right.settings.batch for case in cases} == {2, 3, 4, 5, 10}
    assert {"rotated_windows" in case.features for case in cases if case.right.settings.batch > 4} == {True}
