"""The language-modelling task, evaluated by the loss on held-out text."""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from torch import nn

from clearformer.data.built.folder import read_index
from clearformer.data.built.stores import open_documents, row_order
from clearformer.data.corpora import StreamCorpora
from clearformer.data.store import DocumentStore
from clearformer.data.streams import Streams
from clearformer.data.text import store_text
from clearformer.data.windows import Windows
from clearformer.errors import DataError
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.text_encoder import TextEncoder
from clearformer.metric import LOSS, PERPLEXITY, Metric
from clearformer.models.build import model_class
from clearformer.objectives.causal_lm import CausalLM, CausalLMConfig
from clearformer.tables import Tables
from clearformer.tasks.auto.text import plan_finetune_text, plan_text
from clearformer.tasks.task import Plan, Pretrained, Request
from clearformer.tasks.text_task import TextTask, text_encoder, token_metrics
from clearformer.text import Tokenizer
from clearformer.training.compiling import NumberOfShapes
from clearformer.training.recompute import in_chunks
from clearformer.wording import count

SAMPLE_LENGTH = 60  # tokens generated at each validation
PROMPT = 16  # maximum number of tokens in the prompt of this sample
SPAN = 35  # tokens of backpropagation through time for recurrent models, if data.length is not set


class CausalLMTask(TextTask):
    data = StreamCorpora
    objective = CausalLM
    windows: ClassVar[type[Windows]] = Windows
    """How the text is divided into rows, for models that do not carry their state from batch to batch."""

    @classmethod
    def metrics(cls, recipe: Tables) -> tuple[Metric, ...]:
        return LOSS, PERPLEXITY

    @classmethod
    def plan(cls, request: Request) -> Plan:
        return plan_text(request)

    @classmethod
    def plan_finetune(cls, request: Request, start: Path, old: Tables) -> Plan:
        return plan_finetune_text(request, start, old)

    def refuse_built(self, folder: Path) -> None:
        """A language model is trained on a stream of tokens, but only if documents begin as it expects."""
        built = bool(read_index(folder).tables["data"]["joined"])
        if built != self.recipe.data.joined:
            raise DataError(
                f"{folder} was built with data.joined = {str(built).lower()}",
                f"add --set data.joined={str(built).lower()}",
            )

    def encode(self, documents: Iterable[str], path: Path) -> DocumentStore:
        return store_text(documents, self.tokenizer, path, bos=not self.recipe.data.joined)

    def split(self, name: str) -> Windows | Streams:
        """Return a split as independent windows, or as streams if the model carries its state from batch to batch."""
        data, model, train = self.recipe.data, self.recipe.model, self.recipe.train
        carries = getattr(model_class(model.kind), "carries", False)
        length = data.length or (SPAN if carries else model.max_length)
        seed = train.seed if name == "train" else 0  # validation is the same for every seed
        store, n_rows = open_documents(self.path(name)), max(1, train.tokens // length)
        if carries:
            return Streams(store, length, n_rows, seed, data.joined)
        order = row_order(self.path(name), store)
        return self.windows(store, length, n_rows, seed, data.joined, train.batches == "fixed", order)

    @property
    def shapes(self) -> NumberOfShapes:  # type: ignore[override]
        """One, except for a recurrent network that begins each document with a new state."""
        carries = getattr(model_class(self.recipe.model.kind), "carries", False)
        return "many" if carries and not self.recipe.data.joined else "one"

    def describe(self) -> str:
        split = self.split("train")
        return (
            f"{count(split.n_tokens, 'training token')}, vocabulary {self.tokenizer.vocab_size:,}, "
            f"micro-batches of {count(split.n_rows, 'row')} with {count(split.length, 'token')} each"
        )

    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        """Compute the loss over the whole text, without label smoothing. Each token is predicted once."""
        objective = in_chunks(CausalLM(CausalLMConfig()), self.recipe.train.recompute)
        return token_metrics(objective, model, self.split(split).read())

    @cached_property
    def prompt(self) -> str:
        """The beginning of the first validation document."""
        store = DocumentStore(self.path("valid"))
        first = store.tokens[: int(store.offsets[1]) - 1]  # without EOS
        return self.tokenizer.decode([first[: min(PROMPT, (len(first) + 1) // 2)].tolist()])[0]

    def sample(self, model: nn.Module, step: int) -> str:
        """Generate a continuation of the beginning of the validation text."""
        tokenizer, edges = self.tokenizer, document_edges(self.recipe, self.tokenizer)
        writer = LanguageModel(model, tokenizer, self.recipe.decode, self.run.path.name, edges.opening, edges.closed)
        continuation = writer.generate([self.prompt], max_new=SAMPLE_LENGTH, temperature=0.8, seed=step)[0][0]
        return f"  {self.prompt}|{continuation.text}"

    @classmethod
    def handle(cls, model: Pretrained) -> LanguageModel:
        edges, decode = document_edges(model.recipe, model.tokenizer), model.recipe.decode
        return LanguageModel(model.network, model.tokenizer, decode, model.name, *edges, template=model.template)

    @classmethod
    def encoder(cls, model: Pretrained, unit: bool | None) -> TextEncoder:
        return text_encoder(model.network, model, unit)


class Edges(NamedTuple):
    """The special tokens with which training texts begin and end."""

    opening: list[int]
    """Tokens before each text; none if the text is one continuous stream, such as a book."""
    closed: bool
    """Whether each text ends with EOS."""


def document_edges(recipe: Tables, tokenizer: Tokenizer) -> Edges:
    """Return how texts begin and end: documents with BOS and EOS; a continuous text, such as a book, with neither.

    Joined documents have no BOS: each follows the EOS of the document before it. A published tokenizer may define its
    own opening tokens.
    """
    is_collection = recipe.data is not None and recipe.data.train.is_collection
    first = tokenizer.eos_id if getattr(recipe.data, "joined", False) else tokenizer.bos_id
    return Edges(tokenizer.opening or ([first] if is_collection else []), is_collection)
