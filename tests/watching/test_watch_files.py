"""The file that a watch writes: no row of an earlier run is lost, and a line that was changed is named."""

import random

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.watching import load
from normkit.watching.live import files_of
from normkit.watching.signals import activation


def train(seen, optimizer, model, steps):
    with seen:
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).square().sum().backward()
            optimizer.step()


def watched(to, steps=4, **options):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen = nk.watch(model, optimizer, every=1, to=to, **options)
    return seen, optimizer, model, steps


def steps_in(path):
    return [line for line in path.read_text().splitlines() if '"event": "sample"' in line]


def test_a_second_run_stands_behind_the_first(tmp_path):
    for count in (4, 3):
        train(*watched(tmp_path, count))
    assert len(steps_in(tmp_path / "watch.jsonl")) == 7
    assert load(tmp_path / "watch.jsonl").steps == [1, 2, 3], "the last run is read"
    with (tmp_path / "watch.jsonl").open("a") as file:
        file.write('{"event": "sample", "st')
    train(*watched(tmp_path, 2))
    assert load(tmp_path / "watch.jsonl").steps == [1, 2]


def test_what_is_frozen_on_the_way_is_in_the_file_before_the_watch_ends(tmp_path):
    """As a kill would leave it."""
    seen, optimizer, model, _ = watched(tmp_path)
    with seen:
        for step in range(4):
            model.bias.requires_grad_(step < 2)
            optimizer.zero_grad()
            model(torch.ones(2, 3)).square().sum().backward()
            optimizer.step()
        changes = [line for line in (tmp_path / "watch.jsonl").read_text().splitlines() if '"after":' in line]
    assert len(changes) == 1
    assert '"after": 2' in changes[0]


@pytest.mark.parametrize("with_state", [True, False])
def test_a_run_that_goes_on_keeps_the_rows_before(tmp_path, with_state):
    first = watched(tmp_path, 6)
    train(*first)
    if with_state:
        again = watched(tmp_path, 4)
        state = first[0].state_dict()
        again[0].load_state_dict(state)
    else:
        again = watched(tmp_path, 4, start=6)
    train(*again)
    found = load(tmp_path / "watch.jsonl")
    assert found.steps == [*range(1, 11)]
    assert found.notes == []


def test_a_run_that_goes_on_from_an_earlier_step_takes_the_place_of_the_rows_behind_it(tmp_path):
    train(*watched(tmp_path, 6))
    train(*watched(tmp_path, 4, start=3))
    assert load(tmp_path / "watch.jsonl").steps == [*range(1, 8)]
    assert len(steps_in(tmp_path / "watch.jsonl")) == 10, "all are still in the file"


def test_a_run_that_goes_on_elsewhere_writes_what_its_state_has(tmp_path):
    first = watched(tmp_path / "one", 4)
    train(*first)
    again = watched(tmp_path / "other", 2)
    again[0].load_state_dict(first[0].state_dict())
    train(*again)
    assert load(tmp_path / "other" / "watch.jsonl").steps == [*range(1, 7)]


def test_a_file_forgets_what_a_run_went_back_behind(tmp_path):
    seen, *rest, _ = watched(tmp_path)
    train(seen, *rest, 3)
    kept = seen.state_dict()
    for steps in (5, 2):
        seen.load_state_dict(kept)
        train(seen, *rest, steps)
        seen.note(f"{steps} more")
    train(seen, *rest, 1)
    found = load(tmp_path / "watch.jsonl")
    assert found.steps == seen.history().steps == [*range(1, 7)]
    assert found.notes == seen.notes == ["2 more"]
    written, kept_in_memory = (torch.as_tensor(one.history().table) for one in (found, seen))
    torch.testing.assert_close(written, kept_in_memory, rtol=1e-4, atol=1e-5)
    assert len(steps_in(tmp_path / "watch.jsonl")) == 11, "all are still in the file"


def test_a_long_run_is_thinned_and_the_run_before_it_is_not(tmp_path):
    train(*watched(tmp_path, 5))
    before = (tmp_path / "watch.jsonl").read_bytes()
    train(*watched(tmp_path, 60, keep=8))
    assert (tmp_path / "watch.jsonl").read_bytes().startswith(before)
    assert len((tmp_path / "watch.jsonl").read_text().splitlines()) < 45
    found = load(tmp_path / "watch.jsonl")
    assert found.steps[0] == 1
    assert found.steps[-2:] == [59, 60]


