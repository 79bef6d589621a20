"""Generated stories with a summary and a topic, as tasks for a T5: text to text, with the task in front.

    python benchmarks/stories.py FOLDER [--train 8000] [--held-out 500] [--seed 0]

    summarise: The farmer washed three carts . The queen will sell the red ball . The queen was tired . The queen bought
    those mangoes which the dog saw . The girl went to the city .          ->  The queen bought those mangoes
    topic: …                                                               ->  trade

A story has five sentences of the bundled grammar in random order:

    2 about the hero    an event, in the past, and a habit or a plan, both with verbs of one topic
    1 state             of the hero: tired, clever, in the garden
    2 about others      events in the past, with verbs of two other topics

The summary is the event of the hero without adjectives, relative clauses and adjuncts (a verb without an object keeps
its place: went to the city). The topic is the topic of the hero's two verbs. So the hero must be found first, by being
mentioned three times. The corpus is synthetic, and the rules are all there is to learn.

Writes train.tsv, valid.tsv, test.tsv and combinations.tsv, two rows per story. In all but the last, no sentence has a
held-out combination of words (`bundled/corpus.py`). In the last, the event of each hero has one: its verb and its
object never occur together in training.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

from clearformer.bundled.corpus import has_held_out, is_held_out
from clearformer.bundled.grammar import english
from clearformer.bundled.grammar.lexicon import VERBS, Noun, Tense, Verb
from clearformer.bundled.grammar.speaker import Speaker, nouns
from clearformer.bundled.grammar.trees import Action, Clause, Phrase, Somewhere

TOPICS = {
    "food": "eat drink chop",
    "trade": "buy sell bring give send",
    "travel": "come go walk run climb",
    "house": "open close wash break",
    "letters": "read write",
    "company": "call meet",
}
BY_TOPIC: dict[str, list[Verb]] = {
    topic: [
        verb for verb in VERBS if verb.base in bases.split() and "human" in verb.subjects and verb.objects != "pages"
    ]
    for topic, bases in TOPICS.items()
}
LATER = (Tense.PRESENT, Tense.PROGRESSIVE, Tense.USED_TO, Tense.FUTURE)
TASKS = ("summarise", "topic")
RELATIVE = 0.4  # how often an object has a relative clause
DETAIL = 1.5  # how often adjectives and adjuncts occur, as a multiple of what is usual in the corpus


class Story(NamedTuple):
    sentences: list[str]
    summary: str
    topic: str
    clauses: list[Clause]
    event: Action

    @property
    def text(self) -> str:
        return " . ".join(self.sentences) + " ."

    @property
    def rows(self) -> dict[str, tuple[str, str]]:
        """The source and the target of each task."""
        return {"summarise": (f"summarise: {self.text}", self.summary), "topic": (f"topic: {self.text}", self.topic)}


def tell(draw: Random) -> Story:
    hero, *others = draw.sample(nouns("human"), 3)
    topic, *elsewhere = draw.sample(sorted(BY_TOPIC), 3)
    event_verb, other_verb = draw.sample(BY_TOPIC[topic], 2)
    event = act(draw, hero, event_verb, (Tense.PAST,))
    clauses: list[Clause] = [event, act(draw, hero, other_verb, LATER), Speaker(draw).state(Phrase(hero))]
    clauses += [act(draw, who, draw.choice(BY_TOPIC[what]), (Tense.PAST,)) for who, what in zip(others, elsewhere)]
    draw.shuffle(clauses)
    return Story([english.sentence(clause) for clause in clauses], summary(event), topic, clauses, event)


def act(draw: Random, who: Noun, verb: Verb, tenses: tuple[Tense, ...]) -> Action:
    """Draw an action in one of the tenses; some of its objects have a relative clause."""
    speaker = Speaker(draw)
    speaker.detail = DETAIL
    depth = int(bool(verb.objects) and not verb.recipient and draw.random() < RELATIVE)
    while (action := speaker.action(Phrase(who), verb, depth)).tense not in tenses:
        pass
    return action


def summary(event: Action) -> str:
    """The event without adjectives, relative clauses and adjuncts; without an object, it keeps its place."""
    place = event.adjunct if not event.object and isinstance(event.adjunct, Somewhere) else None
    short = replace(
        event,
        object=bare(event.object),
        recipient=bare(event.recipient),
        adjunct=place and replace(place, phrase=bare(place.phrase)),
    )
    return english.sentence(short)


def bare(phrase):  # type: ignore[no-untyped-def]
    return phrase and replace(phrase, adjective=None, relative=None)


def stories(seed: str, keep: Callable[[Story], bool]) -> Iterator[Story]:
    """Yield stories endlessly; those with five sentences that occurred together before are left out."""
    draw, seen = Random(seed), set[str]()
    while True:
        story = tell(draw)
        if keep(story) and story.text not in seen:
            seen.add(story.text)
            yield story


def is_known(story: Story) -> bool:
    return not any(map(has_held_out, story.clauses))


def is_new(story: Story) -> bool:
    """Whether the verb and the object of the hero's event never occur together in training."""
    return isinstance(story.event.object, Phrase) and is_held_out(
        story.event.verb.base, story.event.object.noun.singular
    )


def splits(train: int = 8000, held_out: int = 500, seed: int = 0) -> dict[str, list[Story]]:
    known, new = stories(f"{seed} known", is_known), stories(f"{seed} new", is_new)
    fixed = {"valid": list(islice(known, held_out)), "test": list(islice(known, held_out))}
    return {"train": list(islice(known, train)), **fixed, "combinations": list(islice(new, held_out))}


def write(parts: dict[str, list[Story]], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, told in parts.items():
        rows = [f"{source}\t{target}\n" for story in told for source, target in story.rows.values()]
        (folder / f"{split}.tsv").write_text("".join(rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=8000, help="stories")
    parser.add_argument("--held-out", type=int, default=500, help="stories of each other file")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    write(splits(given.train, given.held_out, given.seed), given.folder)


if __name__ == "__main__":
    main()
