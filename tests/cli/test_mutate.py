"""`strata-harness mutate`: lists, tries, reports, and refuses what makes no sense."""

import json

from tests.cli.harness_calls import harness, refusal


def test_the_catalogue_is_listed_by_kind():
    outcome = harness("mutate", "--list", "--kind", "probe effect")
    assert outcome.code == 0
    assert "probe-half" in outcome.out and "ulp-logits" not in outcome.out


def test_a_fault_is_planted_killed_and_reported(tmp_path):
    path = tmp_path / "mutate.json"
    outcome = harness("mutate", "--name", "threshold-company-logits,off-slots", "--own", "--json", path)
    assert outcome.code == 0
    assert "2 of 2 faults killed" in outcome.out and "batch/slots-2" in outcome.out
    document = json.loads(path.read_text())
    assert (document["n_killed"], document["by_evidence"]) == (2, {"comparison": 1, "vacuous": 1})
    assert {fault["name"] for fault in document["faults"]} == {"threshold-company-logits", "off-slots"}
    assert document["environment"]


def test_an_explained_survivor_survives_and_is_explained():
    outcome = harness("mutate", "--name", "tier-usage-twice", "--own")
    assert outcome.code == 1, "one survivor of one is below 95 %"
    assert "1 survived, 0 without explanation" in outcome.out and "Only speed could tell" in " ".join(outcome.out.split())


def test_json_on_stdout_stands_alone():
    outcome = harness("mutate", "--name", "order-by-id", "--own", "--json", "-")
    assert json.loads(outcome.out)["n_faults"] == 1


def test_unknown_names_and_numbers_are_refused():
    assert "name=nothing" in refusal("mutate", "--name", "nothing")
    assert "kind=nothing" in refusal("mutate", "--kind", "nothing")
    assert "sample=many" in refusal("mutate", "--sample", "many")