def test_a_run_goes_on_in_a_file_of_before_there_were_seals(tmp_path):
    path = tmp_path / "watch.jsonl"
    first = watched(tmp_path, 4)
    train(*first)
    path.write_text("".join(line.split(', "seal"')[0] + "}\n" for line in path.read_text().splitlines()))
    assert load(path).steps == [1, 2, 3, 4]
    train(*watched(tmp_path, 2, start=4))
    assert load(path).steps == [1, 2, 3, 4, 5, 6]


def test_a_file_that_no_watch_has_written_stays(tmp_path):
    (tmp_path / "watch.jsonl").write_text('{"mine": 1}\n')
    with pytest.raises(ValueError, match="was not written by a watch; it stays"):
        watched(tmp_path)
    assert (tmp_path / "watch.jsonl").read_text() == '{"mine": 1}\n'


@pytest.mark.parametrize("name", ["lr0.01", "llama-3.1-8b", "of.today"])
def test_a_dot_in_the_name_of_a_folder_makes_no_file_of_it(name, tmp_path):
    train(*watched(tmp_path / "runs" / name))
    path = tmp_path / "runs" / name / "watch.jsonl"
    assert load(path).steps == [1, 2, 3, 4]
    assert files_of(tmp_path / "runs") == [path]


@pytest.mark.parametrize("name", ["own.jsonl", "own.csv", "OWN.JSON", "own.log", "own.txt", "lr0.01"])
def test_a_path_that_ends_as_a_file_or_is_one_is_written_to(name, tmp_path):
    if name == "lr0.01":
        watched(tmp_path)[0].save(tmp_path / name)
    train(*watched(tmp_path / name))
    assert load(tmp_path / name).steps == [1, 2, 3, 4]


def test_what_could_not_be_read_stands_in_the_file_as_well(tmp_path, monkeypatch):
    monkeypatch.setattr(activation, "stride_over", lambda *_: 1 / 0)
    train(*watched(tmp_path))
    assert load(tmp_path / "watch.jsonl").notes == ["activation of the model could not be read: division by zero"]


def test_a_run_that_takes_no_step_writes_nothing_and_says_nothing(tmp_path):
    seen, *rest = watched(tmp_path, 0)
    train(seen, *rest)
    assert seen.notes == []
    assert not (tmp_path / "watch.jsonl").exists()


def test_two_processes_do_not_mix_their_lines(tmp_path):
    first, second = watched(tmp_path), watched(tmp_path)
    with first[0], second[0]:
        for _ in range(3):
            for _, optimizer, model, _ in (first, second):
                model(torch.ones(2, 3)).square().sum().backward()
                optimizer.step()
    assert load(tmp_path / "watch.jsonl").steps == [1, 2, 3]
    assert any("another process writes to it" in note for note in first[0].notes + second[0].notes)


def test_a_training_that_changes_its_folder_goes_on_in_the_same_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen, optimizer, model, _ = watched("watch.jsonl")
    (tmp_path / "other").mkdir()
    with seen:
        for step in range(4):
            monkeypatch.chdir(tmp_path / "other" if step > 1 else tmp_path)
            model(torch.ones(2, 3)).square().sum().backward()
            optimizer.step()
    assert load(tmp_path / "watch.jsonl").steps == [1, 2, 3, 4]
    assert not [*(tmp_path / "other").iterdir()]


def test_what_is_saved_on_windows_is_read(tmp_path, windows_lines):
    watching = watched(None)
    train(*watching)
    assert load(watching[0].save(tmp_path / "saved.jsonl")).steps == [1, 2, 3, 4]


def test_a_flip_anywhere_names_the_file_and_a_cut_leaves_the_rows_before(tmp_path):
    path = tmp_path / "watch.jsonl"
    train(*watched(tmp_path, 5))
    whole, table = path.read_bytes(), load(path).table
    draw = random.Random(0)
    for _ in range(300):
        at = draw.randrange(len(whole) - 1)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << draw.randrange(8))]) + whole[at + 1 :])
        with pytest.raises(ValueError, match=r"watch\.jsonl"):
            load(path)
    for _ in range(300):
        path.write_bytes(whole[: draw.randrange(len(whole))])
        found, error = None, ""
        try:
            found = load(path)
        except ValueError as refusal:
            error = str(refusal)
        assert found or "watch.jsonl" in error
        if found:
            assert torch.equal(found.table, table[: len(found.steps), : found.table.shape[1]])
