"""Run folders as the page sees them: live, damaged, begun anew."""

import json

import pytest

from explorers import served
from macow.train import fit
from macow.web.runs import MOST_POINTS, told_apart
from small_runs import SMALL, rows


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "small"
    fit(SMALL, "digits", folder, quiet=True)
    return folder


def test_a_run_tells_its_curves_and_samples(trained, tmp_path):
    with served(runs=told_apart([trained, tmp_path])) as running:
        small, empty = json.loads(running.ask("GET", "/api/runs")[2])["runs"]
        assert small["name"] == "small"
        assert (small["step"], small["steps"]) == (6, 6)
        found = rows(trained)
        test = [[row["step"], row["test_bits"]] for row in found if row.get("test_bits")]
        assert small["test"] == test
        assert small["best"] == min(bits for _, bits in test)
        assert [step for step, _ in small["train"]] == [2, 4, 6]
        assert small["samples"] == [3, 6]
        status, headers, body = running.ask("GET", "/api/runs/0/samples/6")
        assert (status, headers["content-type"]) == (200, "image/png")
        assert body == (trained / "samples" / "step_0000006.png").read_bytes()
        assert (empty["step"], empty["train"], empty["age_s"]) == (0, [], None)
        for path in ("/api/runs/0/samples/5", "/api/runs/1/samples/6", "/api/runs/2/samples/6"):
            assert running.ask("GET", path)[0] == 404


def test_new_rows_are_seen_and_damage_is_left_out(tmp_path):
    (run,), file = told_apart([tmp_path]), tmp_path / "metrics.jsonl"
    file.write_text('{"step": 1, "bits": 3.0}\n')
    assert run.about()["train"] == [[1, 3.0]]
    with file.open("a") as out:
        out.write(
            '{"step": 2, "bits": null}\n{"step": 3, "bits": 2.5, "test_bits": 2.6}\n'
            '{"step": 4, "bits": NaN, "test_bits": "low"}\n{"step": Infinity, "bits": 2.0}\n'
            f'{{"step": 5, "bits": 1{"0" * 400}}}\n{{"st'
        )
    with pytest.warns(UserWarning, match="line 5 is damaged"):
        about = run.about()
    assert about["train"] == [[1, 3.0], [3, 2.5]]
    assert about["test"] == [[3, 2.6]]
    (tmp_path / "config.yaml").write_text("train: [")
    assert run.about()["steps"] is None
    file.unlink()
    assert run.about()["train"] == []


def test_a_run_that_cannot_be_read_says_why(tmp_path):
    (run,) = told_apart([tmp_path])
    (tmp_path / "metrics.jsonl").write_text("{}")
    run._figures = lambda: (tmp_path / "gone").read_text()
    about = run.about()
    assert about["problem"] == "its figures cannot be read: No such file or directory"
    assert (about["step"], about["train"]) == (0, [])


def test_long_curves_are_thinned_to_what_a_screen_shows(tmp_path):
    many = [{"step": step, "bits": 1.0} for step in range(5000)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in many))
    train = told_apart([tmp_path])[0].about()["train"]
    assert len(train) == MOST_POINTS
    assert (train[0][0], train[-1][0]) == (0, 4999)


def test_runs_are_named_so_that_they_differ(tmp_path):
    folders = [tmp_path / name for name in ("one/run", "two/run", "other")]
    for folder in folders:
        folder.mkdir(parents=True)
    assert [run.name for run in told_apart(folders[:2])] == ["one/run", "two/run"]
    assert [run.name for run in told_apart(folders[1:])] == ["run", "other"]
    assert [run.name for run in told_apart([folders[0]] * 2)] == ["run", "run"]
    assert told_apart([]) == []


def test_a_run_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match="nowhere: no such folder"):
        told_apart([tmp_path / "nowhere"])
