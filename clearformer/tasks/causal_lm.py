"""Running text to a language model, judged by its loss on text it has not read."""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from torch import nn

from clearformer.data.corpora import StreamCorpora
from clearformer.data.store import DocumentStore
from clearformer.data.streams import Streams
from clearformer.data.text import store_text
from clearformer.data.windows import Windows
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.text_encoder import TextEncoder
from clearformer.metric import LOSS, PERPLEXITY, Metric
from clearformer.models.build import model_class
from clearformer.objectives.causal_lm import CausalLM, CausalLMConfig
from clearformer.tables import Tables
from clearformer.tasks.auto.text import plan_finetune_text, plan_text
from clearformer.tasks.task import Plan, Pretrained, Request
from clearformer.tasks.text_task import TextTask, score_tokens, text_encoder
from clearformer.text import Tokenizer

SHOWN = 60  # tokens of the sample at each validation
PROMPT = 16  # tokens of the text that the sample goes on from, at most
SPAN = 35  # tokens that gradients reach back through, where state is carried and data.length is not given


class CausalLMTask(TextTask):
    data = StreamCorpora
    objective = CausalLM
    windows: ClassVar[type[Windows]] = Windows
    """How a model that carries no state reads the text."""

    @classmethod
    def metrics(cls, recipe: Tables) -> tuple[Metric, ...]:
        return LOSS, PERPLEXITY

    @classmethod
    def plan(cls, request: Request) -> Plan:
        return plan_text(request)

    @classmethod
    def plan_finetune(cls, request: Request, start: Path, old: Tables) -> Plan:
        return plan_finetune_text(request, start, old)

    def encode(self, documents: Iterable[str], path: Path) -> DocumentStore:
        return store_text(documents, self.tokenizer, path, bos=not self.recipe.data.joined)

    def split(self, name: str) -> Windows | Streams:
        """Windows that know nothing of one another; or streams, for a model that carries its state along."""
        data, model, train = self.recipe.data, self.recipe.model, self.recipe.train
        carries = getattr(model_class(model.kind), "carries", False)
        length = data.length or (SPAN if carries else model.max_length)
        seed = train.seed if name == "train" else 0  # validation is the same for every seed
        cut: type[Windows | Streams] = Streams if carries else self.windows
        return cut(DocumentStore(self.path(name)), length, max(1, train.tokens // length), seed, data.joined)

    def describe(self) -> str:
        split = self.split("train")
        return (
            f"{split.n_tokens:,} training tokens, vocabulary {self.tokenizer.vocab_size:,}, "
            f"{split.n_rows:,} rows of {split.length:,} at a time"
        )

    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        """Loss without smoothing over the whole text, each token predicted once."""
        return score_tokens(CausalLM(CausalLMConfig()), model, self.split(split).read())

    @cached_property
    def prompt(self) -> str:
        """How the first document of the validation text begins."""
        store = DocumentStore(self.path("valid"))
        first = store.tokens[: int(store.offsets[1]) - 1]  # without EOS
        return self.tokenizer.decode([first[: min(PROMPT, (len(first) + 1) // 2)].tolist()])[0]

    def sample(self, model: nn.Module, step: int) -> str:
        """How the validation text might go on after its beginning."""
        tokenizer, edges = self.tokenizer, document_edges(self.recipe, self.tokenizer)
        writer = LanguageModel(model, tokenizer, self.recipe.decode, self.run.path.name, edges.opening, edges.closed)
        written = writer.generate([self.prompt], max_new=SHOWN, temperature=0.8, seed=step)[0][0]
        return f"  {self.prompt}|{written.text}"

    @classmethod
    def handle(cls, model: Pretrained) -> LanguageModel:
        edges, decode = document_edges(model.recipe, model.tokenizer), model.recipe.decode
        return LanguageModel(model.network, model.tokenizer, decode, model.name, *edges, template=model.template)

    @classmethod
    def encoder(cls, model: Pretrained, unit: bool | None) -> TextEncoder:
        return text_encoder(model.network, model, unit)


class Edges(NamedTuple):
    """How the texts of a training begin and end."""

    opening: list[int]
    """Tokens before each text; none before the pages of a book."""
    closed: bool
    """Whether each text ends with EOS."""


def document_edges(recipe: Tables, tokenizer: Tokenizer) -> Edges:
    """Documents begin with BOS and end with EOS; the pages of a book do neither.

    Documents that were joined begin after the EOS of the one before. A published tokenizer may say itself how a text
    begins.
    """
    is_collection = recipe.data is not None and recipe.data.train.is_collection
    first = tokenizer.eos_id if getattr(recipe.data, "joined", False) else tokenizer.bos_id
    return Edges(tokenizer.opening or ([first] if is_collection else []), is_collection)
