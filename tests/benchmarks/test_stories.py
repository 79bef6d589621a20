"""Generated stories: the summary and the topic follow from the sentences, and held-out combinations are kept apart."""

from importlib import import_module
from random import Random
from typing import Any

import pytest

from clearformer.bundled.grammar.lexicon import ADJECTIVES, NOUNS, THAT, TIMES, VERBS, Number, Tense
from clearformer.bundled.grammar.trees import Action, Gap, Phrase, Somewhere

NOUN = {noun.singular: noun for noun in NOUNS}
VERB = {verb.base: verb for verb in VERBS}
RED = next(adjective for adjective in ADJECTIVES if adjective.english == "red")
YESTERDAY = next(adverb for adverb in TIMES if adverb.english == "yesterday")


@pytest.fixture
def stories() -> Any:
    return import_module("stories")


def queen(verb: str, **parts: Any) -> Action:
    return Action(Phrase(NOUN["queen"]), VERB[verb], Tense.PAST, **parts)


def test_a_summary_has_no_adjectives_relative_clauses_and_adjuncts(stories: Any) -> None:
    seen = Action(Phrase(NOUN["dog"]), VERB["see"], Tense.PAST, Gap(NOUN["mango"], Number.MANY))
    mangoes = Phrase(NOUN["mango"], Number.MANY, THAT, RED, seen)
    assert stories.summary(queen("buy", object=mangoes)) == "The queen bought those mangoes"
    assert stories.summary(queen("buy", object=mangoes, adjunct=YESTERDAY)) == "The queen bought those mangoes"
    given = queen("give", object=mangoes, recipient=Phrase(NOUN["boy"], adjective=RED))
    assert stories.summary(given) == "The queen gave those mangoes to the boy"


def test_a_verb_without_an_object_keeps_its_place(stories: Any) -> None:
    verb = VERB["go"]
    there = Somewhere(verb.relations[0], Phrase(NOUN["city"], adjective=RED))
    assert stories.summary(queen("go", adjunct=there)) == "The queen went to the city"
    assert stories.summary(queen("go", adjunct=YESTERDAY)) == "The queen went"


def test_the_hero_is_the_subject_of_three_sentences(stories: Any) -> None:
    for seed in range(50):
        story = stories.tell(Random(seed))
        subjects = [clause.subject.noun.singular for clause in story.clauses]
        hero = story.event.subject.noun.singular
        assert sorted(map(subjects.count, subjects)) == [1, 1, 3, 3, 3]
        assert subjects.count(hero) == 3
        past = [c for c in story.clauses if isinstance(c, Action) and c.tense is Tense.PAST]
        assert len(past) == 3
        assert [c for c in past if c.subject.noun.singular == hero] == [story.event]
        assert story.summary.split()[:2] == ["The", hero]


def test_the_topic_is_that_of_both_actions_of_the_hero_and_of_no_other(stories: Any) -> None:
    of_verb = {verb: topic for topic, bases in stories.TOPICS.items() for verb in bases.split()}
    for seed in range(50):
        story = stories.tell(Random(seed))
        hero = story.event.subject.noun
        actions = [c for c in story.clauses if isinstance(c, Action)]
        about_hero = [of_verb[c.verb.base] for c in actions if c.subject.noun is hero]
        about_others = [of_verb[c.verb.base] for c in actions if c.subject.noun is not hero]
        assert about_hero == [story.topic] * 2
        assert story.topic not in about_others
        assert len({*about_others}) == 2


def test_new_combinations_never_occur_in_training(stories: Any) -> None:
    parts = stories.splits(train=200, held_out=50, seed=3)
    sizes = {"train": 200, "valid": 50, "test": 50, "combinations": 50}
    assert {name: len(told) for name, told in parts.items()} == sizes
    texts = [story.text for told in parts.values() for story in told]
    assert len({*texts}) == 350

    def pairs(told: Any) -> set[tuple[str, str]]:
        events = (story.event for story in told if story.event.object)
        return {(event.verb.base, event.object.noun.singular) for event in events}

    assert len(pairs(parts["combinations"])) >= 7
    assert not pairs(parts["combinations"]) & pairs(parts["train"] + parts["valid"] + parts["test"])


def test_files_have_two_rows_per_story_and_depend_on_the_seed(stories: Any, tmp_path: Any) -> None:
    stories.write(stories.splits(7, 3, seed=1), tmp_path / "new")
    rows = [line.split("\t") for line in (tmp_path / "new" / "train.tsv").read_text().splitlines()]
    assert len(rows) == 14
    assert [source.split()[0] for source, _ in rows] == ["summarise:", "topic:"] * 7
    assert {target for _, target in rows[1::2]} <= {*stories.TOPICS}
    assert stories.splits(7, 3, seed=1) == stories.splits(7, 3, seed=1) != stories.splits(7, 3, seed=2)
