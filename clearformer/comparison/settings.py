"""The settings of a comparison, a TOML file: contenders, seeds, and the budget of each run.

seeds = [0, 1, 2]
goal = 30.0                   # target value of the validation metric; the time to reach it is reported
bundled = 6000                # number of pairs of the bundled corpus, instead of the data of the recipes

[budget]
steps = 2000                  # or tokens, or seconds; the same for every run

[contenders]
transformer = { recipe = "multi30k-en-de.toml" }
"one head" = { recipe = "multi30k-en-de.toml", settings = ["model.n_heads=1"] }
"""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, StringConstraints

from clearformer.config import Config
from clearformer.recipe import Recipe
from clearformer.tables import read_toml

ENDLESS = 10_000_000  # number of steps if the budget is in tokens or seconds


class Budget(Config):
    steps: int | None = Field(None, ge=1, description="number of optimiser steps per run")
    tokens: int | None = Field(None, ge=1, description="number of target tokens per run (of examples for classifiers)")
    seconds: float | None = Field(None, gt=0, description="seconds of training and validation per run")

    def model_post_init(self, _: object) -> None:
        if len(self.model_fields_set) != 1:
            raise ValueError("give exactly one of steps, tokens and seconds")

    def settings(self) -> list[str]:
        """Return the budget as settings in the form of --set, such as "train.steps=2000"."""
        if self.steps is not None:
            return [f"train.steps={self.steps}"]
        limit = f"train.max_tokens={self.tokens}" if self.tokens is not None else f"train.max_seconds={self.seconds}"
        return [f"train.steps={ENDLESS}", limit]


class Contender(Config):
    recipe: Path = Field(description="path of a recipe, relative to the folder of the comparison file")
    settings: tuple[str, ...] = Field(
        (), description='list of settings in the form of --set, such as "model.n_heads=1"'
    )


Name = Annotated[str, StringConstraints(pattern=r"^\w[\w .+-]*$")]  # also used as a folder name


class CompareConfig(Config):
    contenders: dict[Name, Contender] = Field(
        min_length=1, description="recipes by name; a name may contain letters, digits, spaces and . + - _"
    )
    budget: Budget = Field(description="budget of each run: steps, tokens or seconds, as in budget.steps = 2000")
    settings: tuple[str, ...] = Field(
        (), description='settings of all contenders in the form of --set, such as "train.ema=0"'
    )
    seeds: tuple[int, ...] = Field((0,), min_length=1, description="list of seeds; each contender runs with every seed")
    goal: float | None = Field(
        None, description="target value of the validation metric; the time to reach it is reported"
    )
    bundled: int | None = Field(
        None,
        ge=100,
        description="number of pairs of the bundled corpus to train on, instead of the data of the recipes",
    )

    @classmethod
    def read(cls, path: Path) -> Self:
        return cls.parse(read_toml(path, "a comparison has lines such as seeds = [0, 1, 2]"), str(path))

    def recipes(self, folder: Path, corpus: Path) -> dict[tuple[str, int], Recipe]:
        """Read the recipe of each contender and seed.

        Paths are relative to `folder`; `corpus` is the folder of the bundled corpus.
        """
        splits = [f"data.{split}={{path='{split}.tsv'}}" for split in ("train", "valid", "test")]
        data = [] if self.bundled is None else [f"data.root={corpus}", *splits]
        shared = [*self.settings, *data, *self.budget.settings()]
        return {
            (name, seed): Recipe.read(folder / contender.recipe, [*shared, *contender.settings, f"train.seed={seed}"])
            for seed in self.seeds
            for name, contender in self.contenders.items()
        }
