"""Commands without --model: the bundled models answer."""

import json
from pathlib import Path

import pytest

import clearformer
from clearformer.loading.folder import DEFAULT, LANGUAGE_MODEL


def test_score_ranks_the_sentences_of_the_notes(cli) -> None:
    shown = cli("score", "The man pooled a cart", "The man pulled a cart")
    assert shown.code == 0
    assert [line.split("\t")[3] for line in shown.out.splitlines()] == [
        "The man pulled a cart",
        "The man pooled a cart",
    ]
    named = cli("score", "--model", LANGUAGE_MODEL, "The man pooled a cart", "The man pulled a cart")
    assert named.out == shown.out
    rows = json.loads(cli("score", "--json", "The man pulled a cart").out)["scores"]
    assert set(rows[0]) == {"text", "logprob", "tokens", "perplexity"}


def test_fill_finds_a_verb(cli) -> None:
    rows = json.loads(cli("fill", "--json", "The man ___ a cart").out)["words"]
    assert rows == clearformer.fill(LANGUAGE_MODEL, "The man ___ a cart")
    assert len(rows) == 5
    chosen = cli("fill", "--candidates", "pooled,pulled", "The man ___ a cart").out.splitlines()
    assert [line.split("\t")[2] for line in chosen] == ["pulled", "pooled"]


def test_repair_finds_a_word_and_its_place(cli) -> None:
    rows = json.loads(cli("repair", "--json", "The man the cart").out)["repairs"]
    assert rows == clearformer.repair(LANGUAGE_MODEL, "The man the cart")
    assert [row["position"] for row in rows[:3]] == [2, 2, 2]  # The man … the cart


def test_generate_continues(cli) -> None:
    first = cli("generate", "--seed", 1, "The man pulled")
    assert first.code == 0
    assert first.out.startswith("The man pulled ")
    assert first.out == cli("generate", "--seed", 1, "--prompt", "The man pulled").out
    assert cli("generate", "--temperature", 0, stdin=b"I am\nYou are\n").out.count("\n") == 2


def test_translations_are_scored_by_the_bundled_translator(cli, tmp_path: Path) -> None:
    shown = cli("score", "--source", "I am here.", "Je suis ici.", "Il est parti.")
    assert (shown.code, shown.out) == (
        0,
        cli("score", "--model", DEFAULT, "--source", "I am here.", "Je suis ici.", "Il est parti.").out,
    )
    (tmp_path / "pairs.csv").write_text("en,fr\nA cat.,Un chat.\n")
    written = cli("score", "--input", tmp_path / "pairs.csv", "--column", "en,fr", "--out", tmp_path / "out.csv")
    assert written.code == 0, written.err
    assert "logprob" in (tmp_path / "out.csv").read_text()


@pytest.mark.parametrize("verb", ["generate", "fill", "repair"])
def test_the_default_in_the_help_is_the_default(cli, verb: str) -> None:
    assert f"[default: {LANGUAGE_MODEL}]" in cli(verb, "--help").out


def test_the_help_of_score_names_both(cli) -> None:
    assert f"[default: {LANGUAGE_MODEL}; for translations, {DEFAULT}]" in " ".join(cli("score", "--help").out.split())
