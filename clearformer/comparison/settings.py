"""The settings of a comparison, a TOML file: the contenders, the seeds, and the budget of each training.

seeds = [0, 1, 2]
goal = 30.0                   # a validation score; when each training first reaches it is reported
bundled = 6000                # pairs of the bundled corpus, in place of the recipes' own data

[budget]
steps = 2000                  # or tokens, or seconds; the same for every training

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

ENDLESS = 10_000_000  # steps, where something else is the budget


class Budget(Config):
    steps: int | None = Field(None, ge=1)
    tokens: int | None = Field(None, ge=1, description="target tokens; for a classifier, examples")
    seconds: float | None = Field(None, gt=0, description="of training and validation")

    def model_post_init(self, _: object) -> None:
        if len(self.model_fields_set) != 1:
            raise ValueError("give one of steps, tokens and seconds")

    def settings(self) -> list[str]:
        """The budget in the form of --set."""
        if self.steps is not None:
            return [f"train.steps={self.steps}"]
        limit = f"train.max_tokens={self.tokens}" if self.tokens is not None else f"train.max_seconds={self.seconds}"
        return [f"train.steps={ENDLESS}", limit]


class Contender(Config):
    recipe: Path = Field(description="a TOML file; its path starts from the folder of the comparison's")
    settings: tuple[str, ...] = Field((), description='as --set takes them: "model.n_heads=1"')


Name = Annotated[str, StringConstraints(pattern=r"^\w[\w .+-]*$")]  # also the name of a folder


class CompareConfig(Config):
    contenders: dict[Name, Contender] = Field(min_length=1)
    budget: Budget
    settings: tuple[str, ...] = Field((), description='of every contender, as --set takes them: "train.ema=0"')
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    goal: float | None = Field(None, description="a validation score; when it is first reached is reported")
    bundled: int | None = Field(None, ge=100, description="pairs of the bundled corpus to train on")

    @classmethod
    def read(cls, path: Path) -> Self:
        return cls.parse(read_toml(path, "a comparison has lines such as: seeds = [0, 1, 2]"), str(path))

    def recipes(self, folder: Path, corpus: Path) -> dict[tuple[str, int], Recipe]:
        """The recipe of each contender and seed. Paths start at `folder`; the bundled corpus is in `corpus`."""
        splits = [f"data.{split}={{path='{split}.tsv'}}" for split in ("train", "valid", "test")]
        data = [] if self.bundled is None else [f"data.root={corpus}", *splits]
        shared = [*self.settings, *data, *self.budget.settings()]
        return {
            (name, seed): Recipe.read(folder / contender.recipe, [*shared, *contender.settings, f"train.seed={seed}"])
            for seed in self.seeds
            for name, contender in self.contenders.items()
        }
